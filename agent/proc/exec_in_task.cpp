// A command that another task of the job launched: the shim of the task starts it (agent/dtrain-shim/launched.h).
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

#include "agent/base/small_file.h"
#include "agent/dtrain-shim/protocol.h"
#include "agent/proc/exec_session.h"

namespace dtrain::proc {

namespace {

Error not_started(const shim::LaunchedReport& report, const std::string& command) {
  const std::string could_not = "could not execute " + command + " in the task: ";
  switch (static_cast<shim::Outcome>(report.outcome)) {
    case shim::Outcome::no_attempt: return {ErrorCode::refused, could_not + "it does not run", "dtrainctl tasks shows its state"};
    case shim::Outcome::busy:
      return {ErrorCode::unavailable, could_not + "it stands still, or runs " + std::to_string(shim::kMostLaunched) + " such programs",
              "try again later"};
    default: return {ErrorCode::invalid, could_not + cause_of(report.error), "check the command and the task's environment"};
  }
}

}  // namespace

Status ExecSession::launch_in_task(const wire::ExecRequest& request, const ExecPlace& place, const ChildEnds& ends) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
    return fail(ErrorCode::io, "could not execute " + command_ + ": " + cause_of(errno), "raise the limit of open files");
  task_socket_.reset(pair[0]);
  const UniqueFd theirs(pair[1]);
  if (Status sent = place.run_beside({request.command, ends.input.get(), ends.output.get(), ends.errors.get(), theirs.get()}); !sent) {
    task_socket_.reset();  // nothing runs that would have to be killed
    return sent;
  }
  watch(task_socket_.get(), EPOLLIN);
  watch(output_.get(), EPOLLIN);
  if (errors_) watch(errors_.get(), EPOLLIN);
  return {};
}

bool ExecSession::ended_in_task() {
  shim::LaunchedReport report;
  const ssize_t n = ::recv(task_socket_.get(), &report, sizeof report, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n != static_cast<ssize_t>(sizeof report))
    task_failure_ = Error{ErrorCode::unavailable, "could not learn how " + command_ + " ended: the shim of the task closed its socket",
                          "the task has ended, or its shim is of an older release"};
  else if (report.outcome != static_cast<std::uint16_t>(shim::Outcome::done)) task_failure_ = not_started(report, command_);
  status_ = report.status;
  return true;
}

}  // namespace dtrain::proc
