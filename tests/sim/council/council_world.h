// World `council`: the Rafts of 1 to 5 voters, their disks, the network between them, clients, an operator, and
// faults.
//
// A run has two parts: busy (clients ask, faults happen) and calm (everything is healed: there must be a leader
// within 5 s, and all replicas must become equal).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "tests/sim/council/checker.h"
#include "tests/sim/council/clients.h"
#include "tests/sim/council/event.h"
#include "tests/sim/council/faults.h"
#include "tests/sim/council/figures.h"
#include "tests/sim/council/links.h"
#include "tests/sim/council/sim_machine.h"
#include "tests/sim/slab.h"
#include "tests/sim/violation.h"

namespace dtrain::sim::council {

struct RunOptions {
  std::uint64_t seed = 1;
  std::uint32_t nodes = 5;
  Duration duration = 120s;
  FaultSet faults = FaultSet::all();
  std::string broken_rule;
  bool trace = false;
};

struct RunResult {
  std::optional<Violation> violation;
  std::uint64_t trace_hash = 0;
  Duration covered{0};
  Figures figures;
};

class CouncilWorld final : public WorldView, private ClientsUser {
 public:
  static constexpr std::uint32_t kMostNodes = 15;
  static constexpr Duration kSettle = 2s;  // the first leader, before the first fault
  static constexpr Duration kRest = 20s;   // calm before everything must be equal
  static constexpr Duration kShortest = 40s;

  explicit CouncilWorld(RunOptions options);
  ~CouncilWorld() override;
  RunResult run();
  std::vector<std::string> checker_names() const {
    std::vector<std::string> names;
    for (const auto& checker : checkers_) names.emplace_back(checker->name());
    return names;
  }

  // For faults, the operator and tests. Everything happens now.
  Slot add_machine();  // with an empty disk; does not run yet
  void start(Slot slot);
  void kill(Slot slot);
  void reboot(Slot slot);  // killed, if it runs; the boot clock starts anew, a failed disk works again
  void pause(Slot slot, Duration length);
  void resume_all();
  void wipe(Slot slot);  // the disk is lost: a new id. While it does not run
  void take_copy(Slot slot);
  bool roll_back(Slot slot);  // to the copy taken; while it does not run. False: there is none
  void recover(Slot slot);    // recover-quorum, whether it runs or not
  void fail_disk(Slot slot) { machines_[slot].fail_next_persist = true; }
  void in_next_persist(Slot slot, std::function<void()> action) { machines_[slot].in_next_persist = std::move(action); }
  // Has failed in this boot, also if the process was not told yet.
  bool disk_failed(Slot slot) const { return machines_[slot].truth.disk_failed || machines_[slot].persist_fails; }
  void heal_disk(Slot slot);  // also what is under way succeeds
  void slow_disk(Slot slot, Duration most) { machines_[slot].disk_takes = most; }
  void drift(Slot slot, std::int32_t per_million);
  void cut(Slot from, Slot to, bool on);             // counted; one direction
  void tell(Slot slot, const raft::Input& input);    // when it runs and is not stopped
  void send_state(Slot leader, const MemberId& to);  // likewise
  void change(Slot slot, raft::ChangeKind kind,
              const MemberId& member);  // asked of this member, as by the operator
  void after(Duration delay, std::function<void()> action);
  void note(std::string text);
  Links& links() { return links_; }
  Figures& figures() { return figures_; }
  const std::optional<Violation>& broken() const { return violation_; }
  void run_until(Instant end);

  std::vector<raft::FollowerView> followers(Slot slot) const;  // as this member sees them
  std::optional<Slot> ready_leader() const;                    // of the newest history and the highest term

  // WorldView.
  Instant now() const override { return now_; }
  Slot slots() const override { return static_cast<Slot>(machines_.size()); }
  const Truth& truth(Slot slot) const override { return machines_[slot].truth; }
  const raft::Raft* core(Slot slot) const override { return machines_[slot].core.get(); }
  const raft::Stored& disk(Slot slot) const override { return machines_[slot].disk.stored; }
  const RegisterMachine& machine(Slot slot) const override { return machines_[slot].machine; }
  std::optional<Slot> slot_of(const MemberId& id) const override;
  bool persists(Slot slot) const override { return machines_[slot].under_way.has_value(); }
  raft::Configuration durable_configuration(Slot slot) const override;
  bool linked(Slot a, Slot b) const override { return links_.both_ways(a, b); }
  const raft::RaftOptions& options() const override { return raft_options_; }
  bool only_stalls() const override { return only_stalls_; }
  bool any_disk_lost() const override { return any_disk_lost_; }
  bool busy() const override { return busy_; }
  void violation(std::string_view invariant, std::string what) override;

 private:
  void draw_options();
  void found();
  void end(Slot slot);
  void write(Slot slot);
  void recovered(Slot slot, const raft::History& old);
  void judge_histories();
  bool later_life_is_known(const SimMachine& machine) const;
  void step(Slot slot, const raft::Input& input);
  void perform(Slot slot);
  void apply(Slot slot);
  void persist(Slot slot, raft::Persist&& persist);
  void on_persisted(const Event& event);
  void on_message(const Event& event);
  void on_tick(const Event& event);
  void on_resume(const Event& event);
  void handle(const Event& event);
  void send(Slot slot, raft::Send&& send);
  void through_codec(raft::Send& send);
  void on_ask(const Event& event);
  void on_snapshot(const Event& event);
  void answer(Slot slot, const raft::Answer& answer);
  void done(Slot slot, std::uint32_t attempt, const Reading& reading);
  void serve_reads(Slot slot);
  void schedule(Slot slot);
  void drop(const Event& event);  // what it carried is not wanted any more
  void sample_later();
  void watch_reach();
  void mix(std::uint64_t value);
  void line(Slot slot, std::string_view mark, const std::string& text) const;
  Duration upto(Duration most) { return Duration(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(most.count()) + 1))); }

  // ClientsUser.
  void begun(const Operation& operation) override;
  void give(const raft::History& by, const Operation& operation, const Reading& reading) override;

  RunOptions options_;
  Rng rng_;
  raft::RaftOptions raft_options_;
  raft::Rules rules_;
  EventQueue queue_;
  Links links_;
  Instant now_{};
  std::unique_ptr<Log> log_;
  std::deque<SimMachine> machines_;
  std::map<MemberId, Slot> slots_;  // of the disks there are
  Clients clients_;
  CheckerList checkers_;
  raft::Outputs out_;
  Slab<Flight> flights_;
  Slab<std::function<void()>> actions_;
  Figures figures_;
  std::optional<Violation> violation_;
  std::uint64_t hash_ = 0x9e3779b97f4a7c15ull, ids_ = 0, window_ = 1000;
  std::uint32_t first_voters_ = 1;
  raft::History newest_;       // that recover-quorum began
  Duration disk_takes_ = 1ms;  // most, of a healthy disk
  bool busy_ = true, only_stalls_ = false, any_disk_lost_ = false;
};

}  // namespace dtrain::sim::council
