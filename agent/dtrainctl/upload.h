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

struct Upload {
  std::string digest;
  bool sent = false;  // the agent lacked it, or did not know that this user has it
};
// Packs the directory and sends it unless the agent has it already, from this user.
Outcome<Upload> upload_package(Session& session, const std::string& directory);

// Uploads the package ("": none), then asks with its digest. Once more where the agent refuses and lacks it by then: one that was begun
// anew in between has forgotten who gave what.
template <class Ask>
auto with_package(Session& session, const std::string& directory, Ask ask) -> decltype(ask(std::string())) {
  if (directory.empty()) return ask(std::string());
  auto upload = upload_package(session, directory);
  if (!upload) return failed(upload.error());
  auto reply = ask(upload->digest);
  if (reply || reply.error().code() != ErrorCode::refused) return reply;
  const auto lacked = upload_package(session, directory);
  return lacked && lacked->sent ? ask(lacked->digest) : reply;
}

// Uploads the package, then submits with a fresh request id. Says the agent's warnings.
Outcome<wire::SubmitReply> submit_job(Session& session, LoadedJob job, bool replace);

}  // namespace dtrain::ctl
