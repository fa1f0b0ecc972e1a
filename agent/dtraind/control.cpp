// The control socket's side of the daemon. Requests go to Node, with three exceptions that decide nothing: has_blob
// asks the disk, and Node whether this user may have the blob; exec_input feeds a running exec; cancel_request also
// ends a log stream.
#include "agent/dtraind/daemon.h"

namespace dtrain::daemon {

node::ConnectionId Daemon::next_connection() { return decider_->next_connection(); }

void Daemon::on_opened(node::ConnectionId connection, const node::Caller& caller) {
  sinks_.add(connection, clients_);
  queue(node::ConnectionOpened{connection, caller});
}

void Daemon::on_closed(node::ConnectionId connection) {
  sinks_.remove(connection);
  logs_->close(connection);
  execs_->close(loop_->now().boot, connection);
  blob_streams_->close(connection);
  checkpoint_streams_->close(connection);
  drop_blob(connection);
  queue(node::ConnectionClosed{connection});
}

void Daemon::on_drained(node::ConnectionId connection) {
  logs_->wake(connection);
  execs_->wake(connection);
  relays_.wake(connection);
}

std::size_t Daemon::ClientSink::room(node::ConnectionId client) { return d.control_->room(client); }

void Daemon::ClientSink::send(node::ConnectionId client, const wire::Message& message) { d.control_->send(client, message); }

void Daemon::ClientSink::send_encoded(node::ConnectionId client, const std::string& body) { d.control_->send_encoded(client, body); }

void Daemon::ClientSink::close(node::ConnectionId client) { d.control_->close(client); }

void Daemon::ClientSink::hold(node::ConnectionId client, bool hold) {
  if (hold) d.control_->pause(client);
  else d.control_->resume(client);
}

void Daemon::answer_error(node::ConnectionId connection, std::uint64_t request, const Error& error) {
  sinks_.send(connection, wire::make_message(wire::MessageType::error, request, wire::error_reply(error)));
}

void Daemon::on_message(node::ConnectionId connection, wire::Message message) {
  if (message.type == wire::MessageType::has_blob) return answer_has_blob(connection, message);
  serve(connection, std::move(message));
}

// Also of clients of other agents, whose has_blob Node refuses.
void Daemon::serve(node::ConnectionId connection, wire::Message message) {
  switch (message.type) {
    case wire::MessageType::exec_input: {
      const auto input = wire::decode<wire::ExecInput>(message.payload);
      if (!input) return answer_error(connection, message.request, input.error());
      // The exec may still wait to be decided, so input is fed after this turn's decisions.
      return exec_inputs_.push_back({connection, *input});
    }
    case wire::MessageType::cancel_request:
      if (const auto cancel = wire::decode<wire::CancelRequest>(message.payload)) {
        logs_->close(connection, cancel->request_to_end);
        execs_->close(loop_->now().boot, connection, cancel->request_to_end);
      }
      break;
    default: break;
  }
  queue(node::Request{connection, message.request, wire::encode(message)});
}

void Daemon::answer_has_blob(node::ConnectionId connection, const wire::Message& message) {
  const auto asked = wire::decode<wire::BlobRequest>(message.payload);
  if (!asked) return answer_error(connection, message.request, asked.error());
  post_bulk([this, connection, request = message.request, digest = asked->digest] {
    auto has = prepared_.blobs->has(digest);
    return [this, connection, request, digest, has = std::move(has)] {
      if (!has) return answer_error(connection, request, has.error());
      const bool present = *has && decider_->may_have_package(connection, digest);
      sinks_.send(connection, wire::make_message(wire::MessageType::blob, request, wire::BlobReply{present}));
    };
  });
}

}  // namespace dtrain::daemon
