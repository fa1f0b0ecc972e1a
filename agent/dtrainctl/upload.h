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

// Packs the directory and sends it unless the agent has it already. Answers its digest.
Outcome<std::string> upload_package(Session& session, const std::string& directory);

// Uploads the package, then submits with a fresh request id. Says the agent's warnings.
Outcome<wire::SubmitReply> submit_job(Session& session, LoadedJob job, bool replace);

// Of a job that was there already, as submitted: in which final state it is; "": in none.
Outcome<std::string> ended_state(Session& session, const wire::SubmitReply& reply);
// "unchanged", and what can be done about it where it has ended; else `else_what`.
std::string unchanged_text(const std::string& name, const std::string& ended, const std::string& else_what);

}  // namespace dtrain::ctl
