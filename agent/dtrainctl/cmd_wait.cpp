#include <algorithm>

#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/progress.h"
#include "agent/dtrainctl/stream.h"

namespace dtrain::ctl {
namespace {

bool reached(const wire::JobUpdate& update, const std::string& target) {
  if (target == "deleted") return update.gone;
  if (target == "Finished") return is_final_state(update.job.state);
  return update.job.state == target || std::find(update.passed.begin(), update.passed.end(), target) != update.passed.end();
}

}  // namespace

int cmd_wait(Session& session, const WaitOptions& options) {
  const Deadline deadline = session.answer_deadline(std::nullopt);
  std::uint64_t id = 0;  // this run of the job, once known
  Stream watch(
      session,
      [&](Connection& connection) {
        wire::WatchRequest request;
        request.job = options.job;
        request.id = id;
        connection.send(wire::MessageType::watch, request);
      },
      true);
  if (auto started = watch.start(); !started) return session.report(started.error());
  bool away = false;
  std::string now;  // its present state
  while (true) {
    auto messages = watch.turn();
    if (!messages) return session.report(messages.error());
    for (const wire::Message& message : *messages) {
      auto update = Connection::read<wire::JobUpdate>(message, wire::MessageType::update);
      if (!update) {
        if (options.target == "deleted" && update.error().code() == ErrorCode::not_found) return kDone;
        return session.report(update.error());
      }
      if (reached(*update, options.target)) return kDone;
      if (update->gone) return session.report(job_not_found(options.job));
      id = update->job.id;
      now = update->job.state;
      if (!update->waiting_for.empty()) now += ", and waits: " + update->waiting_for;
      else if (!update->job.reason.empty()) now += ": " + update->job.reason;
      if (options.target != "deleted" && is_final_state(update->job.state)) {
        session.note("job " + options.job + " has ended (" + update->job.state + ") and will not be " + options.target +
                     (update->job.reason.empty() ? "" : ": " + update->job.reason));
        return kJobFailed;
      }
    }
    if (!away && watch.away()) session.note("lost the agent; waiting for it");
    away = watch.away();
    if (Clock::now() >= deadline) {
      if (watch.owes_answer()) return session.report(no_answer());
      session.note("job " + options.job + " did not reach " + options.target + " in time" + (now.empty() ? "" : ": it is " + now));
      return kWaitTimedOut;
    }
    std::vector<pollfd> none;
    wait_for({&watch}, none, deadline);
  }
}

}  // namespace dtrain::ctl
