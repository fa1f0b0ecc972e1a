#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/tables.h"

namespace dtrain::ctl {

int cmd_jobs(Session& session, const JobsOptions& options) {
  if (options.watch) {
    JobsOptions once = options;
    once.watch = false;
    return watch_screen(session, [&](Session& s) { return cmd_jobs(s, once); });
  }
  wire::JobsRequest request;
  request.labels = options.labels;
  request.user = options.user;
  request.state = options.state;
  auto reply = session.ask_surely<wire::JobsReply>(wire::MessageType::query_jobs, request, wire::MessageType::jobs);
  if (!reply) return session.report(reply.error());
  session.note_stale(reply->stale);
  session.show(json_of(reply->jobs), [&] { return jobs_table(reply->jobs, session.layout()); });
  return kDone;
}

}  // namespace dtrain::ctl
