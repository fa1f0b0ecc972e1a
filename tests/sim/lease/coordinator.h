// The part of node::Coordinator and node::Leases that has to do with leases, in front of the small ledger of this world:
// keeps cluster::LeaseGrants in step with it, states that hosts are lost, and places successors.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/rng.h"
#include "common/cluster/lease_grants.h"
#include "tests/sim/lease/voter.h"

namespace dtrain::sim::lease {

enum class Keeps : std::uint8_t { lease, none, later };  // `later`: begins without, until the log has a second copy

struct Setting {  // of a run; drawn by its seed
  Duration lease = 10s, agent_grace = 20s;
  std::uint32_t hosts = 3;
  std::array<Keeps, kTasks> keeps{};
  bool in_place = false;  // a task that ends is begun again by its host; otherwise it is placed anew
  std::string broken_rule;
};

class Coordinator {
 public:
  struct Replaced {
    std::uint32_t task = 0;
    TaskRecord before, after;
  };

  // Between two looks at all hosts, and between two probes of each; how long a host may be silent.
  static constexpr Duration kLook = 250ms, kProbe = 1s, kDead = 4s;

  Coordinator(const Setting& setting, Voter& voter, Rng rng, Voter::Send send);

  // To be called after the voter has received or done something.
  void follow_voter(Instant now);
  void receive(Instant now, const Message& message);
  void tick(Instant now);
  Instant deadline() const { return active_ ? next_look_ : kNever; }

  bool active() const { return active_; }
  void move(Instant now, std::uint32_t task) { propose(now, Move{task}); }
  void forget(Instant now, Member member) { propose(now, HostLost{member, 0, false, true}); }
  void need_leases(Instant now) { propose(now, NeedLeases{}); }
  const cluster::LeaseCounters& counters() const { return grants_.counters(); }
  std::vector<Replaced> take_replaced() { return std::exchange(replaced_, {}); }

 private:
  enum class State : std::uint8_t { alive, down, dead };
  struct Host {  // by membership
    State state{};
    Instant heard{};
    Member member = 0;  // 0: not known
  };
  struct Away {
    Instant since{};
    Instant back{};  // not yet: Instant{}
  };
  static constexpr Duration kFresh = 2500ms, kDownGrace = 2s, kStaysBack = 10s;

  void begin(Instant now);
  void apply(Instant now);
  void propose(Instant now, Command command);
  void pump(Instant now);
  void follow(Instant now);
  void look_at_hosts(Instant now);
  Instant watch_hosts(Instant now);
  Instant over_at(Member member, const cluster::HostAway& away) const;
  void decide(Member member, bool decided);
  void consider(Instant now);
  std::optional<Member> target(Instant now, Member except);
  void settle(Instant now, const cluster::LeaseOutputs& out);
  Host& host(Slot slot) { return hosts_[slot - kCandidates]; }

  const Setting& setting_;
  Voter& voter_;
  Rng rng_;
  Voter::Send send_;
  cluster::LeaseGrants grants_;
  bool active_ = false;
  std::uint64_t term_ = 0, round_ = 0, voter_round_ = 0;
  Ledger applied_;
  std::deque<Command> waiting_;
  std::vector<Command> in_flight_;
  std::array<Generation, kTasks> told_{}, placing_{};  // what grants_ was told of; what was proposed
  std::set<Member> losing_;
  std::map<Member, Away> away_;
  std::vector<Host> hosts_;
  std::vector<Replaced> replaced_;
  Instant next_look_{}, next_probe_{};
};

}  // namespace dtrain::sim::lease
