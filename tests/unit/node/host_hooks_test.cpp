// The prolog and the epilog of hosts, in a cluster of three.
#include "common/node/host_hooks.h"

#include <gmock/gmock.h>

#include "tests/unit/node/working_town.h"

namespace dtrain::node {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

job::Exit ended_with(std::int32_t code, std::string text = "") {
  job::Exit exit;
  exit.code = code;
  exit.stderr_tail = std::move(text);
  return exit;
}

class HostHooksTest : public WorkingTown {
 protected:
  explicit HostHooksTest(void (*prepare)(NodeOptions&) = [](NodeOptions& o) { o.prolog = "/p", o.epilog = "/e"; })
      : WorkingTown(NodeOptions{}.snapshot_every, prepare) {}

  // "n1 prolog j"
  void run_hook(House& house, const RunHook& hook) override {
    const std::string name = house.started.facts.name + " " + hook.env.at("DTRAIN_HOOK") + " " + hook.env.at("DTRAIN_JOB");
    ran.push_back(name);
    last = hook;
    if (held.contains(name)) return;
    const auto result = results.find(name);
    house.give(HookEnded{hook.token, result == results.end() ? job::Exit{} : result->second});
  }
  void act_on(const std::string& name, wire::Action action, bool force = false) {
    wire::ActionRequest request;
    request.action = action;
    request.job = name;
    request.force = force;
    ASSERT_TRUE(ask<wire::Empty>(*houses[0], wire::MessageType::action, request, 1000));
  }
  void restart(House& house) {
    ++house.started.life;
    house.started.shims.clear();
    for (const auto& [id, attempt] : attempts) {
      task::FoundShim shim;
      shim.id = id;
      shim.shim_alive = shim.running = on_house(house, id);
      shim.attempt = attempt;
      shim.pid = 100;
      if (shim.shim_alive) house.started.shims.push_back(shim);
    }
    house.start();
    town.run_for(3s);
  }
  bool on_house(House& house, const AssignmentId& id) {
    const auto views = tasks(job_of(id.job));
    const auto view = views.find(id.task.text());
    return view != views.end() && view->second.node == house.started.facts.name && view->second.state == "Running";
  }
  std::string job_of(JobId) { return "j"; }
  std::size_t count(const std::string& name) { return static_cast<std::size_t>(std::ranges::count(ran, name)); }
  std::size_t told(std::size_t at, const std::string& type) {
    std::size_t n = 0;
    for (const auto& event : houses[at]->events()) n += event.type == type;
    return n;
  }
  std::string unfit(std::size_t at) { return houses[at]->nodes("n" + std::to_string(at + 1)).at(0).unfit; }
  // The prolog of every host that launches something has ended before.
  void expect_order() {
    for (House* house : houses) {
      std::set<JobId> prepared;
      for (const Effect& effect : house->effects) {
        const auto* hook = std::get_if<RunHook>(&effect);
        if (hook != nullptr && hook->env.at("DTRAIN_HOOK") == "prolog") prepared.insert(std::stoull(hook->env.at("DTRAIN_JOB_ID")));
        if (hook != nullptr && hook->env.at("DTRAIN_HOOK") == "epilog") prepared.erase(std::stoull(hook->env.at("DTRAIN_JOB_ID")));
        const auto* stage = std::get_if<Stage>(&effect);
        EXPECT_TRUE(stage == nullptr || prepared.contains(stage->id.job));
      }
    }
  }

  std::vector<std::string> ran;
  RunHook last;
  std::map<std::string, job::Exit> results;
  std::set<std::string> held;  // do not end
};

TEST_F(HostHooksTest, EachRunsOncePerJobAndHost) {
  submit(generic("j", 6, 1));
  work(5s);
  EXPECT_THAT(described("j").job.state, "Running") << where("j");
  EXPECT_THAT(ran, ::testing::UnorderedElementsAre("n1 prolog j", "n2 prolog j", "n3 prolog j"));
  EXPECT_FALSE(last.user) << "the agent's own";
  EXPECT_EQ(last.limit, kHostHookTime);
  EXPECT_THAT(last.command, ElementsAre("/p"));
  const auto id = last.env.at("DTRAIN_JOB_ID");
  last.env.erase("DTRAIN_NODE");
  const std::map<std::string, std::string> wanted{{"DTRAIN_HOOK", "prolog"},
                                                  {"DTRAIN_JOB", "j"},
                                                  {"DTRAIN_JOB_ID", id},
                                                  {"DTRAIN_USER", "somebody"},
                                                  {"DTRAIN_GPUS", "0,1"},
                                                  {"LC_ALL", "C.UTF-8"},
                                                  {"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}};
  EXPECT_EQ(last.env, wanted);
  act_on("j", wire::Action::cancel);
  work(5s);
  EXPECT_EQ(ran.size(), 6u) << ::testing::PrintToString(ran);
  for (const char* host : {"n1", "n2", "n3"}) EXPECT_EQ(count(std::string(host) + " epilog j"), 1u);
  EXPECT_EQ(last.env.at("DTRAIN_GPUS"), "0,1");
  EXPECT_EQ(last.env.at("DTRAIN_HOOK"), "epilog");
  for (House* house : houses) EXPECT_THAT(house->started.task_records, IsEmpty());
  expect_order();
}

// The next life of its agent runs the epilog again: the note of it is still there.
TEST_F(HostHooksTest, AnEpilogThatEndsAfterTheDiskFailedChangesNothing) {
  held.insert("n2 epilog j");
  submit(generic("j", 6));
  work(5s);
  act_on("j", wire::Action::cancel);
  work(5s);
  std::uint64_t token = 0;
  for (const Effect& effect : houses[1]->effects)
    if (const auto* hook = std::get_if<RunHook>(&effect)) token = hook->token;  // the last one
  ASSERT_EQ(count("n2 epilog j"), 1u);
  const auto notes = houses[1]->started.task_records;
  ASSERT_FALSE(notes.empty());
  houses[1]->give(PersistFailed{0, Error{ErrorCode::io, "could not write the ledger: no space", ""}});
  const std::size_t before = houses[1]->effects.size();
  houses[1]->give(HookEnded{token, {}});
  for (std::size_t i = before; i < houses[1]->effects.size(); ++i) EXPECT_FALSE(std::holds_alternative<Persist>(houses[1]->effects[i]));
  EXPECT_EQ(houses[1]->started.task_records, notes);
}

TEST_F(HostHooksTest, AHostWhosePrologFailsIsLeftOutForThatJobAlone) {
  results["n2 prolog j"] = ended_with(3, "no scratch\nmore\n");
  submit(generic("j", 6));
  work(10s);
  EXPECT_EQ(described("j").job.state, "Running") << where("j");
  EXPECT_FALSE(any_on("j", "n2")) << where("j");
  EXPECT_EQ(count("n2 prolog j"), 1u);
  EXPECT_EQ(count("n2 epilog j"), 1u) << "it may have done half";
  EXPECT_EQ(count("n1 prolog j"), 1u) << "the next generation is here, too";
  EXPECT_EQ(count("n1 epilog j"), 0u);
  EXPECT_EQ(unfit(1), "");
  std::string said;
  for (const auto& event : houses[0]->events()) said += event.type + " " + event.reason + "\n";
  EXPECT_THAT(said, HasSubstr("task.stage-failed could not begin j on host n2: prolog ended with 3: no scratch; it is placed elsewhere"));
  EXPECT_EQ(described("j").job.restarts, 0u);
  submit(generic("other", 6));
  work(5s);
  EXPECT_TRUE(any_on("other", "n2")) << where("other");
}

TEST_F(HostHooksTest, AJobThatAllRefuseWaitsWithTheReasonAndIsTriedAgain) {
  for (const char* host : {"n1", "n2", "n3"}) results[std::string(host) + " prolog j"] = ended_with(3, "no scratch");
  submit(generic("j", 1));
  work(30s);
  EXPECT_THAT(described("j").waiting_for,
              HasSubstr("needs a host that takes this job, none of 3 hosts does now (n1 refused it: prolog ended "
                        "with 3: no scratch; n2 refused it: prolog ended with 3: no scratch; ...)"));
  EXPECT_EQ(ran.size(), 6u) << ::testing::PrintToString(ran);
  submit(generic("behind", 6));
  work(5s);
  EXPECT_EQ(described("behind").job.state, "Running") << "nobody waits behind it";
  results.clear();
  work(cluster::kRefusedFor);
  EXPECT_EQ(described("j").job.state, "Running");
}

TEST_F(HostHooksTest, ARestartForgetsWhoRefused) {
  for (const char* host : {"n1", "n2", "n3"}) results[std::string(host) + " prolog j"] = ended_with(3, "no scratch");
  submit(generic("j", 1));
  work(30s);
  results.clear();
  act_on("j", wire::Action::restart);
  work(5s);
  EXPECT_EQ(described("j").job.state, "Running") << described("j").waiting_for;
}

TEST_F(HostHooksTest, AnEpilogThatFailsKeepsNewTasksAwayUntilItSucceeds) {
  results["n2 epilog j"] = ended_with(4, "GPU 1 hangs\n");
  submit(generic("j", 3));
  work(5s);
  act_on("j", wire::Action::cancel);
  work(5s);
  const std::string why = "epilog of job j ended with 4: GPU 1 hangs";
  EXPECT_EQ(unfit(1), why);
  EXPECT_EQ(unfit(0), "");
  EXPECT_EQ(told(1, "host.sick"), 1u);
  houses[1]->give(HostChecked{{0, 0, "", ""}});
  houses[1]->give(HostChecked{{1, 0, "", "no disk"}});
  town.run_for(2s);
  EXPECT_EQ(unfit(1), "health check ended with 1: no disk; " + why);
  houses[1]->give(HostChecked{{0, 0, "", ""}});
  town.run_for(2s);
  EXPECT_EQ(unfit(1), why) << "a check that passes does not take it back";
  EXPECT_EQ(told(1, "host.well"), 0u);
  submit(generic("after", 6));
  work(5s);
  EXPECT_FALSE(any_on("after", "n2")) << where("after");
  const std::size_t before = count("n2 epilog j");
  work(2 * kEpilogAgainEvery);
  EXPECT_EQ(count("n2 epilog j"), before + 2);
  results.clear();
  work(kEpilogAgainEvery);
  EXPECT_EQ(unfit(1), "");
  EXPECT_EQ(told(1, "host.well"), 1u);
  EXPECT_THAT(houses[1]->started.task_records, ::testing::SizeIs(any_on("after", "n2") ? 1 : 0));
}

TEST_F(HostHooksTest, ANewLifeOfTheAgentKnowsOfAnEpilogThatFailed) {
  results["n2 epilog j"] = ended_with(4, "GPU 1 hangs\n");
  submit(generic("j", 3));
  work(5s);
  act_on("j", wire::Action::cancel);
  work(5s);
  const std::string why = unfit(1);
  ASSERT_THAT(why, HasSubstr("GPU 1 hangs"));
  town.kill(*houses[1]);
  attempts.clear();
  held.insert("n2 epilog j");
  restart(*houses[1]);
  work(5s);
  EXPECT_EQ(count("n2 epilog j"), 2u) << "it is tried again at once";
  EXPECT_EQ(unfit(1), why);
  houses[1]->give(HookEnded{last.token, {}});
  work(2s);
  EXPECT_EQ(unfit(1), "");
  EXPECT_EQ(told(1, "host.well"), 1u);
}

TEST_F(HostHooksTest, WithoutAnEpilogNothingIsOwedAnyMore) {
  results["n2 epilog j"] = ended_with(4, "GPU 1 hangs\n");
  submit(generic("j", 3));
  work(5s);
  act_on("j", wire::Action::cancel);
  work(5s);
  ASSERT_THAT(unfit(1), HasSubstr("GPU 1 hangs"));
  town.kill(*houses[1]);
  attempts.clear();
  houses[1]->options.epilog.clear();
  const std::size_t before = houses[1]->log.count("host.sick");
  restart(*houses[1]);
  work(5s);
  EXPECT_EQ(unfit(1), "");
  EXPECT_EQ(houses[1]->log.count("host.sick"), before);
  EXPECT_THAT(houses[1]->started.task_records, IsEmpty());
}

TEST_F(HostHooksTest, WhatOneLifeOfTheAgentBeganTheNextEnds) {
  held.insert("n2 prolog j");
  submit(generic("j", 3));
  work(5s);
  EXPECT_THAT(where("j"), HasSubstr("@n2/Fetching")) << where("j");
  EXPECT_EQ(tasks("j").at("worker-1").reason, "runs the prolog of this host");
  town.kill(*houses[1]);
  held.clear();
  restart(*houses[1]);
  work(10s);
  EXPECT_EQ(count("n2 prolog j"), 2u) << "an interrupted one is run again";
  EXPECT_EQ(described("j").job.state, "Running") << where("j");

  town.kill(*houses[1]);
  restart(*houses[1]);
  work(5s);
  EXPECT_EQ(count("n2 prolog j"), 2u) << "one that was done is not";
  held.insert("n2 epilog j");
  act_on("j", wire::Action::cancel);
  work(5s);
  EXPECT_EQ(count("n2 epilog j"), 1u);
  act_on("j", wire::Action::remove);
  town.kill(*houses[1]);
  held.clear();
  attempts.clear();
  restart(*houses[1]);
  work(5s);
  EXPECT_EQ(count("n2 epilog j"), 2u) << "though nobody knows the job any more";
  EXPECT_EQ(last.env.at("DTRAIN_USER"), "somebody");
  EXPECT_THAT(houses[1]->started.task_records, IsEmpty());
}

TEST_F(HostHooksTest, AfterARebootThePrologRunsAgain) {
  submit(generic("j", 3));
  work(5s);
  town.kill(*houses[1]);
  attempts.clear();
  houses[1]->started.facts.boot_id = "boot-2";
  restart(*houses[1]);
  work(10s);
  EXPECT_EQ(described("j").job.state, "Running") << where("j");
  EXPECT_TRUE(!any_on("j", "n2") || count("n2 prolog j") == 2);
}

TEST_F(HostHooksTest, ARecoveryInPlaceIsNoEndOfTheJob) {
  job::JobSpec spec = ranks("j", 3, 0);
  submit(spec);
  work(5s);
  ASSERT_EQ(described("j").job.state, "Running");
  act_on("j", wire::Action::restart);
  work(10s);
  EXPECT_EQ(described("j").job.state, "Running");
  EXPECT_EQ(ran.size(), 3u) << ::testing::PrintToString(ran);
}

TEST_F(HostHooksTest, ANewStageWaitsForTheEpilogAndNeedsThePrologAgain) {
  held.insert("n1 epilog j");
  submit(generic("j", 3));
  work(5s);
  act_on("j", wire::Action::suspend);
  work(5s);
  ASSERT_EQ(count("n1 epilog j"), 1u);
  act_on("j", wire::Action::resume);
  work(5s);
  EXPECT_EQ(count("n1 prolog j"), 1u) << "never two of a job at a time";
  EXPECT_EQ(tasks("j").at("worker-0").reason, "waits for the end of this job's epilog on this host");
  for (auto it = houses[0]->effects.rbegin(); it != houses[0]->effects.rend(); ++it)
    if (const auto* hook = std::get_if<RunHook>(&*it)) {
      const HookEnded ended{hook->token, {}};
      houses[0]->give(ended);
      break;
    }
  work(5s);
  EXPECT_EQ(count("n1 prolog j"), 2u);
  EXPECT_EQ(described("j").job.state, "Running");
}

TEST_F(HostHooksTest, WhoGetsItsGpusWaitsForTheEpilog) {
  held.insert("n1 epilog j");
  submit(generic("j", 6, 1));
  work(5s);
  act_on("j", wire::Action::cancel);
  work(5s);
  submit(generic("next", 6, 1));
  submit(generic("without", 1, 0));
  work(5s);
  EXPECT_EQ(count("n1 prolog next"), 0u);
  EXPECT_EQ(count("n2 prolog next"), 1u);
  EXPECT_EQ(described("without").job.state, "Running");
  for (const auto& [name, view] : tasks("next"))
    EXPECT_TRUE(view.node != "n1" || view.reason == "waits for the epilog of job j on this host") << view.reason << where("next");
  const RunHook* epilog = nullptr;
  for (const Effect& effect : houses[0]->effects)
    if (const auto* hook = std::get_if<RunHook>(&effect); hook != nullptr && hook->env.at("DTRAIN_HOOK") == "epilog") epilog = hook;
  ASSERT_NE(epilog, nullptr);
  const HookEnded ended{epilog->token, {}};
  houses[0]->give(ended);
  work(5s);
  EXPECT_EQ(described("next").job.state, "Running") << where("next");
}

TEST_F(HostHooksTest, OneThatCannotBeKilledMakesTheHostUnfitAndRefusesItsJob) {
  held.insert("n1 prolog j");
  submit(generic("j", 3));
  work(kHostHookTime + kHostHookDies + 5s);
  EXPECT_EQ(unfit(0), "prolog of job j did not end within 300 s, and cannot be killed");
  EXPECT_EQ(described("j").job.state, "Running") << where("j");
  EXPECT_FALSE(any_on("j", "n1"));
  job::Exit killed;
  killed.signal = 9;
  for (const Effect& effect : houses[0]->effects)
    if (const auto* hook = std::get_if<RunHook>(&effect)) {
      const HookEnded ended{hook->token, killed, true};
      houses[0]->give(ended);
      break;
    }
  work(5s);
  EXPECT_EQ(unfit(0), "");
  EXPECT_EQ(count("n1 epilog j"), 1u);
}

class EpilogAlone : public HostHooksTest {
 protected:
  EpilogAlone() : HostHooksTest([](NodeOptions& o) { o.epilog = "/e"; }) {}
};

TEST_F(EpilogAlone, RunsAfterWhatWasStaged) {
  submit(generic("j", 3));
  work(5s);
  EXPECT_THAT(ran, IsEmpty());
  EXPECT_THAT(houses[1]->started.task_records, ::testing::SizeIs(1));
  town.kill(*houses[1]);
  restart(*houses[1]);
  act_on("j", wire::Action::cancel);
  work(5s);
  EXPECT_THAT(ran, ::testing::UnorderedElementsAre("n1 epilog j", "n2 epilog j", "n3 epilog j"));
}

class NoHooks : public HostHooksTest {
 protected:
  NoHooks() : HostHooksTest([](NodeOptions&) {}) {}
};

TEST_F(NoHooks, NothingHappens) {
  submit(generic("j", 3));
  work(5s);
  act_on("j", wire::Action::cancel);
  work(5s);
  EXPECT_THAT(ran, IsEmpty());
  for (House* house : houses) EXPECT_THAT(house->started.task_records, IsEmpty());
}

}  // namespace
}  // namespace dtrain::node
