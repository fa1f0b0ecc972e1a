// The daemon's side of relays: gives them access to the links, to Node, and to the streams of logs and execs.
#include <algorithm>

#include "agent/dtraind/daemon.h"

namespace dtrain::daemon {

void Daemon::to_peer(const node::RelayPeer& peer, const wire::RelayMessage& message) {
  if (links_) links_->send(peer, message);
}

void Daemon::tell(node::Event event) { queue(std::move(event)); }

std::size_t Daemon::NodeSink::room(node::ConnectionId own) {
  const auto queued = d.upload_bytes_.find(own);
  return kUploadQueueBytes - (queued == d.upload_bytes_.end() ? 0 : std::min(kUploadQueueBytes, queued->second));
}

void Daemon::NodeSink::send(node::ConnectionId own, const wire::Message& message) {
  d.queue(node::RelayAnswered{own, wire::encode(message)});
}

void Daemon::on_relayed(node::ConnectionId connection, wire::Message message) { serve(connection, std::move(message)); }

void Daemon::on_relayed_closed(node::ConnectionId connection) { on_closed(connection); }

void Daemon::on_room(node::ConnectionId connection) {
  logs_->wake(connection);
  execs_->wake(connection);
  blob_streams_->wake(connection);
  checkpoint_streams_->wake(connection);
}

}  // namespace dtrain::daemon
