// Streams between the agents of world cluster, for what agents ask each other themselves (packages, checkpoints) and what they pass on of their
// users (plan), and the packages that hosts have. Streams keep the order of what they carry; they break when an agent ends, and in
// the busy part now and then.
// Cuts of the network do not reach them: what a stream does about lost messages is shown elsewhere (relay::StreamEnd).
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "common/base/rng.h"
#include "common/node/effect.h"
#include "common/node/event.h"
#include "common/wire/control.h"

namespace dtrain::sim {

class ClusterWorld;

class SimRelays {
 public:
  SimRelays(ClusterWorld& world, Rng rng) : world_(world), rng_(rng) {}

  void perform(std::size_t host, const node::OpenRelay& e);
  void perform(std::size_t host, const node::CloseRelay& e);
  void perform(std::size_t host, const node::AcceptRelay& e);
  void perform(std::size_t host, const node::SendBlob& e);
  void perform(std::size_t host, const node::WriteBlob& e);
  void perform(std::size_t host, const node::DropBlob& e);
  void perform(std::size_t host, const node::FindBlob& e);
  void perform(std::size_t host, const node::SendCheckpoint& e);
  void perform(std::size_t host, const node::WriteCheckpoint& e);
  void perform(std::size_t host, const node::DropCheckpoint& e);
  void replied(std::size_t host, const node::Reply& e);
  void agent_ends(std::size_t host);

  void uploaded(std::size_t host, const std::string& digest) { blobs_[host].insert(digest); }
  bool has(std::size_t host, const std::string& digest) { return blobs_[host].contains(digest); }

 private:
  struct Stream {
    std::size_t opener = 0, other = 0;
    node::OpenRelay open;
    node::ConnectionId accepted = 0;  // at the other; 0: not yet
  };
  using Streams = std::list<Stream>;
  void later(std::size_t host, Duration after, node::Event event);
  void send(Streams::iterator s, std::string bytes, std::uint64_t offset);
  Streams::iterator of_accepted(std::size_t host, node::ConnectionId connection);
  void answer(Streams::iterator s, wire::Message message);
  void end(Streams::iterator s, node::RelayEnded::How how, Error error, Duration after);

  ClusterWorld& world_;
  Rng rng_;
  Streams streams_;
  std::map<std::size_t, std::set<std::string>> blobs_;
  std::map<std::pair<std::size_t, node::ConnectionId>, std::string> partial_;
};

}  // namespace dtrain::sim
