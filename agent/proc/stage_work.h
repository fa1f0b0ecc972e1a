// What staging does on the disk, step by step and blocking; the calling thread acts as the job's user for a while. For Stager's workers;
// what is brief also for the agent itself.
//
// In <work_root>:   <job>            the job's writable copy, its user's own
//                   .<job>.origin    what it was made from (version, digest); written before the copy appears
//                   .<job>.partial   being made; left behind by a crash it is made anew
//                   .<job>.old       replaced copy, being removed
//                   .<job>.tmp       TMPDIR of the job's tasks on this host, its user's own; removed at its end
#pragma once

#include <string>
#include <vector>

#include "agent/proc/port_check.h"
#include "common/base/result.h"
#include "common/node/effect.h"

namespace dtrain::proc {

struct StageDirs {
  std::string work_root;  // absolute; created when missing
  std::string blobs_dir;  // packages by digest: plain tar files
  std::string tasks_dir;  // assignment directories, for JobFiles::logs
};

struct StageOutcome {
  AssignmentId id;
  bool ok = false;
  std::string work_dir;        // if ok
  Error error;                 // if not ok
  bool lacks_package = false;  // the package is missing: the reason for the failure
  std::string host_refused;    // node::Staged::host_refused, if that is the reason for the failure
  template <class V>
  void fields(V& v) {
    v("id", id);
    v("ok", ok);
    v("work_dir", work_dir);
    v("error", error);
    v("lacks_package", lacks_package);
    v("host_refused", host_refused);
  }
};

// Path of the job's copy, <work_root>/<job>, which exists once staging succeeded.
std::string job_copy(const StageDirs& dirs, JobId job);

// True if there is nothing to unpack, replace or look for: staging only makes an empty directory on the agent's own
// disk, to which launching writes anyway.
bool is_brief(const StageDirs& dirs, const node::Stage& stage);

// `stages` all belong to one job. Returns one outcome for each, in order. `owner`: how to name the owner of the first
// port that is taken.
std::vector<StageOutcome> perform_stages(const StageDirs& dirs, const std::vector<node::Stage>& stages, PortOwner owner);

// Missing files are no error: afterwards there are none.
Status perform_remove(const StageDirs& dirs, JobId job, node::JobFiles files);

// The job's temporary directory. It exists once staging succeeded.
std::string job_temporary(const std::string& work_root, JobId job);
// True if there is none; an empty one is removed first.
bool no_temporary(const StageDirs& dirs, JobId job);

}  // namespace dtrain::proc
