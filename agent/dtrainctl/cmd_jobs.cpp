#include <iterator>
#include <utility>

#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/tables.h"
#include "common/json/answers.h"

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
  std::vector<wire::JobView> jobs;
  for (bool more = true, stale = false; more;) {
    auto reply = session.ask_surely<wire::JobsReply>(wire::MessageType::query_jobs, request, wire::MessageType::jobs);
    if (!reply) return session.report(reply.error());
    if (reply->stale && !std::exchange(stale, true)) session.note_stale(true);
    more = reply->more && !reply->jobs.empty();
    if (more) request.after = reply->jobs.back().id;
    jobs.insert(jobs.end(), std::make_move_iterator(reply->jobs.begin()), std::make_move_iterator(reply->jobs.end()));
  }
  session.show(json::of(jobs), [&] { return jobs_table(jobs, session.layout()); });
  return kDone;
}

}  // namespace dtrain::ctl
