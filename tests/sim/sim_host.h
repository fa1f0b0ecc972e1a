// One host of world cluster: its agent (the real Node), disk, clock, processes and its view of the checkpoints. It
// reports events to Node and performs Node's effects.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/checker.h"
#include "tests/sim/timeline.h"

namespace dtrain::sim {

inline constexpr Duration kReplyTime = 1ms;  // of an agent

class ClusterWorld;

class SimHost final : public HostView {
 public:
  SimHost(ClusterWorld& world, std::size_t number, std::shared_ptr<SimCheckpoints::Files> files);

  void start_agent();
  void post(node::Event event);  // to the agent, if there is one
  void kill_agent(Duration back_after);
  void reboot(Duration back_after);
  // In order: the agent announces its stop, tasks have that long to end, and the host comes back after that.
  void stop(Duration tasks_have, Duration back_after);
  void pause_agent(Duration length);
  // Until come_back(), whatever else happens to it. `host_too`: nothing runs there meanwhile.
  void go_away(bool host_too);
  void come_back();
  void set_knows(std::uint32_t version) { knows_ = version; }  // of its program, from its next start on
  // For a host that is away: what the agent and the shims wrote, and its own checkpoints, are lost. It comes back
  // under another id.
  void lose_disk();
  bool away() const { return away_; }
  bool agent_runs() const { return node_ != nullptr && !paused_; }
  void disturbed_until(Instant until) { undisturbed_since_ = std::max(undisturbed_since_, until); }

  void tick();

  SimRunner& tasks() { return *runner_; }
  SimDisk& storage() { return *disk_; }
  SimCheckpoints& files() { return *checkpoints_; }
  HostClock& clock() { return clock_; }
  std::size_t number() const { return number_; }
  std::string id() const;  // as a member
  bool votes_in(const wire::Configuration& configuration) const;

  // HostView.
  const std::string& name() const override { return name_; }
  const SimRunner& runner() const override { return *runner_; }
  const SimDisk& disk() const override { return *disk_; }
  std::uint64_t lives() const override { return life_; }
  const node::Node* node() const override { return node_.get(); }
  std::uint64_t ledger_index() const override;
  bool of_older_history() const override;
  std::uint32_t knows() const override { return knows_; }
  std::unique_ptr<node::Node> replayed() const override;
  Instant undisturbed_since() const override;

 private:
  void step(const node::Event& event);
  void plan_tick();  // after whatever may change when the agent wishes to be called
  void perform(const node::Effect& effect);
  std::string answer_of(const node::Reply& reply);
  void soon(node::Event event, Duration after = kReplyTime);
  void run_host_hook(const node::RunHook& e);
  void agent_lost(bool host_too, Duration back_after);
  void end_agent(bool host_too);
  std::unique_ptr<node::Node> make_node() const;
  node::NodeOptions node_options() const;
  node::Started facts() const;
  node::MemberStart member_start() const;
  SimRunner::Observer observer();

  ClusterWorld& world_;
  const std::size_t number_;
  const std::string name_;
  Rng hooks_;  // how long they take, and how they end
  HostClock clock_;
  std::unique_ptr<SimDisk> disk_;
  std::unique_ptr<SimRunner> runner_;
  std::unique_ptr<SimCheckpoints> checkpoints_;
  std::unique_ptr<node::Node> node_;
  CheckerList checkers_;
  std::deque<node::Event> held_;  // while the agent is paused
  std::vector<node::Effect> effects_;
  std::string first_list_;     // of jobs, that the agent gave; kept where that is to be broken
  std::string member_record_;  // on the disk
  MemberId cluster_;           // whose messages the links let in
  std::uint64_t life_ = 0, boot_ = 1, agent_starts_ = 0, disks_ = 1;
  Instant undisturbed_since_{}, last_tick_{};
  std::uint32_t knows_ = cluster::kNewestVersion;
  std::uint32_t ticks_in_place_ = 0;
  bool paused_ = false, stepping_ = false, away_ = false, down_ = false;

  friend class ClusterWorld;
};

}  // namespace dtrain::sim
