// Finds checkpoints on disk and says how complete they are. Formats: docs/checkpoints.md.
//
// Everything is done with the rights of the calling thread. An agent that runs as root calls these functions inside
// AsUser (agent/account/as_user.h), so that no job can make it read, rename or remove what its owner could not.
#pragma once

#include <string>
#include <vector>

#include "agent/store/checkpoint_verify.h"
#include "common/base/result.h"
#include "common/job/job_spec.h"
#include "common/transfer/checkpoint.h"
#include "common/transfer/selection.h"

namespace dtrain::store {

inline constexpr std::size_t kForeignDirectories = 64;  // directories that are searched for files in no known format
inline constexpr std::size_t kScanCandidates = 4096;    // checkpoints in one directory; more: Error{limit}

// The shallow check, newest step first: manifests and indexes are parsed, and every file has its size. A candidate
// that fails has complete = false and its defect. A directory that does not exist holds none.
//
// spec.dir is the directory; if it names a single checkpoint instead (a TensorFlow prefix, or a directory that itself
// holds MANIFEST.json), that one is found. `below`: as of open_directory_below(), on the way to it. Error: the directory cannot be read, or
// holds too much.
Result<std::vector<transfer::CheckpointInfo>> scan(const job::CheckpointSpec& spec, const std::string& below = "");

// The same, with what a watcher needs to notice further changes.
Result<std::vector<transfer::Candidate>> look(const job::CheckpointSpec& spec, const std::string& below = "");

// For a directory without checkpoints. Describes files that look like a framework's saved state, in the directory or one below, but have no
// known format: their number, and the first of them; or a checkpoint that lacks the files of some ranks, which may lie on other hosts; or
// a directory that a save may have left which was broken off, although nothing says that it is no other program's; "": there are none.
std::string unrecognised(const job::CheckpointSpec& spec);

// One checkpoint that verify_path found, with the result of the deep check.
struct PathReport {
  transfer::CheckpointInfo info;
  Status status;
  // Its save was broken off, or is still under way, as info.defect says: it lacks the file that is written last.
  bool is_unfinished() const { return !info.complete && !status && status.error().code == ErrorCode::not_found; }
};
// PATH: a checkpoint's directory, a TensorFlow prefix, a directory of checkpoints, or one of the files MANIFEST.json,
// P.index, checkpoint. Newest first. Error{not_found}: nothing there that looks like a checkpoint.
Result<std::vector<PathReport>> verify_path(const std::string& path);

}  // namespace dtrain::store
