#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/tables.h"
#include "common/json/answers.h"

namespace dtrain::ctl {
namespace {

void print_events(Session& session, const std::vector<wire::EventView>& events, wire::EventsRequest& from) {
  for (const wire::EventView& event : events) {
    // Where to continue after a reconnection. The node's own events repeat the seq of the history's event before them.
    std::uint64_t& last = event.local != 0 ? from.after_local : from.after;
    const std::uint64_t number = event.local != 0 ? event.local : event.seq;
    if (number <= last) continue;
    last = number;
    if (session.globals.format == Format::json) session.io.out << json::text(json::of(event), false) << "\n";
    else if (session.globals.format == Format::yaml) session.io.out << "---\n" << json::yaml(json::of(event)) << "\n";
    else session.io.out << event_line(event);
  }
  session.io.out.flush();
}

}  // namespace

int cmd_events(Session& session, const EventsOptions& options) {
  auto connection = session.connect();
  if (!connection) return session.report(connection.error());
  wire::EventsRequest request{options.job, 0, false, 0};  // existing events come first, in answers of bounded size
  connection->send(wire::MessageType::query_events, request);
  while (true) {
    auto message = connection->receive(request.follow ? kNoDeadline : session.answer_deadline());
    if (message && !*message) return session.report(no_answer());
    if (!message) {
      if (!options.follow || !message.error().lost) return session.report(message.error());
      session.note("lost the agent; waiting for it");
      connection = session.reconnect(kNoDeadline);
      if (!connection) return session.report(connection.error());
      connection->send(wire::MessageType::query_events, request);
      continue;
    }
    auto reply = Connection::read<wire::EventsReply>(**message, wire::MessageType::events);
    if (!reply) return session.report(reply.error());
    print_events(session, reply->events, request);
    if ((*message)->last && !reply->more) {
      if (!options.follow || request.follow) return kDone;
      request.follow = true;
    }
    if ((*message)->last) connection->send(wire::MessageType::query_events, request);
    if (!session.io.out) return kJobFailed;  // nobody reads the output any more
  }
}

}  // namespace dtrain::ctl
