// The daemon's side of relays: gives them access to clients' connections, the links, and the streams of logs and execs.
#include <algorithm>

#include "agent/dtraind/daemon.h"

namespace dtrain::daemon {

void Daemon::to_peer(const node::RelayPeer& peer, const wire::RelayMessage& message) {
  if (links_) links_->send(peer, message);
}

void Daemon::tell(node::Event event) { queue(std::move(event)); }

std::size_t Daemon::client_room(node::ConnectionId client) {
  if (!node::is_own(client)) return control_ ? control_->room(client) : 0;
  const auto queued = upload_bytes_.find(client);
  return kUploadQueueBytes - (queued == upload_bytes_.end() ? 0 : std::min(kUploadQueueBytes, queued->second));
}

void Daemon::to_client(node::ConnectionId client, const wire::Message& message) {
  if (node::is_own(client)) return queue(node::RelayAnswered{client, wire::encode(message)});
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
  blob_streams_->wake(connection);
  checkpoint_streams_->wake(connection);
}

}  // namespace dtrain::daemon
