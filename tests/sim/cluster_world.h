// World `cluster`: one host, one agent (the real Node), its disk, tasks and users, under faults.
//
// A run has three parts: busy (users act, faults happen), calm (faults are over, tasks end well: everything must
// converge), end (every job is cancelled: nothing may run).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/node/node.h"
#include "tests/sim/checker.h"
#include "tests/sim/faults.h"
#include "tests/sim/trace.h"
#include "tests/sim/violation.h"

namespace dtrain::sim {

struct RunOptions {
  std::uint64_t seed = 1;
  Duration duration = 300s;
  FaultSet faults = FaultSet::all();
  std::string broken_rule;             // "": none
  bool trace = false;
};

struct RunResult {
  std::optional<Violation> violation;
  std::uint64_t trace_hash = 0, events = 0, jobs = 0, attempts = 0, recoveries = 0, lives = 0, commits = 0;
  Duration covered{0};
};

// Rules that --break knows here: those of Node (Options::broken_rule), then promises of the world itself.
std::vector<std::string> cluster_rules();

class ClusterWorld final : public WorldView {
 public:
  static constexpr Duration kConverge = 90s;    // calm before everything must be at rest
  static constexpr Duration kEnd = 30s;         // after the last cancel
  static constexpr Duration kShortest = 150s;

  explicit ClusterWorld(RunOptions options);
  ~ClusterWorld() override;
  RunResult run();
  std::vector<std::string> checker_names() const {
    std::vector<std::string> names;
    for (const auto& checker : checkers_) names.emplace_back(checker->name());
    return names;
  }

  // For scenarios: the world without its random users and faults.
  void start_agent();
  void run_until(Instant end);
  SimClient& users() { return *client_; }
  SimRunner& host() { return *runner_; }
  JobBook& known() { return book_; }
  void kill_agent(Duration back_after);
  void reboot(Duration back_after);
  void pause_agent(Duration length);
  SimDisk& storage() { return *disk_; }
  HostClock& clock() { return clock_; }
  Timeline& timeline() { return timeline_; }
  SimCheckpoints& files() { return *checkpoints_; }
  void begin_calm();
  void disk_disturbed_until(Instant until) { undisturbed_since_ = std::max(undisturbed_since_, until); }
  void note(std::string_view text) { trace_.note(timeline_.now(), text); }
  const std::optional<Violation>& broken() const { return violation_; }
  bool agent_runs() const { return node_ != nullptr && !paused_; }

  // WorldView.
  Instant now() const override { return timeline_.now(); }
  const SimRunner& runner() const override { return *runner_; }
  const SimDisk& disk() const override { return *disk_; }
  const SimCheckpoints& checkpoints() const override { return *checkpoints_; }
  const SimClient& client() const override { return *client_; }
  const JobBook& book() const override { return book_; }
  const node::Node* node() const override { return node_.get(); }
  std::unique_ptr<node::Node> replayed() const override;
  Instant undisturbed_since() const override { return undisturbed_since_; }
  bool calm() const override { return calm_; }
  void violation(std::string_view invariant, std::string what) override;

 private:
  void post(node::Event event);
  void step(const node::Event& event);
  void perform(const node::Effect& effect);
  void agent_lost(bool host_too, Duration back_after);
  void observe_later();
  void act_later();
  node::Started facts() const;
  node::Options node_options() const;
  bool breaks(std::string_view rule) const { return options_.broken_rule == rule; }

  RunOptions options_;
  Rng rng_;
  Timeline timeline_;
  HostClock clock_;
  Trace trace_;
  JobBook book_;
  std::unique_ptr<SimDisk> disk_;
  std::unique_ptr<SimRunner> runner_;
  std::unique_ptr<SimCheckpoints> checkpoints_;
  std::unique_ptr<SimClient> client_;
  std::unique_ptr<Log> log_;
  std::unique_ptr<node::Node> node_;
  CheckerList checkers_;
  std::deque<node::Event> held_;        // while the agent is paused
  std::vector<node::Effect> effects_;
  std::optional<Violation> violation_;
  std::uint64_t life_ = 0, boot_ = 1, agent_starts_ = 0;
  std::uint64_t attempts_ = 0, recoveries_ = 0;
  std::map<JobId, Generation> generations_;
  Instant undisturbed_since_{}, busy_until_{};
  Instant last_tick_{};
  std::uint32_t ticks_in_place_ = 0;
  bool paused_ = false, calm_ = false, stepping_ = false, users_act_ = false;
};

}  // namespace dtrain::sim
