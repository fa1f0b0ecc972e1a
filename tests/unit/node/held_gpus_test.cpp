// What becomes of GPUs that a process outside of all tasks still holds after their task's end.
#include <gmock/gmock.h>

#include "common/node/gpu_reclaim.h"
#include "tests/unit/node/working_town.h"

namespace dtrain::node {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class HeldGpus : public WorkingTown {
 protected:
  HeldGpus() {
    for (House* house : houses) {
      town.kill(*house);
      ++house->started.life;
      std::int32_t minor = 0;
      for (Gpu& gpu : house->started.facts.gpus) {
        gpu.vendor = "nvidia";
        gpu.minor = minor++;
      }
      house->start();
      town.run_for(1s);
    }
    town.run_for(15s);
    answer_ = [this](House& house, const Effect& effect) {
      const auto* look = std::get_if<FindGpuHolders>(&effect);
      if (look == nullptr) return;
      ++looks_;
      if (!unanswered_.empty()) unanswered_.push_back(look->token);
      else house.give(GpuHoldersFound{look->token, holders_});
    };
  }
  // One task on n1 that has both GPUs; then its end.
  void run_and_end() {
    job::JobSpec spec = generic("first", 1, 2);
    spec.roles["worker"].node_selector = {{"house", "n1"}};
    spec.policy.backoff_limit = 0;
    submit(spec);
    work();
    ASSERT_THAT(where("first"), HasSubstr("@n1/Running"));
    end(*houses[0], {described("first").job.id, 1, {"worker", 0}}, 11);
    work(1s);
  }
  GpuHolder holder(std::uint32_t uid, Instant began = {}, bool in_task = false) {
    return {houses[0]->started.facts.gpus[1].pci, 4711, uid, "python3", began, in_task};
  }
  // Its agent, with what its shims say.
  void restart(House& house, std::vector<task::FoundShim> shims = {}) {
    ++house.started.life;
    house.started.shims = std::move(shims);
    house.start();
    town.run_for(3s);
  }
  std::size_t starts(House& house) {
    return static_cast<std::size_t>(
        std::ranges::count_if(house.effects, [](const Effect& e) { return std::holds_alternative<StartAttempt>(e); }));
  }
  std::string state() { return described("first").job.state; }
  std::string unfit() { return houses[1]->nodes("n1").at(0).unfit; }

  Result<std::vector<GpuHolder>> holders_ = std::vector<GpuHolder>();
  int looks_ = 0;
  std::vector<std::uint64_t> unanswered_;  // looks, from the first that is put here on
};

TEST_F(HeldGpus, AreFreeAtOnceWhereNobodyHoldsThem) {
  run_and_end();
  EXPECT_EQ(looks_, 1);
  EXPECT_EQ(state(), "Failed");
  EXPECT_EQ(houses[0]->status().gpus.free, 6u);
  EXPECT_THAT(houses[0]->started.task_records, IsEmpty());
}

TEST_F(HeldGpus, TheEndIsNotToldWhileTheyMayStillBeLetGo) {
  holders_ = std::vector{holder(1000)};
  run_and_end();
  work(5s);
  EXPECT_GT(looks_, 5);
  EXPECT_EQ(houses[0]->status().gpus.free, 4u) << "nobody else's yet";
  holders_ = std::vector<GpuHolder>();
  work(1s);
  EXPECT_EQ(state(), "Failed");
  EXPECT_EQ(houses[0]->status().gpus.free, 6u);
  EXPECT_EQ(unfit(), "");
}

TEST_F(HeldGpus, ThenTheHostIsGivenNothingAndEverybodyHearsWho) {
  holders_ = std::vector{holder(1000)};
  run_and_end();
  work(kReclaimPatience + 2s);
  EXPECT_EQ(state(), "Failed") << "the job goes on";
  EXPECT_THAT(unfit(), HasSubstr("process 4711 (python3 of somebody) holds GPU " + houses[0]->started.facts.gpus[1].pci +
                                 " after the end of first/worker-0"));
  EXPECT_EQ(houses[0]->log.count("gpu.held"), 1u);
  submit(generic("others", 6, 1));
  work();
  EXPECT_FALSE(any_on("others", "n1")) << where("others");
  holders_ = std::vector<GpuHolder>();
  work(kHeldLook + 1s);
  EXPECT_EQ(unfit(), "");
  EXPECT_EQ(houses[0]->log.count("gpu.released"), 1u);
  work();
  EXPECT_TRUE(any_on("others", "n1")) << where("others");
}

TEST_F(HeldGpus, ServicesAndOtherTasksAreNoCulprits) {
  holders_ = std::vector{holder(0), holder(999), holder(1000, {}, true)};
  run_and_end();
  EXPECT_EQ(looks_, 1);
  EXPECT_EQ(state(), "Failed");
  EXPECT_EQ(houses[0]->status().gpus.free, 6u);
}

// That cannot be known: the job goes on, and nothing is held against the host.
TEST_F(HeldGpus, WhatCannotBeLookedAtIsBelievedToBeFree) {
  holders_ = fail(ErrorCode::io, "could not list the processes of this host");
  run_and_end();
  EXPECT_EQ(houses[0]->status().gpus.free, 4u);
  work(kReclaimPatience + 2s);
  EXPECT_EQ(state(), "Failed");
  EXPECT_EQ(unfit(), "");
  EXPECT_EQ(houses[0]->log.count("gpu.holders-unknown"), 1u);
}

// A health check that passes says nothing of GPUs.
TEST_F(HeldGpus, ReasonsOfBothKindsStandSideBySide) {
  holders_ = std::vector{holder(1000)};
  run_and_end();
  houses[0]->give(HostChecked{{1, 0, "", "no scratch\n"}});
  work(kReclaimPatience + 2s);
  EXPECT_THAT(unfit(), HasSubstr("health check ended with 1: no scratch; process 4711"));
  houses[0]->give(HostChecked{{0, 0, "", ""}});
  work(1s);
  EXPECT_THAT(unfit(), ::testing::StartsWith("process 4711"));
}

TEST_F(HeldGpus, ANewLifeOfTheAgentKnowsFromItsFirstMoment) {
  holders_ = std::vector{holder(1000)};
  run_and_end();
  work(kReclaimPatience + 2s);
  const std::string why = unfit();
  ASSERT_THAT(why, HasSubstr("process 4711"));
  town.kill(*houses[0]);
  restart(*houses[0]);
  EXPECT_EQ(houses[0]->nodes("n1").at(0).unfit, why);
  submit(generic("others", 6, 1));
  work(12s);
  EXPECT_FALSE(any_on("others", "n1")) << where("others");
  EXPECT_EQ(unfit(), why);
  holders_ = std::vector<GpuHolder>();
  work(kHeldLook + 1s);
  EXPECT_EQ(unfit(), "");
  EXPECT_EQ(houses[0]->log.count("gpu.released"), 1u);
  work();
  EXPECT_TRUE(any_on("others", "n1")) << where("others");
}

TEST_F(HeldGpus, ANewLifeLooksAfterATaskWhoseEndWasNotToldYet) {
  holders_ = std::vector{holder(1000)};
  run_and_end();
  work(5s);
  town.kill(*houses[0]);
  EXPECT_THAT(houses[0]->started.task_records, SizeIs(1));
  restart(*houses[0]);
  work(kReclaimPatience - 5s);
  EXPECT_EQ(unfit(), "") << "it is patient anew";
  EXPECT_EQ(houses[0]->status().gpus.free, 4u);
  work(7s);
  EXPECT_THAT(unfit(), HasSubstr("process 4711"));
  holders_ = std::vector<GpuHolder>();
  work(kHeldLook + 1s);
  EXPECT_EQ(houses[0]->status().gpus.free, 6u);
}

// Of a system account's own processes only those that began since the task did are culprits: a new life knows since when, too.
TEST_F(HeldGpus, ANewLifeKnowsSinceWhenATaskRan) {
  job::JobSpec spec = generic("first", 1, 2);
  spec.roles["worker"].node_selector = {{"house", "n1"}};
  wire::SubmitRequest submit;
  submit.spec = wire::encode(spec);
  ASSERT_TRUE(ask<wire::SubmitReply>(*houses[0], wire::MessageType::submit, submit, 999));
  work();
  ASSERT_THAT(where("first"), HasSubstr("@n1/Running"));
  holders_ = std::vector{holder(999, town.now.boot)};
  work();
  task::FoundShim shim;
  shim.id = {described("first").job.id, 1, {"worker", 0}};
  shim.shim_alive = shim.running = true;
  shim.attempt = attempts.at(shim.id);
  town.kill(*houses[0]);
  restart(*houses[0], {shim});
  end(*houses[0], shim.id, 0);
  work(kReclaimPatience + 2s);
  EXPECT_THAT(unfit(), HasSubstr("process 4711"));
}

// While no agent ran its host was given up, and the job began elsewhere: what its tree left here is found all the same.
TEST_F(HeldGpus, WhatRanOnAHostThatWasGivenUpIsLookedAfter) {
  submit(generic("first", 6, 1));
  work();
  ASSERT_TRUE(any_on("first", "n1"));
  std::vector<task::FoundShim> shims;
  for (const auto& [name, view] : tasks("first")) {
    if (view.node != "n1") continue;
    task::FoundShim shim;
    shim.id = {described("first").job.id, 1, {"worker", static_cast<std::uint32_t>(std::stoul(name.substr(7)))}};
    shim.shim_alive = shim.running = true;
    shim.attempt = 1;
    shims.push_back(shim);
  }
  ASSERT_EQ(shims.size(), 2u);
  town.kill(*houses[0]);
  work(30s);
  wire::ActionRequest cancel;
  cancel.action = wire::Action::cancel;
  cancel.job = "first";
  ASSERT_TRUE(ask<wire::Empty>(*houses[1], wire::MessageType::action, cancel, 1000));
  cancel.action = wire::Action::remove;
  work();
  ASSERT_TRUE(ask<wire::Empty>(*houses[1], wire::MessageType::action, cancel, 1000));
  work();
  holders_ = std::vector{holder(1000)};
  restart(*houses[0], shims);
  work(5s);
  EXPECT_GT(looks_, 3);
  job::JobSpec next = generic("next", 1, 2);
  next.roles["worker"].node_selector = {{"house", "n1"}};
  submit(next);
  work(kReclaimPatience + 5s);
  EXPECT_THAT(unfit(), HasSubstr("process 4711"));
  EXPECT_FALSE(any_on("next", "n1")) << where("next");
  holders_ = std::vector<GpuHolder>();
  work(kHeldLook + 5s);
  EXPECT_THAT(where("next"), HasSubstr("@n1/Running"));
}

TEST_F(HeldGpus, NothingOutlastsABoot) {
  holders_ = std::vector{holder(1000)};
  run_and_end();
  work(kReclaimPatience + 2s);
  town.kill(*houses[0]);
  houses[0]->started.facts.boot_id = "another";
  restart(*houses[0]);
  EXPECT_EQ(unfit(), "");
  EXPECT_THAT(houses[0]->started.task_records, IsEmpty());
}

TEST_F(HeldGpus, AnAttemptBeginsOnceItIsNotedWhatItHas) {
  houses[0]->hold_notes = true;
  job::JobSpec spec = generic("first", 1, 2);
  spec.roles["worker"].node_selector = {{"house", "n1"}};
  submit(spec);
  work();
  ASSERT_THAT(houses[0]->unwritten, SizeIs(1));
  EXPECT_EQ(starts(*houses[0]), 0u);
  houses[0]->give(Persisted{houses[0]->unwritten[0]});
  work(250ms);
  EXPECT_EQ(starts(*houses[0]), 1u);
}

TEST_F(HeldGpus, WhatIsFoundAfterTheDiskFailedChangesNothing) {
  unanswered_.push_back(0);
  run_and_end();
  ASSERT_THAT(unanswered_, SizeIs(2));
  houses[0]->give(PersistFailed{0, Error{ErrorCode::io, "could not write the ledger: no space", ""}});
  const std::size_t before = houses[0]->effects.size();
  houses[0]->give(GpuHoldersFound{unanswered_.back(), holders_});
  work();
  for (std::size_t i = before; i < houses[0]->effects.size(); ++i) EXPECT_FALSE(std::holds_alternative<Persist>(houses[0]->effects[i]));
}

// Two tasks that end together are looked at together, or one after the other.
TEST_F(HeldGpus, NeverTwoLooksAtATime) {
  job::JobSpec spec = generic("first", 2, 1);
  spec.roles["worker"].node_selector = {{"house", "n1"}};
  spec.policy.backoff_limit = 0;
  submit(spec);
  work();
  ASSERT_EQ(described("first").job.state, "Running") << where("first");
  unanswered_.push_back(0);
  const JobId id = described("first").job.id;
  end(*houses[0], {id, 1, {"worker", 0}}, 11);
  end(*houses[0], {id, 1, {"worker", 1}}, 11);
  work(5s);
  EXPECT_THAT(unanswered_, SizeIs(2)) << "one look";
  EXPECT_EQ(houses[0]->status().gpus.free, 4u);
  const std::uint64_t look = unanswered_.back();
  unanswered_.clear();
  houses[0]->give(GpuHoldersFound{look, holders_});
  work(2s);
  EXPECT_EQ(houses[0]->status().gpus.free, 6u);
  EXPECT_LE(looks_, 2);
}

}  // namespace
}  // namespace dtrain::node
