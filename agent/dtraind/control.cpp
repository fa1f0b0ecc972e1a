// The control socket's side of the daemon. Requests go to Node, with three exceptions that decide nothing: has_blob
// asks the disk, and Node whether this user may have the blob; exec_input feeds a running exec; cancel_request also
// ends a log stream.
#include "agent/dtraind/daemon.h"

namespace dtrain::daemon {

void Daemon::on_opened(node::ConnectionId connection, const node::Caller& caller) {
  queue(node::ConnectionOpened{connection, caller});
}

void Daemon::on_closed(node::ConnectionId connection) {
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

std::size_t Daemon::room(node::ConnectionId connection) {
  return connection < node::kFirstPart ? client_room(connection) : relays_.room(connection);
}

void Daemon::send(node::ConnectionId connection, const wire::Message& message) {
  if (connection < node::kFirstPart)
    to_client(connection, message);
  else
    relays_.send(connection, message);
}

void Daemon::answer_error(node::ConnectionId connection, std::uint64_t request, const Error& error) {
  send(connection, wire::make_message(wire::MessageType::error, request, wire::error_reply(error)));
}

void Daemon::on_message(node::ConnectionId connection, wire::Message message) {
  switch (message.type) {
    case wire::MessageType::has_blob:
      if (node::is_relayed(connection)) break;  // Node refuses it
      return answer_has_blob(connection, message);
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
      if (!control_) return;
      if (!has) return answer_error(connection, request, has.error());
      const bool present = *has && decider_->may_have_package(connection, digest);
      control_->send(connection, wire::make_message(wire::MessageType::blob, request, wire::BlobReply{present}));
    };
  });
}

}  // namespace dtrain::daemon
