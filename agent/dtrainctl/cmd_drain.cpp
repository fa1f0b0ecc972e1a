// drain, undrain: may safely be sent twice. --wait follows until the host has no tasks.
#include <thread>

#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/tables.h"

namespace dtrain::ctl {
namespace {

// Prints what is left whenever that changes, and continues to wait if the agent restarts.
int wait_until_empty(Session& session, const std::string& node) {
  const Deadline deadline = session.answer_deadline(std::nullopt);
  std::vector<std::string> said;
  bool reachable = true;
  while (true) {
    const auto reply = session.ask_by<wire::NodesReply>(wire::MessageType::query_nodes, wire::NodeName{node}, wire::MessageType::nodes,
                                                        std::min(deadline, Clock::now() + kAnswerTime));
    if (!reply && exit_code(reply.error().code()) != kUnreachable && !reply.error().lost) return session.report(reply.error());
    if (!reply && reachable) session.note("the agent does not answer; trying again");
    reachable = reply.has_value();
    if (reachable && !reply->stale && !reply->nodes.empty()) {
      const auto& drained = reply->nodes.front().drained;
      if (!drained) {
        session.note("node " + node + ": somebody undrained it meanwhile");
        return kJobFailed;
      }
      if (drained->tasks == 0) {
        session.note("node " + node + ": no task is left there");
        return kDone;
      }
      std::vector<std::string> left{std::to_string(drained->tasks) + (drained->tasks == 1 ? " task is" : " tasks are") + " left"};
      for (const wire::DrainedJobView& job : drained->jobs) left.push_back(left_text(job));
      if (left != said)
        for (const std::string& line : left) session.note("node " + node + ": " + line);
      said = std::move(left);
    }
    if (Clock::now() >= deadline) {
      session.note("node " + node + " was not left by all tasks in time; the drain goes on");
      return kWaitTimedOut;
    }
    std::this_thread::sleep_until(std::min(deadline, Clock::now() + kWatchPause));
  }
}

}  // namespace

int cmd_drain(Session& session, const DrainOptions& options) {
  auto reply = session.change<wire::Empty>(wire::MessageType::drain, options.request, wire::MessageType::ok);
  if (!reply) return session.report(reply.error());
  session.note("node " + options.request.node + (options.request.on ? ": drained" : ": may be given tasks again"));
  return options.wait ? wait_until_empty(session, options.request.node) : kDone;
}

}  // namespace dtrain::ctl
