#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/tables.h"
#include "agent/dtrainctl/upload.h"
#include "agent/dtrainctl/user_entry.h"
#include "common/json/answers.h"

namespace dtrain::ctl {

Outcome<wire::TaskSpecsReply> plan_job(Session& session, const LoadedJob& job) {
  // The package is not sent: a plan starts nothing and stores nothing.
  wire::SubmitRequest request;
  request.spec = wire::encode(job.spec);
  auto reply = session.ask_surely<wire::TaskSpecsReply>(wire::MessageType::plan, request, wire::MessageType::task_specs);
  if (reply) session.warn(reply->warnings, job.named);
  return reply;
}

int cmd_plan(Session& session, const FileOptions& options) {
  auto jobs = load_jobs(session, options);
  if (!jobs) return session.report(jobs.error());
  const bool several = jobs->size() > 1;
  Json plans = Json::array();
  std::string text;
  for (const LoadedJob& job : *jobs) {
    auto reply = plan_job(session, job);
    if (!reply) return session.report(reply.error());
    add_user_entry(reply->tasks);
    const std::string name = job.spec.name.empty() ? job.spec.generate_name : job.spec.name;
    if (!reply->waiting_for.empty()) session.note(job.named + "it could not start now: " + reply->waiting_for);
    plans.push_back(json::of(*reply));
    plans.back()["name"] = name;
    text += (several ? "job " + name + "\n" : "") + task_specs_text(reply->tasks);
  }
  session.show(several ? plans : plans.front(), [&] { return text; });
  return kDone;
}

}  // namespace dtrain::ctl
