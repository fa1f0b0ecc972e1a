#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/tables.h"
#include "agent/dtrainctl/user_entry.h"
#include "common/json/answers.h"

namespace dtrain::ctl {

int cmd_cluster_spec(Session& session, const TaskSpecsOptions& options) {
  auto reply = session.ask_surely<wire::TaskSpecsReply>(wire::MessageType::query_task_specs,
                                                        wire::TaskSpecsRequest{options.job, options.task}, wire::MessageType::task_specs);
  if (!reply) return session.report(reply.error());
  session.warn(reply->warnings);
  add_user_entry(reply->tasks);
  session.show(json::of(reply->tasks), [&] { return task_specs_text(reply->tasks); });
  return kDone;
}

}  // namespace dtrain::ctl
