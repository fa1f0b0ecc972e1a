// The network between the hosts of world cluster. Gossip uses the connections of world membership, which behave like
// TCP and libzmq. Messages about the log use the links of world council, which lose, delay and repeat: the log must
// tolerate more than the real network does. Partitions and cuts apply to both.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "common/node/effect.h"
#include "common/node/event.h"
#include "tests/sim/council/links.h"
#include "tests/sim/membership/sim_network.h"
#include "tests/sim/timeline.h"

namespace dtrain::sim {

inline constexpr std::size_t kMostHosts = 200;
using HostSet = std::bitset<kMostHosts>;

class ClusterNetwork final : private membership::NetworkUser {
 public:
  using Deliver = std::function<void(std::size_t host, node::Event)>;
  using Complain = std::function<void(std::string_view invariant, std::string what)>;
  ClusterNetwork(Timeline& timeline, Rng rng, Deliver deliver, Complain complain);

  static wire::Endpoint endpoint(std::size_t host);
  static std::size_t host_at(const wire::Endpoint& endpoint);  // kMostHosts or more: it belongs to no host
  void add_host();
  void agent_starts(std::size_t host);
  void agent_ends(std::size_t host, bool host_too);

  void perform(std::size_t host, const gossip::Send& send);
  void perform(std::size_t host, const gossip::KeepLinks& links) { network_.keep(slot(host), links); }
  void perform(std::size_t host, const gossip::CheckGone& check) { network_.check_gone(slot(host), check.to); }
  void perform(std::size_t host, const gossip::ResolveSeeds&);  // everybody begins at the seeds: the first hosts
  void perform(std::size_t host, const node::SendLog& send);
  void perform(std::size_t host, std::size_t founder, const node::SendFormation& send);
  void set_seeds(std::size_t seeds) { seeds_ = seeds; }

  bool cut(std::size_t a, std::size_t b) const { return blocked(a, b) || blocked(b, a); }  // no stream between them makes progress

  Instant next() const { return queue_.next(); }
  void run_next();

  // Faults. Each cut is ended by the same call with `on` false; cuts may overlap.
  void mute(std::size_t host, bool on);     // its messages are lost
  void isolate(std::size_t host, bool on);  // in both directions
  // Separates these hosts from the others; does nothing if there are Cuts::kPartitions already.
  void part(const HostSet& group, bool on);
  bool blocked(std::size_t from, std::size_t to) const { return network_.cuts().blocked(slot(from), slot(to)); }
  void host_silent(std::size_t host) { network_.set_host_up(slot(host), false); }  // until its agent starts
  void set_loss(std::uint32_t per_mille);
  void set_duplicates(std::uint32_t per_mille);
  void set_delays(bool on) { links_.set_delays(on); }
  void heal();  // ends loss, copies and delays; cuts end by themselves

 private:
  static std::uint32_t slot(std::size_t host) { return static_cast<std::uint32_t>(host); }
  void received(std::uint32_t slot, membership::Message&& message) override;
  void happened(std::uint32_t slot, const gossip::Input& input) override;
  council::Links::Fate fate(std::size_t from, std::size_t to);
  void deliver_log(std::size_t to, const node::SendLog& send, Duration after);
  bool crosses_as_bytes() { return ++messages_ % kCodedEvery == 0; }

  static constexpr std::uint64_t kCodedEvery = 16;  // every such message is written, read and compared

  Timeline& timeline_;
  Deliver deliver_;
  Complain complain_;
  membership::EventQueue queue_;
  membership::SimNetwork network_;
  council::Links links_;  // for loss, delays and copies alone
  std::size_t hosts_ = 0, seeds_ = 1;
  std::uint64_t messages_ = 0;
  std::array<HostSet, membership::Cuts::kPartitions> parts_{};  // none of the hosts: free
  std::vector<int> muted_;                                      // by host: how many faults mute it
};

}  // namespace dtrain::sim
