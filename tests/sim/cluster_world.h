// World `cluster`: hosts, each with its agent (the real Node), disk and tasks; the network between them; users who
// ask any of them; faults.
//
// A run has three parts: busy (users act, faults happen), calm (faults are over, tasks end well: everything must
// converge), end (every job is cancelled: nothing may run).
//
// With many hosts (more than kFewHosts) users come later, jobs may have many tasks, and faults of single hosts are
// more frequent: see many().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "common/node/node.h"
#include "tests/sim/checker.h"
#include "tests/sim/cluster_network.h"
#include "tests/sim/faults.h"
#include "tests/sim/quorum_loss.h"
#include "tests/sim/sim_host.h"
#include "tests/sim/sim_relays.h"
#include "tests/sim/trace.h"
#include "tests/sim/upgrades.h"
#include "tests/sim/violation.h"

namespace dtrain::sim {

inline constexpr std::size_t kFewHosts = 9;

struct RunOptions {
  std::uint64_t seed = 1;
  std::size_t nodes = 1;  // at most kMostHosts
  Duration duration = 300s;
  FaultSet faults = FaultSet::all();
  std::string broken_rule;  // "": none
  bool trace = false;
  bool copies_compare = true;  // copies of the ledger that differ are found and mended (node/copy_check.h)
  bool whole_log = false;      // no copy of the log is ever made shorter by a snapshot
  std::string without;         // this checker: another is to be seen noticing what it notices first
};

struct RunResult {
  std::optional<Violation> violation;
  std::uint64_t trace_hash = 0, events = 0, jobs = 0, attempts = 0, recoveries = 0, lives = 0, commits = 0;
  Duration covered{0};
};

// The rules that --break knows here: those of Node (NodeOptions::broken_rule), then promises of the world itself.
std::vector<std::string> cluster_rules();

class ClusterWorld final : public WorldView {
 public:
  static constexpr Duration kConverge = 90s;  // calm before everything must be at rest
  static constexpr Duration kEnd = 30s;       // after the last cancel
  static constexpr Duration kShortest = 150s;
  static constexpr Duration kHooksRecover = 70s;

  explicit ClusterWorld(RunOptions options);
  ~ClusterWorld() override;
  RunResult run();
  std::vector<std::string> checker_names() const;

  // For scenarios: the world without its random users and faults.
  void start_agents();
  void run_until(Instant end);
  SimHost& host(std::size_t number = 0) { return *hosts_[number]; }
  SimClient& users() { return *client_; }
  JobBook& known() { return book_; }
  Timeline& timeline() { return timeline_; }
  ClusterNetwork& network() { return *network_; }
  // An operator asks for it, of any agent.
  void drain(std::size_t host, bool on, Duration within);
  void begin_calm();
  // Of several hosts: one of them, or what is between them, is not what it should be until then.
  void cluster_disturbed_until(Instant until);
  void note(std::size_t host, std::string_view text);
  // The newest that a disk has; of its log, the newest entry that an answer shows to users to be there.
  std::uint64_t history() const { return history_; }
  std::uint64_t acknowledged() const { return acknowledged_; }
  void users_rest(bool on) { users_rest_ = on; }  // nor does anybody look
  const std::optional<Violation>& broken() const { return violation_; }

  // WorldView.
  bool many() const { return options_.nodes > kFewHosts; }
  Instant now() const override { return timeline_.now(); }
  std::size_t hosts() const override { return hosts_.size(); }
  // How many of the first hosts begin the cluster together; 0: the first host alone does.
  std::size_t founders() const { return founders_; }
  const HostView& host_view(std::size_t number) const override { return *hosts_[number]; }
  const SimCheckpoints& checkpoints(std::size_t host) const override { return *hosts_[host]->checkpoints_; }
  Duration restore_wait() const override { return restore_wait_; }
  bool host_hooks() const override { return host_hooks_; }
  const SimClient& client() const override { return *client_; }
  SimClient& client() { return *client_; }
  const JobBook& book() const override { return book_; }
  bool calm() const override { return calm_; }
  bool all_reported() const override;
  Duration takes_effect() const override;
  const cluster::Ledger& ledger() const override;
  void violation(std::string_view invariant, std::string what) override;

 private:
  friend class SimHost;
  // Independent streams of one seed, so that a change in one part of the world does not reshuffle the others.
  Rng stream(std::uint64_t which) const { return Rng(options_.seed * 0x9e3779b97f4a7c15ull + which); }
  Instant undisturbed_since() const { return undisturbed_since_; }
  Duration lease() const { return lease_; }
  // A job that fails is run again, or its tasks elsewhere, while there is time.
  bool hooks_may_fail() const { return options_.faults.has(Fault::stage_error) && now() + kHooksRecover < busy_until_; }
  std::string node_rule() const;  // to break in Node; "": none
  std::size_t newest_host() const;
  void tell_checkers(const std::function<void(Checker&)>& tell);  // all there are
  void count_start(const SimShim& shim);
  // For tasks that cannot go on without another.
  void watch_start(const SimShim& shim) { watched_away_.erase(shim.spec.id); }
  void watch_end(const SimShim& shim);
  void begin_forming();
  Duration forming_takes() const;
  void entered(std::size_t host, const MemberId& cluster);
  void look_at_history(std::size_t host);
  void told(const SentRequest& sent, const wire::Message& message);
  void observe_later();
  void act_later();
  void undrain_later();
  bool breaks(std::string_view rule) const { return options_.broken_rule == rule; }

  RunOptions options_;
  Rng rng_;
  Timeline timeline_;
  Rng chosen_;  // whom users ask
  Trace trace_;
  JobBook book_;
  std::unique_ptr<SimClient> client_;
  std::unique_ptr<Log> log_;
  std::unique_ptr<ClusterNetwork> network_;  // of several hosts
  CheckerList checkers_;
  SimRelays relays_;
  std::vector<std::unique_ptr<SimHost>> hosts_;
  std::vector<Instant> ticks_;  // by host: when its agent wishes to be called
  std::optional<Violation> violation_;
  std::uint64_t attempts_ = 0, recoveries_ = 0;
  std::map<JobId, Generation> generations_;
  std::set<AssignmentId> watched_away_;  // ended without success, and does not run; kept where tasks watch others
  Instant undisturbed_since_{}, busy_until_{};
  std::size_t founders_ = 0;
  Duration lease_ = 10s, restore_wait_ = 10min;
  bool host_hooks_ = false;        // all hosts have a prolog and an epilog
  bool own_directories_ = false;   // each host its own; else they share them
  MemberId cluster_;               // that the hosts belong to
  std::set<std::size_t> drained_;  // as far as the operator knows
  std::uint64_t history_ = 1, acknowledged_ = 0;
  std::unique_ptr<QuorumLoss> quorum_loss_;
  std::unique_ptr<Upgrades> upgrades_;
  bool calm_ = false, users_act_ = false, users_rest_ = false, tasks_leave_ = false;
};

}  // namespace dtrain::sim
