// Images are fetched before tasks may begin in them, in a cluster of three hosts of which two can run images.
#include "common/node/images.h"

#include <gmock/gmock.h>

#include "tests/unit/node/working_town.h"

namespace dtrain::node {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

job::Exit complained(std::int32_t code, std::string text = "") {
  job::Exit exit;
  exit.code = code;
  exit.stderr_tail = std::move(text);
  return exit;
}

class ImagesTest : public WorkingTown {
 protected:
  void give_engines(std::size_t hosts) {
    for (std::size_t i = 0; i < houses.size(); ++i) {
      houses[i]->started.facts.images = i < hosts ? "podman" : "";
      houses[i]->started.facts.image_program = i < hosts ? "/usr/bin/podman" : "";
      ++houses[i]->started.life;
      houses[i]->start();
    }
    town.run_for(10s);
  }
  static job::JobSpec imaged(const std::string& name, std::uint32_t count, const std::string& image = "a/b") {
    job::JobSpec spec = generic(name, count, 0);
    spec.roles.begin()->second.image = image;
    return spec;
  }
  // "n1 exists a/b"
  void run_hook(House& house, const RunHook& hook) override {
    EXPECT_TRUE(hook.of_images);
    EXPECT_EQ(hook.user->name, "somebody") << "never root";
    const std::string name = house.started.facts.name + " " + (hook.leaves ? "exists" : "pull") + " " + hook.command.back();
    ran.push_back(name);
    last = hook;
    if (held.contains(name)) return;
    const auto result = results.find(name);
    house.give(HookEnded{hook.token, result == results.end() ? job::Exit{} : result->second});
  }
  std::string submit_error(const job::JobSpec& spec) {
    wire::SubmitRequest submit;
    submit.spec = wire::encode(spec);
    submit.request_id = "x";
    const auto reply = ask<wire::SubmitReply>(*houses[0], wire::MessageType::submit, submit, 1000);
    return reply ? "accepted" : reply.error().message + "; " + reply.error().next;
  }

  std::vector<std::string> ran;
  RunHook last;
  std::map<std::string, job::Exit> results;
  std::set<std::string> held;  // do not end
};

TEST_F(ImagesTest, OneThatIsThereIsOnlyLookedFor) {
  give_engines(2);
  submit(imaged("j", 4));
  work(5s);
  EXPECT_THAT(described("j").job.state, "Running") << where("j");
  for (const std::string& name : ran) EXPECT_THAT(name, HasSubstr(" exists a/b"));
  EXPECT_FALSE(any_on("j", "n3")) << where("j") << "which has no engine";
  EXPECT_EQ(last.limit, kImageLookTime);
}

TEST_F(ImagesTest, OneThatIsMissingIsPulledOnceForAllTasks) {
  give_engines(1);
  results["n1 exists a/b"] = complained(1);
  held = {"n1 pull a/b"};
  submit(imaged("j", 3));
  work(5s);
  EXPECT_THAT(ran, ElementsAre("n1 exists a/b", "n1 pull a/b"));
  EXPECT_EQ(last.limit, kImagePullTime);
  EXPECT_EQ(tasks("j").at("worker-0").reason, "pulls image a/b");
  houses[0]->give(HookEnded{last.token, {}});
  work(5s);
  EXPECT_THAT(described("j").job.state, "Running") << where("j");
}

TEST_F(ImagesTest, APullSaysHowFarItIs) {
  give_engines(1);
  results["n1 exists a/b"] = complained(1);
  held = {"n1 pull a/b"};
  submit(imaged("j", 2));
  work(5s);
  std::set<std::string> words;  // each is an entry of the log
  const auto goes_on = [&](Duration time, const std::string& line) {
    for (Duration passed{}; passed < time; passed += 2s) {
      houses[0]->give(HookProgress{last.token, line});
      work(2s);
      words.insert(tasks("j").at("worker-0").reason);
    }
    EXPECT_EQ(tasks("j").at("worker-0").reason, tasks("j").at("worker-1").reason);
    return tasks("j").at("worker-1").reason;
  };
  EXPECT_THAT(goes_on(12s, "0\t/home/x"), AllOf(HasSubstr("pulls image a/b: nothing fetched in 1"), EndsWith(" s")));
  EXPECT_THAT(goes_on(12s, "1258496\t/home/x"), HasSubstr("pulls image a/b: 1.2 GiB fetched in "));
  EXPECT_LE(words.size(), std::size_t{4});
  const std::string still = goes_on(180s, "1258496\t/home/x");
  EXPECT_THAT(still, MatchesRegex("pulls image a/b: 1.2 GiB fetched in 3 min, the last of it [23] min ago: it is being unpacked, or its "
                                  "registry is silent"));
  EXPECT_EQ(goes_on(12s, "no number"), still);
  EXPECT_THAT(goes_on(12s, "2516992"), HasSubstr("2.4 GiB fetched in 3 min"));
  houses[0]->give(HookEnded{last.token, {}});
  work(5s);
  EXPECT_EQ(tasks("j").at("worker-0").reason, "");
  houses[0]->give(HookProgress{last.token, "9"});  // late
  work(1s);
  EXPECT_EQ(described("j").job.state, "Running") << where("j");
}

TEST_F(ImagesTest, APullFromASilentRegistrySaysSo) {
  give_engines(1);
  results["n1 exists a/b"] = complained(1);
  held = {"n1 pull a/b"};
  submit(imaged("j", 1));
  for (int i = 0; i < 40; ++i) {
    work(2s);
    houses[0]->give(HookProgress{last.token, "0\t/x"});
  }
  work(2s);
  EXPECT_THAT(tasks("j").at("worker-0").reason, MatchesRegex("pulls image a/b: nothing fetched in [0-9]+ s: its registry is silent"));
}

TEST_F(ImagesTest, AHostWhoseDiskIsFullRefuses) {
  give_engines(2);
  for (const char* host : {"n1", "n2"}) results[std::string(host) + " exists a/b"] = complained(1);
  job::Exit full;
  full.signal = 9;
  full.cause = "the file system of /home has less free than storage.minFree wants";
  results["n1 pull a/b"] = full;
  submit(imaged("j", 4));
  work(20s);
  EXPECT_EQ(described("j").job.state, "Running") << where("j");
  EXPECT_FALSE(any_on("j", "n1")) << where("j");
}

TEST_F(ImagesTest, SoDoesOneWhosePodmanFindsItFull) {
  give_engines(2);
  for (const char* host : {"n1", "n2"}) results[std::string(host) + " exists a/b"] = complained(1);
  results["n1 pull a/b"] = complained(125, "Error: writing blob: no space left on device\n");
  submit(imaged("j", 4));
  work(20s);
  EXPECT_EQ(described("j").job.state, "Running") << where("j");
  EXPECT_FALSE(any_on("j", "n1")) << where("j");
}

TEST_F(ImagesTest, AMissingImageIsAClearError) {
  give_engines(1);
  results["n1 exists a/b"] = complained(1);
  results["n1 pull a/b"] = complained(125, "Trying to pull\nError: reading manifest latest in a/b: manifest unknown\n");
  submit(imaged("j", 1));
  work(20s);
  EXPECT_EQ(described("j").job.state, "Failed");
  EXPECT_THAT(
      described("j").job.reason,
      HasSubstr("image a/b cannot be pulled on host n1: Error: reading manifest latest in a/b: manifest unknown; correct its name"));
}

TEST_F(ImagesTest, ALocalImageThatIsMissingIsNotPulled) {
  give_engines(1);
  results["n1 exists localhost/a"] = complained(1);
  submit(imaged("j", 1, "localhost/a"));
  work(20s);
  EXPECT_EQ(described("j").job.state, "Failed");
  EXPECT_THAT(described("j").job.reason, HasSubstr("image localhost/a is not there on host n1, and no registry has it"));
  EXPECT_THAT(ran, ElementsAre("n1 exists localhost/a"));
}

TEST_F(ImagesTest, AHostWhoseEngineDoesNotWorkForTheUserRefuses) {
  give_engines(2);
  results["n1 exists a/b"] = complained(125, "cannot find UID/GID for user somebody\n");
  submit(imaged("j", 4));
  work(20s);
  EXPECT_EQ(described("j").job.state, "Running") << where("j");
  EXPECT_FALSE(any_on("j", "n1")) << where("j");
}

TEST_F(ImagesTest, APullThatNobodyWaitsForIsEnded) {
  give_engines(1);
  results["n1 exists a/b"] = complained(1);
  held = {"n1 pull a/b"};
  submit(imaged("j", 1));
  work(5s);
  wire::ActionRequest cancel;
  cancel.action = wire::Action::cancel;
  cancel.job = "j";
  ASSERT_TRUE(ask<wire::Empty>(*houses[0], wire::MessageType::action, cancel, 1000));
  work(3s);
  const auto ended = std::ranges::find_if(houses[0]->effects, [&](const Effect& effect) {
    const auto* end = std::get_if<EndHooks>(&effect);
    return end != nullptr && end->token == last.token;
  });
  EXPECT_NE(ended, houses[0]->effects.end());
  EXPECT_EQ(described("j").job.state, "Cancelled");
}

TEST_F(ImagesTest, WithoutAnEngineAnywhereTheJobIsRefused) {
  EXPECT_THAT(submit_error(imaged("j", 1)),
              HasSubstr("no host of the cluster has podman or enroot to run image a/b in; apt install podman uidmap catatonit"));
  EXPECT_THAT(ran, IsEmpty());
}

TEST_F(ImagesTest, WithTheFallbackItRunsOnTheHostItself) {
  for (House* house : houses) {
    house->started.facts.images = job::kImagesOnHost;
    ++house->started.life;
    house->start();
  }
  town.run_for(10s);
  submit(imaged("j", 1));
  work(5s);
  EXPECT_EQ(described("j").job.state, "Running") << where("j");
  EXPECT_THAT(ran, IsEmpty());
  for (House* house : houses)
    for (const Effect& effect : house->effects)
      if (const auto* launch = std::get_if<LaunchShim>(&effect)) {
        EXPECT_FALSE(launch->spec.image);
      }
}

}  // namespace
}  // namespace dtrain::node
