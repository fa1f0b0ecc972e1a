#include <algorithm>

#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/log_printer.h"
#include "agent/dtrainctl/stream.h"
#include "agent/dtrainctl/words.h"

namespace dtrain::ctl {
namespace {

// Attempts that are asked for one by one; those of a task with more come as its hosts send them.
constexpr std::uint32_t kAttemptsInOrder = 1000;

// Prints the answer to one request, to its end.
Outcome<void> pass_on(Session& session, const wire::LogsRequest& request, LogPrinter& printer) {
  LogResume resume(request);
  Stream logs(
      session, [&](Connection& connection) { connection.send(wire::MessageType::logs, resume.request()); }, false);
  if (auto started = logs.start(); !started) return failed(started.error());
  bool away = false;
  while (true) {
    auto messages = logs.turn();
    if (!messages) return failed(messages.error());
    for (const wire::Message& message : *messages) {
      if (message.type == wire::MessageType::ok) return {};  // the end, without data
      auto chunk = Connection::read<wire::LogChunk>(message, wire::MessageType::log_chunk);
      if (!chunk) return failed(chunk.error());
      printer.add(*chunk, resume.fresh(*chunk));
      if (!chunk->note.empty()) session.note(chunk->note);
      if (message.last) return {};
    }
    if (!session.io.out) return {};  // nobody reads the output any more
    if (!logs.connected() && !request.follow)
      return failed(ErrorCode::unavailable, "could not read all of the log: the agent went away", "try again");
    if (!away && logs.away()) session.note("lost the agent; waiting for it");
    away = logs.away();
    std::vector<pollfd> none;
    wait_for({&logs}, none, kNoDeadline);
  }
}

// How many attempts a task has had; 0: not known, or too many to be asked for one by one.
std::uint32_t attempts_of(const Session& session, const wire::LogsRequest& request) {
  const auto tasks =
      session.ask_surely<wire::TasksReply>(wire::MessageType::query_tasks, wire::JobName{request.job}, wire::MessageType::tasks);
  if (!tasks) return 0;
  const auto task = std::ranges::find(tasks->tasks, request.task, &wire::TaskView::task);
  return task == tasks->tasks.end() || task->attempt > kAttemptsInOrder ? 0 : task->attempt;
}

// The attempts ran on several hosts, which answer side by side: asking one after the other keeps them in order.
Outcome<void> pass_on_in_order(Session& session, wire::LogsRequest request, std::uint32_t attempts, LogPrinter& printer) {
  request.all_attempts = false;
  for (request.attempt = 1; request.attempt <= attempts; ++request.attempt) {
    if (request.attempt > 1) session.note(request.task + ": attempt " + std::to_string(request.attempt) + " begins");
    const auto done = pass_on(session, request, printer);
    if (!done && done.error().code() != ErrorCode::not_found) return done;  // an attempt that wrote nothing
  }
  return {};
}

}  // namespace

int cmd_logs(Session& session, const LogsOptions& options) {
  wire::LogsRequest request = options.request;
  split_rank(request.task, request.rank);
  if (request.rank > 0 && request.task.empty())
    return session.report(
        Failure(Error{ErrorCode::invalid, "could not read the log of a rank: a rank is counted within its task",
                      "name the task: dtrainctl logs " + request.job + " worker-1 --rank " + std::to_string(request.rank - 1)}));
  LogStyle style;
  style.prefix = request.task.empty();
  style.ranks = request.rank == 0;
  style.timestamps = options.timestamps;
  style.color = session.layout().color;
  style.terminal = session.io.out_tty && !options.raw;
  LogPrinter printer(style, [&](std::string_view text) {
    session.io.out.write(text.data(), static_cast<std::streamsize>(text.size()));
    session.io.out.flush();
  });
  const bool in_order = request.all_attempts && !request.follow && !request.task.empty() && request.tail < 0;
  const std::uint32_t attempts = in_order ? attempts_of(session, request) : 0;
  const auto done = attempts > 1 ? pass_on_in_order(session, request, attempts, printer) : pass_on(session, request, printer);
  printer.finish();
  if (!done) return session.report(done.error());
  return session.io.out ? kDone : kJobFailed;
}

}  // namespace dtrain::ctl
