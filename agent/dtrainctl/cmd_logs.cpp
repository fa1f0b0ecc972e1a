#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/log_printer.h"
#include "agent/dtrainctl/stream.h"

namespace dtrain::ctl {

int cmd_logs(Session& session, const LogsOptions& options) {
  LogResume resume(options.request);
  Stream logs(session, [&](Connection& connection) { connection.send(wire::MessageType::logs, resume.request()); }, false);
  if (auto started = logs.start(); !started) return session.report(started.error());
  LogStyle style;
  style.prefix = options.request.task.empty();
  style.timestamps = options.timestamps;
  style.color = session.layout().color;
  LogPrinter printer(style, [&](std::string_view text) {
    session.io.out.write(text.data(), static_cast<std::streamsize>(text.size()));
    session.io.out.flush();
  });
  bool was_connected = true;
  while (true) {
    auto messages = logs.turn();
    if (!messages) return session.report(messages.error());
    for (const wire::Message& message : *messages) {
      if (message.type == wire::MessageType::ok) {   // an end without words
        printer.finish();
        return kDone;
      }
      auto chunk = Connection::read<wire::LogChunk>(message, wire::MessageType::log_chunk);
      if (!chunk) return session.report(chunk.error());
      printer.add(*chunk, resume.fresh(*chunk));
      if (!chunk->note.empty()) session.note(chunk->note);
      if (message.last) {
        printer.finish();
        return kDone;
      }
    }
    if (!session.io.out) return kJobFailed;   // nobody reads any more
    if (!logs.connected() && !options.request.follow)
      return session.report(Failure(Error{ErrorCode::unavailable, "could not read all of the log: the agent went away",
                                          "try again"}));
    if (was_connected && !logs.connected()) session.note("lost the agent; waiting for it");
    was_connected = logs.connected();
    std::vector<pollfd> none;
    wait_for({&logs}, none, kNoDeadline);
  }
}

}  // namespace dtrain::ctl
