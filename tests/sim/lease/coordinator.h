// The minimal coordinator around cluster::LeaseGrants: receives reports, probes hosts, gives orders, and places a
// successor when it may.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/rng.h"
#include "common/cluster/lease_grants.h"
#include "tests/sim/lease/voter.h"

namespace dtrain::sim::lease {

struct Setting {  // of a run; drawn by its seed
  Duration lease = 10s, agent_grace = 20s;
  std::uint32_t hosts = 3;
  std::array<bool, kTasks> exempt{};
  bool replace_on_exit = false;  // the coordinator wants a successor elsewhere, while the host restarts in place
  std::string broken_rule;
};

class Coordinator {
 public:
  struct Replaced {
    std::uint32_t task = 0;
    TaskRecord before, after;
    cluster::Replaceable::Why why{};
  };

  Coordinator(const Setting& setting, Voter& voter, Rng rng, Voter::Send send);

  // To be called after the voter has received or done something.
  void follow_voter(Instant now);
  void receive(Instant now, const Message& message);
  void tick(Instant now);
  Instant deadline() const { return active_ ? next_look_ : kNever; }

  bool active() const { return active_; }
  void move(Instant now, std::uint32_t task);
  const cluster::LeaseCounters& counters() const { return grants_.counters(); }
  std::vector<Replaced> take_replaced() { return std::exchange(replaced_, {}); }

 private:
  using State = cluster::HostSeen::State;
  struct Host {
    cluster::HostSeen seen;
    Instant heard{};
    std::uint32_t boot = 0;  // 0: not known
    Fence fence;
    std::uint64_t revision = 0;
  };
  static constexpr Duration kLook = 250ms, kProbe = 1s, kDead = 4s, kFresh = 2500ms;

  void begin(Instant now);
  void apply(Instant now);
  void place(std::uint32_t task);
  void consider(Instant now, std::uint32_t task);
  std::optional<Slot> target(Instant now, Slot except);
  void look_at_hosts(Instant now);
  void order(Slot host);
  void settle(Instant now, const cluster::LeaseOutputs& out);
  Host& host(Slot slot) { return hosts_[slot - kCandidates]; }

  const Setting& setting_;
  Voter& voter_;
  Rng rng_;
  Voter::Send send_;
  cluster::LeaseGrants grants_;
  bool active_ = false;
  std::uint64_t term_ = 0, round_ = 0, voter_round_ = 0;
  std::optional<Replaced> proposed_;
  Ledger applied_;
  std::array<bool, kTasks> moving_{}, died_{};
  std::vector<Host> hosts_;
  std::vector<Replaced> replaced_;
  Instant next_look_{}, next_probe_{};
};

}  // namespace dtrain::sim::lease
