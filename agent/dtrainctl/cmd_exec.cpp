#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/signals.h"
#include "agent/dtrainctl/words.h"

namespace dtrain::ctl {
namespace {

constexpr std::size_t kInputBytes = 16 << 10;    // of one message of typed or piped input
constexpr std::size_t kUnsentBytes = 256 << 10;  // unsent bytes; with more, stdin is not read

// As a shell would report it.
int shell_code(const wire::ExitView& exit) {
  if (exit.signal) return 128 + signal_number(*exit.signal);
  return exit.code.value_or(kJobFailed);
}

}  // namespace

int cmd_exec(Session& session, const ExecOptions& options) {
  Io& io = session.io;
  const auto report = [&](const Failure& failure) {
    const int code = session.report(failure);
    return options.launches ? kNotLaunched : code;
  };
  auto connection = options.launches ? session.connect_to_restarting(session.answer_deadline()) : session.connect();
  if (!connection) return report(connection.error());
  wire::ExecRequest request;
  request.job = options.job;
  request.task = options.task;
  request.command = options.command;
  request.rank = options.rank;
  split_rank(request.task, request.rank);
  request.terminal = io.in_tty && io.out_tty;
  if (const char* term = std::getenv("TERM"); term != nullptr) request.term = term;
  const auto size = window_size(io.in_fd);
  if (size) request.rows = size->rows, request.columns = size->columns;

  Signals signals{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH};
  std::unique_ptr<RawTerminal> raw;
  if (request.terminal) raw = std::make_unique<RawTerminal>(io.in_fd);
  wire::ExecInput input;
  input.exec = connection->send(options.launches ? wire::MessageType::launch : wire::MessageType::exec, request);
  // Failures are printed after the terminal is restored.
  const auto give_up = [&](const Failure& failure) {
    raw.reset();
    return report(failure);
  };

  bool reading = true;
  while (true) {
    while (true) {
      auto message = connection->next();
      if (!message) return give_up(message.error());
      if (!*message) break;
      auto output = Connection::read<wire::ExecOutput>(**message, wire::MessageType::exec_output);
      if (!output) return give_up(output.error());
      std::ostream& out = output->is_stderr ? io.err : io.out;
      out.write(output->bytes.data(), static_cast<std::streamsize>(output->bytes.size())).flush();
      if (output->exit) return shell_code(*output->exit);
      if ((*message)->last)
        return give_up(Failure(Error{ErrorCode::internal, "could not learn how the command ended: the agent did not say", ""}));
    }
    std::array<pollfd, 3> polls{connection->poll_request(), pollfd{signals.fd(), POLLIN, 0},
                                pollfd{reading && connection->unsent() < kUnsentBytes ? io.in_fd : -1, POLLIN, 0}};
    if (::poll(polls.data(), polls.size(), -1) < 0) continue;  // interrupted
    if (polls[0].revents != 0) connection->transfer();
    for (int signal = signals.next(); signal != 0; signal = signals.next()) {
      wire::ExecInput told;
      told.exec = input.exec;
      if (signal == SIGWINCH) {
        const auto now = window_size(io.in_fd);
        if (!request.terminal || !now) continue;
        told.rows = now->rows;
        told.columns = now->columns;
      } else {
        told.signal = signal;  // with a terminal ^C arrives as a key; these signals come from kill(1) or a closed window
      }
      connection->tell(wire::MessageType::exec_input, told);
    }
    if (polls[2].revents != 0) {
      char buffer[kInputBytes];
      const ssize_t n = ::read(io.in_fd, buffer, sizeof buffer);
      if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      input.bytes.assign(buffer, n > 0 ? static_cast<std::size_t>(n) : 0);
      input.end = n <= 0;
      reading = !input.end;
      connection->tell(wire::MessageType::exec_input, input);
    }
  }
}

}  // namespace dtrain::ctl
