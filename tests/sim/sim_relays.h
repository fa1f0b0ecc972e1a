// Streams between the agents of world cluster, for what agents ask each other themselves (packages, checkpoints) and what they pass on of
// their users (plan), and the packages that hosts have. Streams keep the order of what they carry and bear short cuts of the network, which
// hold up what is on its way; they break when a cut lasts, when an agent ends, and in the busy part now and then. What a stream does about
// single lost messages is shown elsewhere (relay::StreamEnd).
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
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

  // Of a job with a package: looks whether that is here, and tells of it later. Meanwhile it may come.
  void perform(std::size_t host, const node::Stage& e);
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
  bool replied(std::size_t host, const node::Reply& e);  // false: it is for no stream of another agent
  void agent_ends(std::size_t host);

  void uploaded(std::size_t host, const std::string& digest) { blobs_[host].insert(digest); }
  bool has(std::size_t host, const std::string& digest) { return blobs_[host].contains(digest); }

 private:
  struct Stream {
    std::size_t opener = 0, other = 0;
    node::OpenRelay open;
    std::uint64_t number = 0;
    node::ConnectionId accepted = 0;                  // at the other; 0: not yet
    std::deque<std::optional<wire::Message>> pieces;  // on their way to the opener, one hop each; none: here it breaks
    std::optional<Instant> cut_since;                 // while they wait for the network
  };
  using Streams = std::list<Stream>;
  void later(std::size_t host, Duration after, node::Event event);
  void send(Streams::iterator s, std::string bytes, std::uint64_t offset);
  Streams::iterator of_accepted(std::size_t host, node::ConnectionId connection);
  void answer(Streams::iterator s, std::optional<wire::Message> message);
  void open(std::uint64_t number);
  void pass_on(std::uint64_t number);
  void arrives(Streams::iterator s, wire::Message message);
  Streams::iterator of_number(std::uint64_t number);
  bool cut(const Stream& s) const;
  Duration upto(Duration most);
  void end(Streams::iterator s, node::RelayEnded::How how, Error error, Duration after);

  ClusterWorld& world_;
  Rng rng_;
  Streams streams_;
  std::uint64_t numbers_ = 0;
  std::map<std::size_t, std::set<std::string>> blobs_;
  std::map<std::pair<std::size_t, node::ConnectionId>, std::string> partial_;
};

}  // namespace dtrain::sim
