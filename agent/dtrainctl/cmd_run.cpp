#include <filesystem>

#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/follow.h"
#include "agent/dtrainctl/upload.h"
#include "common/job/manifest_input.h"
#include "common/json/answers.h"

namespace dtrain::ctl {
namespace {

// A name made from a command: "python3" -> "python3-", completed by the cluster.
std::string name_prefix(const std::string& program) {
  static constexpr std::size_t kPrefixBytes = 40;  // leaves room for what the cluster adds
  std::string name;
  for (const char c : std::filesystem::path(program).filename().string()) {
    if (name.size() == kPrefixBytes) break;
    if (c >= 'A' && c <= 'Z') name.push_back(static_cast<char>(c - 'A' + 'a'));
    else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) name.push_back(c);
    else if (!name.empty() && name.back() != '-') name.push_back('-');
  }
  while (!name.empty() && name.back() == '-') name.pop_back();
  return (name.empty() ? "job" : name) + "-";
}

}  // namespace

// Written as a job file, so that the same parser fills in the same defaults and finds the same mistakes.
std::string job_file_of(const RunOptions& options, const std::string& directory) {
  const bool tensorflow = options.ps > 0 || options.chief;
  Json metadata = Json::object();
  if (options.name.empty()) metadata["generateName"] = name_prefix(options.command.front());
  else metadata["name"] = options.name;
  Json command = Json::array();
  for (const std::string& word : options.command) command.push_back(job::escape_params(word));  // there are no parameters here
  const auto role = [&](std::uint32_t replicas, bool with_gpus) {
    Json r{{"replicas", replicas}, {"command", command}};
    if (with_gpus && options.gpus > 0) r["resources"] = Json{{"gpus", options.gpus}};
    return r;
  };
  Json roles = Json::object();
  if (options.ps > 0) roles["ps"] = role(options.ps, false);
  if (options.chief) roles["chief"] = role(1, true);
  if (options.workers > 0 || roles.empty()) roles["worker"] = role(options.workers, true);
  const Json file{{"apiVersion", "dtrain/v1"},
                  {"kind", "Job"},
                  {"metadata", metadata},
                  {"spec",
                   {{"framework", !options.framework.empty() ? options.framework
                                  : tensorflow               ? "tensorflow"
                                                             : "generic"},
                    {"workDir", directory},
                    {"roles", roles}}}};
  return json::text(file, true);
}

int cmd_run(Session& session, const RunOptions& options) {
  Outcome<LoadedJob> job;
  if (options.command.empty()) {
    job = load_job(session, options.file);
  } else {
    std::error_code wrong;
    const std::filesystem::path here = std::filesystem::current_path(wrong);
    if (wrong)
      return session.report(Failure(
          Error{ErrorCode::invalid, "could not tell the current directory: " + wrong.message(), "change to a directory that exists"}));
    job = parse_job(session, job_file_of(options, here.string()), "run", options.file, here.string());
    // There is no such file with lines to point to.
    if (!job)
      for (wire::ErrorItem& item : job.error().items) item.file.clear(), item.line = 0;
  }
  if (!job) return session.report(job.error());
  auto submitted = submit_job(session, std::move(*job), options.replace);
  if (!submitted) return session.report(submitted.error());
  if (submitted->unchanged) {
    // The logs of a finished run are no new run, and its success is not reported anew.
    const auto ended = ended_state(session, *submitted);
    if (!ended) return session.report(ended.error());
    session.note("job " + submitted->name + ": " + unchanged_text(submitted->name, *ended, options.detach ? "" : "; following it"));
    if (!ended->empty() && !options.detach) return *ended == "Succeeded" ? kDone : kJobFailed;
  }
  if (options.detach) {
    session.show(json::of(*submitted), [&] { return submitted->name + "\n"; });
    return kDone;
  }
  FollowOptions follow;
  follow.job = submitted->name;
  follow.id = submitted->id;
  follow.cancel_on_exit = options.cancel_on_exit;
  follow.raw = options.raw;
  return follow_job(session, follow);
}

}  // namespace dtrain::ctl
