#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/tables.h"
#include "agent/dtrainctl/upload.h"
#include "agent/dtrainctl/user_entry.h"
#include "common/json/answers.h"

namespace dtrain::ctl {

int cmd_plan(Session& session, const FileOptions& options) {
  auto job = load_job(session, options);
  if (!job) return session.report(job.error());
  // The package is not sent: a plan starts nothing and stores nothing.
  wire::SubmitRequest request;
  request.spec = wire::encode(job->spec);
  auto reply = session.ask_surely<wire::TaskSpecsReply>(wire::MessageType::plan, request, wire::MessageType::task_specs);
  if (!reply) return session.report(reply.error());
  session.warn(reply->warnings);
  add_user_entry(reply->tasks);
  if (!reply->waiting_for.empty()) session.note("it could not start now: " + reply->waiting_for);
  session.show(json::of(*reply), [&] { return task_specs_text(reply->tasks); });
  return kDone;
}

}  // namespace dtrain::ctl
