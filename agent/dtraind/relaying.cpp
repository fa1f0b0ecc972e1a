// The daemon's side of relays: what they lend from clients' connections, the links and the streams of logs and execs.
#include "agent/dtraind/daemon.h"

namespace dtrain::daemon {

void Daemon::to_peer(const node::RelayPeer& peer, const wire::RelayMessage& message) {
  if (links_) links_->send(peer, message);
}

void Daemon::tell(node::Event event) { queue(std::move(event)); }

std::size_t Daemon::client_room(node::ConnectionId client) { return control_ ? control_->room(client) : 0; }

void Daemon::to_client(node::ConnectionId client, const wire::Message& message) {
  if (control_) control_->send(client, message);
}

void Daemon::hold_client(node::ConnectionId client, bool hold) {
  if (!control_) return;
  if (hold)
    control_->pause(client);
  else
    control_->resume(client);
}

void Daemon::on_relayed(node::ConnectionId connection, wire::Message message) { on_message(connection, std::move(message)); }

void Daemon::on_relayed_closed(node::ConnectionId connection) { on_closed(connection); }

void Daemon::on_room(node::ConnectionId connection) {
  logs_->wake(connection);
  execs_->wake(connection);
}

}  // namespace dtrain::daemon
