// World `formation`: founders that are to begin one cluster, their disks, the network between them, an operator, and
// faults. The logs that begin are not run: a log counts as working when a majority of its voters has it and can
// communicate.
//
// A run has two parts: busy (machines start, faults happen) and calm (everything is healed: all must come to belong
// to one cluster).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "tests/sim/council/links.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/formation/checker.h"
#include "tests/sim/formation/faults.h"
#include "tests/sim/slab.h"
#include "tests/sim/violation.h"

namespace dtrain::sim::formation {

struct RunOptions {
  std::uint64_t seed = 1;
  std::uint32_t nodes = 3;
  Duration duration = 60s;
  FaultSet faults = FaultSet::all();
  std::string broken_rule;
  bool trace = false;
};

struct Figures {
  std::uint64_t events = 0, messages = 0, encoded = 0, persists = 0, restarts = 0, wiped = 0, disk_errors = 0, without = 0;
  std::uint64_t proposed = 0, withdrawn = 0, began = 0, abandoned = 0, admitted = 0;
  void join(const Figures& run);
  nlohmann::json json() const;
};

struct RunResult {
  std::optional<Violation> violation;
  std::uint64_t trace_hash = 0;
  Duration covered{0};
  Figures figures;
};

class FormationWorld final : public WorldView {
 public:
  static constexpr std::uint32_t kMostNodes = wire::kMostFounders;
  static constexpr Duration kRest = 45s;  // calm before all must belong to one cluster: late machines have come by then
  static constexpr Duration kShortest = 60s;

  explicit FormationWorld(RunOptions options);
  RunResult run();
  std::vector<std::string> checker_names() const;

  // For faults and tests. Everything happens now.
  void start(Slot slot);
  void kill(Slot slot);
  void wipe(Slot slot);  // while it does not run
  bool may_wipe(Slot slot) const;
  void fail_disk(Slot slot) { machines_[slot].fail_next_persist = true; }
  void heal_disk(Slot slot);
  void slow_disk(Slot slot, Duration most) { machines_[slot].disk_takes = most; }
  void form_without_the_missing(Slot slot);  // an operator's word on this machine
  void cut(Slot from, Slot to, bool on) { links_.cut(from, to, on); }
  void after(Duration delay, std::function<void()> action);
  void note(const std::string& text);
  council::Links& links() { return links_; }
  void set_ghosts(bool on) { ghosts_ = on; }
  Instant now() const { return now_; }
  void run_until(Instant end);
  bool disk_failed(Slot slot) const { return machines_[slot].disk_failed; }

  // WorldView.
  Slot slots() const override { return static_cast<Slot>(machines_.size()); }
  const Disk& disk(Slot slot) const override { return machines_[slot].disk; }
  bool runs(Slot slot) const override { return machines_[slot].core != nullptr; }
  std::string status(Slot slot) const override { return runs(slot) ? machines_[slot].core->status() : "does not run"; }
  void violation(std::string_view invariant, std::string what) override;

 private:
  enum class What : std::uint8_t { action };
  struct Machine {
    Disk disk;
    std::unique_ptr<core::Formation> core;
    std::optional<core::Persist> under_way;
    std::optional<core::Join> join;
    Instant tick_at = kNever;
    std::uint32_t process = 0, ticks_in_place = 0;
    bool fail_next_persist = false, persist_fails = false, disk_failed = false;
    Duration disk_takes{0};
  };

  void step(Slot slot, const core::Input& input);
  void persist(Slot slot, core::Persist&& persist);
  void on_persisted(Slot slot);
  void store(Slot slot, const core::Persist& persist);
  void send(Slot slot, core::Send&& send);
  void deliver(Slot from, const MemberId& sender, Slot to, const core::FormationReport& report, Duration delay);
  core::FormationReport through_codec(const core::FormationReport& report);
  void schedule(Slot slot);
  void watch_logs();
  bool has_log(Slot slot, const core::Founding& founding) const;
  bool works_for(Slot slot, const core::Founding& founding) const;
  void mix(std::uint64_t value);
  Duration upto(Duration most) { return Duration(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(most.count()) + 1))); }

  RunOptions options_;
  Rng rng_;
  core::FormationOptions core_options_;
  EventQueueOf<What> queue_;
  Slab<std::function<void()>> actions_;
  council::Links links_;
  Instant now_{};
  std::deque<Machine> machines_;
  std::vector<std::string> names_;
  CheckerList checkers_;
  Figures figures_;
  std::optional<Violation> violation_;
  std::uint64_t hash_ = 0x9e3779b97f4a7c15ull, ids_ = 0;
  Duration disk_usual_ = 1ms;
  bool ghosts_ = false, any_without_ = false;
};

}  // namespace dtrain::sim::formation
