// Exclusive tasks on several hosts: how their shims' questions are answered, and when a successor is placed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/base/lease.h"
#include "tests/unit/node/two_nodes.h"

namespace dtrain::node {
namespace {

using ::testing::HasSubstr;
using wire::MessageType;

class LeasesTest : public ::testing::Test {
 protected:
  void begin(std::size_t hosts, const std::string& broken_rule = "") {
    for (std::size_t i = 1; i <= hosts; ++i) add(broken_rule);
    for (House* house : houses) {
      house->start();
      town.run_for(1s);
    }
    town.run_for(15s);
  }
  House& add(const std::string& broken_rule = "") {
    houses.push_back(&town.add("n" + std::to_string(houses.size() + 1)));
    House& house = *houses.back();
    house.started.facts.task_address = house.address().ip;
    house.options.broken_rule = broken_rule;
    house.options.agent_grace = 60s;
    return house;
  }
  // One keeper on each host.
  void submit(std::uint32_t keepers, job::OnDisconnect on_disconnect = job::OnDisconnect::by_class) {
    job::JobSpec spec;
    spec.name = "j";
    spec.framework = job::Framework::generic;
    spec.policy.placement = job::Placement::spread;
    job::RoleSpec role;
    role.replicas = role.min_replicas = keepers;
    role.command = {"true"};
    role.exclusive = true;
    role.on_disconnect = on_disconnect;
    spec.roles["keeper"] = role;
    wire::SubmitRequest submit;
    submit.spec = wire::encode(spec);
    (void)houses[0]->ask<wire::SubmitReply>(MessageType::submit, submit, 1000);
    town.run_for(1s);
  }
  template <class E>
  static std::vector<E> all(const House& house) {
    std::vector<E> found;
    for (const Effect& effect : house.effects)
      if (const auto* e = std::get_if<E>(&effect)) found.push_back(*e);
    return found;
  }
  // What is staged is launched, and waits for its first grant.
  void bring_up() {
    for (House* house : houses)
      for (const Stage& stage : all<Stage>(*house)) {
        house->give(Staged{stage.id, std::string("/work")});
        house->give(ShimUp{stage.id, {}});
      }
    town.run_for(1s);
  }
  AssignmentId keeper_of(House& house) { return all<Stage>(house).at(0).id; }
  // The question is asked; what is answered within that time.
  std::optional<AnswerLease> ask(House& house, std::uint64_t nonce, Duration within = 100ms) {
    house.give(LeaseAsked{keeper_of(house), 1, nonce});
    town.run_for(within);
    return answer(house, nonce);
  }
  static std::optional<AnswerLease> answer(const House& house, std::uint64_t nonce) {
    for (const AnswerLease& given : all<AnswerLease>(house))
      if (given.nonce == nonce) return given;
    return std::nullopt;
  }
  void all_run() {
    std::uint64_t nonce = 100;
    for (House* house : houses) {
      const auto granted = ask(*house, ++nonce);
      ASSERT_TRUE(granted && granted->granted) << house->address().ip;
      house->give(AttemptStarted{keeper_of(*house), 1, 4711, town.now.wall});
    }
    town.run_for(1s);
  }
  // Their shims ask on and on, but for those of `silent`.
  void pass(Duration time, const House* silent) {
    for (const Instant end = town.now.boot + time; town.now.boot < end;) {
      for (House* house : houses)
        if (house != silent && house->runs() && town.now.boot >= asks_) house->give(LeaseAsked{keeper_of(*house), 1, ++nonce_});
      if (town.now.boot >= asks_) asks_ = town.now.boot + 2s;
      town.run_for(std::min<Duration>(10ms, end - town.now.boot));
    }
  }
  void all_ask_now() {
    asks_ = {};
    pass(10ms, nullptr);
  }
  void until_started_elsewhere(const House& from, Duration most) {
    const auto began = [&] {
      std::size_t stages = 0;
      for (House* house : houses) stages += house == &from ? 0 : all<Stage>(*house).size();
      return stages >= houses.size();
    };
    for (const Instant end = town.now.boot + most; town.now.boot < end && !began();) pass(10ms, &from);
    EXPECT_TRUE(began());
  }
  wire::JobDescription described(House& house) {
    return house.ask<wire::JobDescription>(MessageType::describe_job, wire::JobName{"j"}).value_or(wire::JobDescription{});
  }

  Town town;
  std::vector<House*> houses;
  Instant asks_{};
  std::uint64_t nonce_ = 10'000;
};

TEST_F(LeasesTest, WhereverItRunsItsShimIsAnswered) {
  begin(4);
  submit(4);
  bring_up();
  std::uint64_t nonce = 10;
  for (House* house : houses) {
    const auto launched = all<LaunchShim>(*house);
    ASSERT_EQ(launched.size(), 1u);
    EXPECT_EQ(launched[0].spec.lease, 10s);
    EXPECT_EQ(launched[0].spec.epoch, houses[0]->status().coordinator->epoch);
    EXPECT_EQ(all<StartAttempt>(*house).size(), 1u);
    const auto granted = ask(*house, ++nonce);
    ASSERT_TRUE(granted) << house->address().ip;
    EXPECT_TRUE(granted->granted);
    EXPECT_EQ(granted->epoch, launched[0].spec.epoch);
  }
}

TEST_F(LeasesTest, AClusterOfOneHostHasNone) {
  begin(1);
  submit(1);
  bring_up();
  EXPECT_EQ(all<LaunchShim>(*houses[0]).at(0).spec.lease, 0s);
  EXPECT_TRUE(all<RequireLease>(*houses[0]).empty());
  houses[0]->give(AttemptStarted{keeper_of(*houses[0]), 1, 4711, town.now.wall});
  // Until there is a second one.
  House& second = add();
  second.start();
  town.run_for(10s);
  const auto required = all<RequireLease>(*houses[0]);
  ASSERT_EQ(required.size(), 1u);
  EXPECT_EQ(required[0].lease, 10s);
  const auto granted = ask(*houses[0], 7);
  EXPECT_TRUE(granted && granted->granted);
}

TEST_F(LeasesTest, WhatIsKeptRunningHasNone) {
  begin(2);
  submit(2, job::OnDisconnect::keep);
  bring_up();
  for (House* house : houses) {
    EXPECT_EQ(all<LaunchShim>(*house).at(0).spec.lease, 0s);
    EXPECT_TRUE(all<RequireLease>(*house).empty());
  }
}

TEST_F(LeasesTest, WhoHearsNobodyGrantsNothing) {
  for (const char* broken : {"", "fresh-round"}) {
    town = Town();
    houses.clear();
    begin(3, broken);
    submit(3);
    bring_up();
    all_run();
    town.cut_off = houses[0];
    EXPECT_EQ(ask(*houses[0], 11, 20s).has_value(), *broken != '\0') << broken;
    EXPECT_FALSE(houses[0]->status().coordinator && houses[0]->status().coordinator->node == "n1" && !houses[0]->status().stale);
    town.cut_off = nullptr;
  }
}

TEST_F(LeasesTest, AHostThatIsCutOffIsReplacedWhenItsLeaseIsCountedOut) {
  begin(4);
  submit(4);
  bring_up();
  all_run();
  House& lost = *houses[3];
  const AssignmentId id = keeper_of(lost);
  const Instant granted = town.now.boot;
  ASSERT_TRUE(ask(lost, 51)->granted);
  town.cut_off = &lost;
  town.run_for(8s);
  EXPECT_THAT(described(*houses[0]).waiting_for, HasSubstr("keeper-3 may run there until its lease is over"));
  until_started_elsewhere(lost, 30s);
  EXPECT_GE(town.now.boot - granted, counted_lease(10s));
  EXPECT_LE(town.now.boot - granted, counted_lease(10s) + 2s);
  // Frozen meanwhile, it comes back: superseded, and ended.
  lost.give(LeaseFroze{id, 1, true});
  lost.give(LeaseAsked{id, 1, 52});
  town.run_for(1s);
  EXPECT_FALSE(answer(lost, 52));
  town.cut_off = nullptr;
  lost.give(LeaseAsked{id, 1, 53});
  town.run_for(10s);
  const auto ends = all<KillTask>(lost);
  EXPECT_TRUE(std::ranges::any_of(ends, [&](const KillTask& kill) { return kill.id == id; }));
  const auto told = answer(lost, 53);
  EXPECT_TRUE(!told || !told->granted);
}

std::size_t starts(const std::vector<StartAttempt>& all, AttemptNumber attempt) {
  return static_cast<std::size_t>(std::ranges::count(all, attempt, &StartAttempt::attempt));
}

// keeper-3 is on the host that is cut off; the one of n1 dies meanwhile.
TEST_F(LeasesTest, WhileOneMustBeFrozenTheOthersRestartsWait) {
  for (const bool comes_back : {true, false}) {
    town = Town();
    houses.clear();
    asks_ = {};
    begin(4);
    submit(4);
    bring_up();
    all_run();
    House& lost = *houses[3];
    pass(2s, nullptr);
    all_ask_now();
    town.cut_off = &lost;
    const Instant cut = town.now.boot;
    pass(9500ms, &lost);
    const auto waits = described(*houses[0]);
    EXPECT_TRUE(std::ranges::any_of(waits.events, [](const auto& e) { return e.type == "job.stands-still"; }));
    job::Exit killed;
    killed.signal = 9;
    houses[0]->give(AttemptExited{keeper_of(*houses[0]), 1, killed});
    pass(200ms, &lost);
    EXPECT_EQ(starts(all<StartAttempt>(*houses[0]), 2), 0u);
    if (comes_back) {
      town.cut_off = nullptr;
      pass(300ms, nullptr);
      all_ask_now();
      pass(5s, nullptr);
    } else {
      until_started_elsewhere(lost, 30s);
      EXPECT_GE(town.now.boot - cut, 10s);
    }
    EXPECT_EQ(starts(all<StartAttempt>(*houses[0]), 2), 1u) << comes_back;
  }
}

// Where nobody coordinates the hosts that are left know it by themselves; who only lacks an election goes on.
TEST_F(LeasesTest, WithoutACoordinatorRestartsWaitOnceLeasesAreOver) {
  for (const bool soon : {true, false}) {
    town = Town();
    houses.clear();
    asks_ = {};
    begin(3);
    submit(3);
    bring_up();
    all_run();
    pass(2s, nullptr);
    House& alone = *houses[2];
    town.cut_off = &alone;
    pass(soon ? 3s : 12s, &alone);
    job::Exit killed;
    killed.signal = 9;
    alone.give(AttemptExited{keeper_of(alone), 1, killed});
    town.run_for(1s);
    EXPECT_EQ(starts(all<StartAttempt>(alone), 2), soon ? 1u : 0u);
  }
}

TEST_F(LeasesTest, AnAgentThatIsGoneHasItsGrace) {
  begin(4);
  submit(4);
  bring_up();
  all_run();
  const Instant gone = town.now.boot;
  town.kill(*houses[3]);
  until_started_elsewhere(*houses[3], 120s);
  EXPECT_GE(town.now.boot - gone, 60s);
  EXPECT_LE(town.now.boot - gone, 65s);
}

// What a predecessor granted just before is counted, too.
TEST_F(LeasesTest, ANewCoordinatorCountsFromItsElection) {
  begin(3);
  submit(3);
  bring_up();
  all_run();
  town.cut_off = houses[0];
  const Instant cut = town.now.boot;
  until_started_elsewhere(*houses[0], 60s);
  EXPECT_GE(town.now.boot - cut, counted_lease(10s));
}

TEST_F(LeasesTest, OnlyAnAnswerToItsQuestionPasses) {
  begin(2);
  submit(2);
  bring_up();
  House& house = *houses[1];
  const AssignmentId id = keeper_of(house);
  const std::uint64_t epoch = houses[0]->status().coordinator->epoch;
  wire::PeerHeader header;
  header.sender = *MemberId::parse(houses[0]->started.facts.id);
  const auto told = [&](std::uint64_t nonce, std::uint64_t of) {
    const std::size_t before = all<AnswerLease>(house).size();
    house.give(LogReceived{header, wire::LeaseAnswer{id, nonce, true, of}});
    return all<AnswerLease>(house).size() - before;
  };
  town.cut_off = &house;
  house.give(LeaseAsked{id, 1, 61});
  EXPECT_EQ(told(62, epoch), 0u);
  EXPECT_EQ(told(61, epoch - 1), 0u) << "of a coordinator that was deposed";
  EXPECT_EQ(told(61, epoch), 1u);
}

}  // namespace
}  // namespace dtrain::node
