#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/tables.h"
#include "common/json/answers.h"

namespace dtrain::ctl {

int cmd_tasks(Session& session, const NamedOptions& options) {
  if (options.watch) return watch_screen(session, [&](Session& s) { return cmd_tasks(s, {options.name, false}); });
  auto reply = session.ask_surely<wire::TasksReply>(wire::MessageType::query_tasks, wire::JobName{options.name}, wire::MessageType::tasks);
  if (!reply) return session.report(reply.error());
  session.note_stale(reply->stale);
  session.show(json::of(reply->tasks), [&] { return tasks_table(reply->tasks, session.layout()); });
  return kDone;
}

}  // namespace dtrain::ctl
