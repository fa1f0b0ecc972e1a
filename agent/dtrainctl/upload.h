// Sends job files and packages to the agent.
#pragma once

#include <string>
#include <vector>

#include "agent/dtrainctl/commands.h"
#include "common/job/job_file.h"
#include "common/job/job_spec.h"

namespace dtrain::ctl {

// Reads and checks a job file. Prints warnings; a failure contains every mistake (exit code 2). The package is not packed
// yet: package_dir is its directory ("" none), resolved against the file's directory, or the current one for stdin.
struct LoadedJob {
  job::JobSpec spec;
  std::string package_dir;
  std::string named = {};  // before what the agent says of it: job::prefix_among()
};
Outcome<LoadedJob> load_job(Session& session, const FileOptions& options);
// All jobs of a file, which may be manifests of other systems (common/job/job_file.h): one mistake in it, and there are none.
Outcome<std::vector<LoadedJob>> load_jobs(Session& session, const FileOptions& options);
// Reads the file without checking its packages.
Outcome<job::JobFile> read_jobs(Session& session, const FileOptions& options);
// The same for a generated text. `name` is used in messages.
Outcome<LoadedJob> parse_job(Session& session, std::string_view text, const std::string& name, const FileOptions& options,
                             const std::string& base_dir);

// Asks what would become of the job, and prints the agent's warnings. Its package is not sent.
Outcome<wire::TaskSpecsReply> plan_job(Session& session, const LoadedJob& job);

struct Upload {
  std::string digest, content;  // as PackedFile's
  bool sent = false;            // the agent lacked it, or did not know that this user has it
};
// Packs the directory and sends it unless the agent has it already, from this user.
Outcome<Upload> upload_package(Session& session, const std::string& directory);

// Uploads the package ("": none), then sends the request. Repeats both once if the agent refuses because it lacks the
// package by then: a restarted agent has forgotten who uploaded what.
template <class Ask>
auto with_package(Session& session, const std::string& directory, Ask ask) -> decltype(ask(Upload())) {
  if (directory.empty()) return ask(Upload());
  auto upload = upload_package(session, directory);
  if (!upload) return failed(upload.error());
  auto reply = ask(*upload);
  if (reply || reply.error().code() != ErrorCode::refused) return reply;
  const auto lacked = upload_package(session, directory);
  return lacked && lacked->sent ? ask(*lacked) : reply;
}

// Uploads the package, then submits with a new request id. Prints the agent's warnings.
Outcome<wire::SubmitReply> submit_job(Session& session, LoadedJob job, bool replace);

// The final state of a job that was already there, as submitted; "": it has none.
Outcome<std::string> ended_state(Session& session, const wire::SubmitReply& reply);
// "unchanged", and what can be done about it if the job has ended; otherwise `else_what`.
std::string unchanged_text(const std::string& name, const std::string& ended, const std::string& else_what);

}  // namespace dtrain::ctl
