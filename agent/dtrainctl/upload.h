// Job files and packages on their way to the agent.
#pragma once

#include <string>

#include "agent/dtrainctl/commands.h"
#include "common/job/job_spec.h"

namespace dtrain::ctl {

// Reads and checks a job file. Warnings are said; every mistake is in the failure (exit code 2).
// The package is not packed yet: package_dir is its directory ("" none), resolved against the file's directory, or the
// current one for stdin.
struct LoadedJob {
  job::JobSpec spec;
  std::string package_dir;
};
Outcome<LoadedJob> load_job(Session& session, const FileOptions& options);
// The same for a text that was made, not read. `name` stands in messages.
Outcome<LoadedJob> parse_job(Session& session, std::string_view text, const std::string& name,
                             const FileOptions& options, const std::string& base_dir);

// Packs the directory and sends it unless the agent has it already.
struct Package {
  std::string digest, content;  // as PackedFile's
};
Outcome<Package> upload_package(Session& session, const std::string& directory);

// Uploads the package, then submits with a fresh request id. Says the agent's warnings.
Outcome<wire::SubmitReply> submit_job(Session& session, LoadedJob job, bool replace);

}  // namespace dtrain::ctl
