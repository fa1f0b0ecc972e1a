// World `membership`: the Memberships of a few to ten thousand agents, the network between them, and faults.
//
// A run has two parts: busy (members come and go, faults happen) and calm (everything is healed: all must converge).
// Small clusters begin with joins through seeds; large ones (kPreloadFrom) with a table that every member has already.
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
#include "tests/sim/membership/checker.h"
#include "tests/sim/membership/event_queue.h"
#include "tests/sim/membership/faults.h"
#include "tests/sim/membership/processors.h"
#include "tests/sim/membership/sim_member.h"
#include "tests/sim/membership/sim_network.h"
#include "tests/sim/violation.h"

namespace dtrain::sim::membership {

struct RunOptions {
  std::uint64_t seed = 1;
  std::uint32_t nodes = 20;
  Duration duration = 120s;
  FaultSet faults = FaultSet::all();
  std::string broken_rule;
  bool trace = false;
  std::uint32_t processors = 0;  // shared by all hosts; 0: each has its own
};

struct RunResult {
  std::optional<Violation> violation;
  std::uint64_t trace_hash = 0, events = 0;
  Duration covered{0};
  Figures figures;
};

class MembershipWorld final : public WorldView, private NetworkUser {
 public:
  static constexpr std::uint32_t kPreloadFrom = 201;
  static constexpr std::uint32_t kMostNodes = 10'000;
  static constexpr Duration kSettle = 12s;    // joins, before the first fault
  static constexpr Duration kConverge = 50s;  // calm before everything must be at rest
  static constexpr Duration kShortest = 75s;

  explicit MembershipWorld(RunOptions options);
  ~MembershipWorld() override;
  RunResult run();
  std::vector<std::string> checker_names() const {
    std::vector<std::string> names;
    for (const auto& checker : checkers_) names.emplace_back(checker->name());
    return names;
  }

  // For faults, tests and measurements. Everything happens now.
  std::uint32_t add_member(std::uint32_t cluster, std::string name,
                           std::vector<std::string> seeds);  // does not run yet
  void start(std::uint32_t slot);
  void kill(std::uint32_t slot);    // SIGKILL
  void vanish(std::uint32_t slot);  // the host, without a word
  void stop(std::uint32_t slot);    // SIGTERM
  void leave(std::uint32_t slot);
  void pause(std::uint32_t slot, Duration length);
  void resume_all();
  void move(std::uint32_t slot, std::uint32_t address);  // while nothing runs there
  std::uint32_t fresh_address() { return next_address_++; }
  void tell_fact(std::uint32_t slot, wire::FactKey key, std::string value);
  void trouble(std::uint32_t slot, bool begins);  // something of its own is wrong from now on, or no longer
  void cut_begins();
  void cut_ends(bool parts);  // parts: all count as disturbed until now
  void after(Duration delay, std::function<void()> action);
  void note(std::string text);
  SimMember& member(std::uint32_t slot) { return members_[slot]; }
  SimNetwork& network() { return network_; }
  const Processors& processors() const { return processors_; }
  std::uint32_t running(std::uint32_t cluster) const;
  void begin_joining();  // options.nodes members, within three seconds
  void run_until(Instant end);
  const std::optional<Violation>& broken() const { return violation_; }

  // WorldView.
  Instant now() const override { return now_; }
  std::uint32_t slots() const override { return static_cast<std::uint32_t>(members_.size()); }
  const Truth& truth(std::uint32_t slot) const override { return members_[slot].truth; }
  std::vector<std::uint32_t> slots_of(const MemberId& id) const override;
  bool together(std::uint32_t a, std::uint32_t b) const override { return network_.cuts().same_group(a, b); }
  bool lossless() const override { return network_.loss() == 0; }
  bool network_whole() const override { return cuts_ == 0 && now_ - whole_since_ >= Truth::kFit; }
  std::optional<gossip::MemberView> seen(std::uint32_t slot, const MemberId& id) const override;
  void each_seen(std::uint32_t slot, const std::function<void(const gossip::MemberView&)>& visit) const override;
  std::size_t memory_bytes(std::uint32_t slot) const override;
  Figures& figures() override { return figures_; }
  void violation(std::string_view invariant, std::string what) override;

 private:
  void begin_preloaded();
  std::unique_ptr<gossip::Membership> make_core(std::uint32_t slot);
  void end(std::uint32_t slot, End how);
  void received(std::uint32_t slot, Message&& message) override;
  void happened(std::uint32_t slot, const gossip::Input& input) override { step(slot, input); }
  void step(std::uint32_t slot, const gossip::Input& input);
  void perform(std::uint32_t slot);
  void schedule(std::uint32_t slot);
  void happen(const Event& event);
  void on_tick(const Event& event);
  void resolve(std::uint32_t slot);
  void through_codec(gossip::Send& send);
  std::optional<wire::Drop> refused(std::uint32_t slot, const Message& message);
  void sample_later();
  void facts_later();
  void measure_merge(Instant healed, std::uint64_t version);
  void mix(std::uint64_t value);
  void line(std::uint32_t slot, std::string_view mark, const std::string& text);

  RunOptions options_;
  Rng rng_;
  EventQueue queue_;
  Processors processors_;
  SimNetwork network_;
  Instant now_{};
  std::unique_ptr<Log> log_;
  std::deque<SimMember> members_;
  std::map<MemberId, std::vector<std::uint32_t>> slots_by_id_;
  std::map<std::string, std::uint32_t> slots_by_host_;
  CheckerList checkers_;
  gossip::Outputs out_;
  const gossip::Membership* preloaded_ = nullptr;  // what starting members know already
  Slab<std::function<void()>> actions_;
  Figures figures_;
  std::optional<Violation> violation_;
  std::uint64_t hash_ = 0x9e3779b97f4a7c15ull, changes_of_members_ = 0;
  std::uint32_t next_address_ = 1, encode_one_in_ = 16;
  int cuts_ = 0;
  bool busy_ = true, over_ = false;
  Instant whole_since_{}, cut_since_{}, steady_since_{};
};

}  // namespace dtrain::sim::membership
