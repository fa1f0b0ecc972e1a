// World `lease`: hosts with a shim for each exclusive task, three candidates of which one coordinates, the network
// between them, and faults. Tasks are placed, crash, are restarted in place, moved, and placed anew when their host
// is lost.
//
// A run has three parts: busy (faults happen), calm (everything is healed: every task must run), and an end in which
// one host, or one agent, is lost for good: a successor must come when it may, and not before.
#pragma once

#include <array>
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
#include "tests/sim/lease/faults.h"
#include "tests/sim/lease/sim_host.h"
#include "tests/sim/slab.h"
#include "tests/sim/violation.h"

namespace dtrain::sim::lease {

struct RunOptions {
  std::uint64_t seed = 1;
  std::uint32_t nodes = 3;  // hosts
  Duration duration = 80s;
  FaultSet faults = FaultSet::all();
  std::string broken_rule;
  bool trace = false;
};

struct Figures {
  std::uint64_t events = 0, messages = 0, rounds = 0, granted = 0, superseded = 0, placed = 0, by_lease = 0, by_grace = 0, by_exit = 0,
                by_boot = 0, starts = 0, freezes = 0, thaws = 0, kills = 0, unfenced = 0, guard_freezes = 0, excused = 0, refused = 0;
  void join(const Figures& run);
  nlohmann::json json() const;
};

struct RunResult {
  std::optional<Violation> violation;
  std::uint64_t trace_hash = 0;
  Duration covered{0};
  Figures figures;
};

class LeaseWorld final : public WorldView, public Surroundings {
 public:
  static constexpr std::uint32_t kMostNodes = 8;
  static constexpr Duration kRest = 20s;  // calm before every task must run
  static constexpr Duration kEnd = 26s;   // for the successor of what is lost for good
  static constexpr Duration kShortest = 60s;

  explicit LeaseWorld(RunOptions options);
  RunResult run();
  std::vector<std::string> checker_names() const;

  // For faults.
  SimHost& host(Slot slot) { return *hosts_[slot - kCandidates]; }
  Slot machines() const { return kCandidates + setting_.hosts; }
  council::Links& links() { return links_; }
  void cut(Slot from, Slot to, bool on) { links_.cut(from, to, on); }
  // Its answers to appends take between half of it and all of it.
  void slow_replies(Slot candidate, Duration most) { candidates_[candidate].slow_replies = most; }
  void slow_disk(Slot candidate, Duration takes) { candidates_[candidate].voter->slow_disk(takes); }
  void pause_candidate(Slot candidate, bool on);
  void drift_candidate(Slot candidate, std::int32_t per_million);
  std::optional<Slot> coordinating() const;
  void move(std::uint32_t task);
  void need_leases();
  void note(const char* what, Slot machine, std::uint64_t detail) override;

  // WorldView and Surroundings.
  Instant now() const override { return now_; }
  void violation(std::string_view invariant, std::string what) override;
  void after(Duration delay, std::function<void()> action) override;
  void send(Message message) override;
  const CheckerList& checkers() const override { return checkers_; }

 private:
  enum class What : std::uint8_t { action, deliver };
  struct Candidate {
    SimClock clock;
    std::optional<Voter> voter;
    std::optional<Coordinator> coordinator;
    bool paused = false;
    Duration slow_replies{0};
    std::deque<Message> inbox;
    Instant tick_at = kNever;
  };

  void deliver(const Message& message);
  void hear(Slot slot, const Message& message);
  void tick(Slot slot);
  void settle(Slot slot);
  void run_until(Instant end);
  void lose_for_good();
  void mix(std::uint64_t value);
  Duration upto(Duration most) { return Duration(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(most.count()) + 1))); }

  RunOptions options_;
  Rng rng_;
  Setting setting_;
  EventQueueOf<What> queue_;
  Slab<std::function<void()>> actions_;
  Slab<Message> messages_;
  council::Links links_;
  Duration base_{};  // what a message takes; at most twice that when all is well
  Instant now_{};
  std::array<Candidate, kCandidates> candidates_;
  std::vector<std::unique_ptr<SimHost>> hosts_;
  CheckerList checkers_;
  Figures figures_;
  std::optional<Violation> violation_;
  std::uint64_t hash_ = 0x9e3779b97f4a7c15ull;
};

}  // namespace dtrain::sim::lease
