// Packages between hosts: who fetches what from whom, and what of a lost source, a broken stream or damaged bytes. The agents'
// part (streams, disks, staging) is played here, at once and in order.
#include "tests/unit/node/package_town.h"

namespace dtrain::node {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(PackagesTest, AMajorityOfTheVotersHasItBeforeTheJobIsAcknowledged) {
  cut = {houses[1], houses[2]};
  const std::uint64_t asked = submit(*houses[0], with_package(3));
  EXPECT_FALSE(houses[0]->answers.contains(asked));
  work();  // nobody takes it
  ASSERT_TRUE(houses[0]->answers.contains(asked));
  ASSERT_FALSE(houses[0]->answer<wire::SubmitReply>(asked));
  EXPECT_THAT(houses[0]->answer<wire::SubmitReply>(asked).error().message,
              HasSubstr("could not submit job: its package is on 1 of 3 voters, and is to be on 2: host n"));
  EXPECT_TRUE(tasks(*houses[0]).empty());
  cut = {houses[2]};
  const std::uint64_t again = submit(*houses[0], with_package(3));
  run_for(1s);
  const auto reply = houses[0]->answer<wire::SubmitReply>(again);
  EXPECT_TRUE(reply) << reply.error().text();
  EXPECT_TRUE(blobs[houses[1]].contains(kDigest));
}

// A sweep: each voter is asked once, not once for each job; one agent may ask another 64 things at a time (kRelaysOfOne).
TEST_F(PackagesTest, ManyAtOnceWithOnePackageAskEachVoterOnce) {
  constexpr std::size_t kJobs = 100;
  std::vector<std::uint64_t> asked;
  for (std::size_t i = 0; i < kJobs; ++i) asked.push_back(submit(*houses[0], that_waits("j" + std::to_string(i))));
  const auto opened = std::ranges::count_if(houses[0]->effects, [](const Effect& e) { return std::holds_alternative<OpenRelay>(e); });
  EXPECT_LE(opened, 4) << "two voters, and a look";
  run_for(2s);
  for (const std::uint64_t request : asked) {
    const auto reply = houses[0]->answer<wire::SubmitReply>(request);
    ASSERT_TRUE(reply) << reply.error().text();
  }
}

TEST_F(PackagesTest, BeforeARerunAMajorityHasItAgain) {
  submit(*houses[0], that_waits());
  run_for(2s);
  wire::ActionRequest ask;
  ask.action = wire::Action::cancel;
  ask.job = "j";
  (void)houses[0]->ask<wire::Empty>(MessageType::action, ask, 1000);
  run_for(3s);
  blobs[houses[1]].clear();  // no voter keeps it for a job that has ended
  blobs[houses[2]].clear();
  ask.action = wire::Action::rerun;
  (void)houses[0]->ask<wire::SubmitReply>(MessageType::action, ask, 1000);
  const std::uint64_t asked = houses[0]->requests();
  run_for(2s);
  EXPECT_TRUE(blobs[houses[1]].contains(kDigest) || blobs[houses[2]].contains(kDigest));
  const auto reply = houses[0]->answer<wire::SubmitReply>(asked);
  EXPECT_TRUE(reply) << reply.error().text();
}

TEST_F(PackagesTest, TasksOnAllHostsHaveIt) {
  submit(*houses[1], with_package(3));  // it is not at that host: it need not be
  run_for(2s);
  for (House* house : houses) {
    EXPECT_EQ(launched(*house), 1u) << house->address().ip;
    EXPECT_TRUE(blobs[house].contains(kDigest));
    EXPECT_EQ(house->node().own_connections(), 0u);
  }
  EXPECT_TRUE(partial.empty());
  EXPECT_TRUE(streams.empty());
}

// The agents' disks and streams may complete what was given up meanwhile.
TEST_F(PackagesTest, WhatComesForAConnectionThatIsClosedIsDropped) {
  submit(*houses[1], with_package(3));
  run_for(2s);
  for (House* house : houses) {
    std::vector<OpenRelay> own;
    for (const Effect& e : house->effects)
      if (const auto* open = std::get_if<OpenRelay>(&e); open != nullptr && open->own) own.push_back(*open);
    const std::size_t before = house->effects.size();
    for (const OpenRelay& open : own) {
      house->give(
          RelayAnswered{open.connection, wire::encode(wire::make_message(MessageType::blob_chunk, open.request, wire::BlobChunk{0, "x"}))});
      house->give(BlobWritten{open.connection, 1, std::string(kDigest)});
      house->give(BlobWritten{open.connection, 1, fail(ErrorCode::damaged, "another digest")});
      house->give(CheckpointWritten{open.connection, {}});
      house->give(RelayEnded{open.part, How::done, {}});
    }
    EXPECT_EQ(house->effects.size(), before) << own.size() << " of " << house->address().ip;
  }
  constexpr ConnectionId kGone = 5000;  // a client's
  const std::size_t before = houses[0]->effects.size();
  houses[0]->give(ConnectionOpened{kGone, {"somebody", 1000}});
  houses[0]->give(ConnectionClosed{kGone});
  houses[0]->give(BlobWritten{kGone, 1, std::string(kDigest)});
  EXPECT_EQ(houses[0]->effects.size(), before);
}

TEST_F(PackagesTest, ALostSourceTakesNoPackageAlong) {
  cut = {houses[2]};  // n3 is not asked to keep it
  submit(*houses[0], with_package(1));
  run_for(1s);
  cut.clear();
  blobs[houses[2]].clear();
  town.kill(*houses[0]);
  run_for(40s);
  wire::ActionRequest restart;
  ASSERT_FALSE(tasks(*houses[1]).empty());
  run_for(kLookForKept + 5s);  // every voter looks for what it is to have
  EXPECT_TRUE(blobs[houses[2]].contains(kDigest));
  EXPECT_EQ(launched(*houses[1]) + launched(*houses[2]), 1u);
}

TEST_F(PackagesTest, WhatABrokenStreamBroughtIsKept) {
  breaks_after = 5;
  submit(*houses[0], with_package(3));
  run_for(3s);
  for (House* house : houses) EXPECT_TRUE(blobs[house].contains(kDigest)) << house->address().ip;
  std::vector<std::uint64_t> offsets;
  for (House* house : houses)
    for (const SendBlob& send : sent(*house)) offsets.push_back(send.offset);
  EXPECT_THAT(offsets, ::testing::Contains(4 * kChunk));
  EXPECT_TRUE(partial.empty());
}

TEST_F(PackagesTest, DamagedBytesAreFetchedFromAnother) {
  blobs[houses[1]].insert(kDigest);
  submit(*houses[0], with_package(1));
  run_for(1s);
  blobs[houses[2]].clear();
  damaged = {houses[0]};
  run_for(kLookForKept + 5s);
  EXPECT_TRUE(blobs[houses[2]].contains(kDigest));
  EXPECT_EQ(sent(*houses[0]).size(), 2u);  // the first before
  EXPECT_EQ(houses[2]->log.count("package.damaged"), 1u);
  EXPECT_EQ(houses[2]->log.count("package.fetched"), 2u);
  EXPECT_TRUE(partial.empty());
}

TEST_F(PackagesTest, WhatNobodyHasIsWaitedFor) {
  blobs[houses[1]] = blobs[houses[2]] = {kDigest};
  gone = {houses.begin(), houses.end()};
  submit(*houses[0], with_package(3));
  run_for(5s);
  auto views = tasks(*houses[0]);
  ASSERT_EQ(views.size(), 3u);
  for (const auto& view : views) {
    EXPECT_EQ(view.state, "Fetching");
    EXPECT_THAT(view.reason,
                HasSubstr("no host that can be asked has package aaaaaaaaaaaa; start a host that has it, or dtrainctl restart"));
  }
  gone.erase(houses[1]);
  blobs[houses[1]].insert(kDigest);  // an upload
  run_for(kFetchAgainAtMost + 5s);
  for (House* house : houses) EXPECT_EQ(launched(*house), 1u) << house->address().ip;
}

TEST_F(PackagesTest, WhoWaitsForItCanBeEnded) {
  blobs[houses[1]] = blobs[houses[2]] = {kDigest};
  gone = {houses.begin(), houses.end()};
  submit(*houses[0], with_package(3));
  run_for(5s);
  wire::ActionRequest cancel;
  cancel.action = wire::Action::cancel;
  cancel.job = "j";
  (void)houses[0]->ask<wire::Empty>(MessageType::action, cancel, 1000);
  run_for(2s);
  for (const auto& view : tasks(*houses[0])) EXPECT_NE(view.state, "Fetching") << view.task;
  const auto job = houses[0]->ask<wire::JobDescription>(MessageType::describe_job, wire::JobName{"j"});
  ASSERT_TRUE(job);
  EXPECT_EQ(job->job.state, "Cancelled");
}

TEST_F(PackagesTest, AFullDiskIsSaid) {
  blobs[houses[1]] = {kDigest};
  full = {houses[2]};
  submit(*houses[0], with_package(3));
  run_for(2s);
  EXPECT_EQ(launched(*houses[2]), 0u);
  EXPECT_GE(houses[2]->log.count("package.not-stored"), 1u);
  const auto events = houses[0]->events();
  EXPECT_TRUE(std::ranges::any_of(events, [](const auto& e) { return e.reason.find("the disk is full") != std::string::npos; }));
}

TEST_F(PackagesTest, WhatCameMeanwhileIsNotFetched) {
  blobs[houses[1]] = blobs[houses[2]] = {kDigest};
  lacks_once = {houses[2]};
  submit(*houses[0], with_package(3));
  run_for(2s);
  for (House* house : houses) EXPECT_EQ(launched(*house), 1u) << house->address().ip;
  EXPECT_TRUE(fetched(*houses[2]).empty());
}

TEST_F(PackagesTest, WhatNobodyElseHasMayComeToThisDisk) {
  blobs[houses[1]] = blobs[houses[2]] = {kDigest};
  gone = {houses.begin(), houses.end()};
  submit(*houses[0], with_package(3));
  run_for(5s);
  cut = {houses[0], houses[1]};
  gone.erase(houses[2]);
  blobs[houses[2]].insert(kDigest);
  run_for(kFetchAgainAtMost + 5s);
  EXPECT_EQ(launched(*houses[2]), 1u);
}

TEST_F(PackagesTest, CopiesThatNobodyWaitsForLeaveRoom) {
  cut = {houses[2]};  // n3 is not asked to keep them
  for (const char c : {'b', 'c', 'd', 'e', 'f'}) {
    blobs[houses[0]].insert(std::string(64, c));
    submit(*houses[0], that_waits(std::string(1, c), std::string(64, c)));
    work();
  }
  chunks = {{houses[0], 0}, {houses[1], 0}};
  run_for(2s);
  EXPECT_EQ(fetched(*houses[2]).size(), 2u);
  chunks.clear();
  submit(*houses[0], with_package(3));
  run_for(2s);
  EXPECT_EQ(launched(*houses[2]), 1u);
  cut.clear();
  run_for(kFetchStalls * 2);
  for (const char c : {'b', 'c', 'd', 'e', 'f'}) EXPECT_TRUE(blobs[houses[2]].contains(std::string(64, c))) << c;
}

TEST_F(PackagesTest, WhoWasTakenAwayWhileItWasStagedWaitsForNone) {
  blobs[houses[1]] = blobs[houses[2]] = {kDigest};
  slow = houses[2];
  submit(*houses[0], with_package(3));
  run_for(1s);
  ASSERT_EQ(stages.size(), 1u);
  town.cut_off = houses[2];
  run_for(60s);
  town.cut_off = slow = nullptr;
  run_for(20s);
  gone = {houses.begin(), houses.end()};
  perform(*houses[2], Stage(stages.front()));
  run_for(5s);
  EXPECT_TRUE(fetched(*houses[2]).empty());
  job::JobSpec other = with_package(3, "k", "");  // the host is free for others
  other.roles["worker"].anti_affinity = "host";
  submit(*houses[0], other);
  run_for(5s);
  EXPECT_EQ(launched(*houses[2]), 1u);
}

TEST_F(PackagesTest, WhatASourceBeforeHadSentIsNotTheNextOnes) {
  cut = {houses[2]};
  submit(*houses[0], that_waits());
  work();
  ASSERT_TRUE(blobs[houses[1]].contains(kDigest));
  deaf = houses[2];
  chunks = {{houses[0], 1}};
  run_for(2s);
  ASSERT_EQ(unheard.size(), 1u);
  town.kill(*houses[0]);
  run_for(5s);
  deaf = nullptr;
  ASSERT_GT(unheard.size(), 2u);  // the other's behind it
  for (const Event& event : unheard) houses[2]->give(event);
  run_for(1s);
  EXPECT_TRUE(blobs[houses[2]].contains(kDigest));
  EXPECT_TRUE(std::ranges::none_of(houses[2]->effects, [](const Effect& e) { return std::holds_alternative<DropBlob>(e); }));
}

TEST_F(PackagesTest, AVoterCountsItselfWhenItHasIt) {
  blobs[houses[0]].clear();
  blobs[houses[1]] = {kDigest};
  cut = {houses[2]};
  full = {houses[0]};
  const std::uint64_t asked = submit(*houses[0], that_waits());
  run_for(1s);
  ASSERT_FALSE(houses[0]->answer<wire::SubmitReply>(asked));
  EXPECT_THAT(houses[0]->answer<wire::SubmitReply>(asked).error().message, HasSubstr("its package is on 1 of 3 voters, and is to be on 2"));
  full.clear();
  run_for(kFetchAgainAtMost);
  const std::uint64_t again = submit(*houses[0], that_waits());
  run_for(1s);
  EXPECT_TRUE(houses[0]->answer<wire::SubmitReply>(again));
  EXPECT_TRUE(blobs[houses[0]].contains(kDigest));
}

TEST_F(PackagesTest, WhoAsksToKeepItIsASourceOfTheRoundUnderWay) {
  cut = {houses[2]};
  submit(*houses[0], that_waits());
  work();
  blobs[houses[0]].clear();
  chunks = {{houses[1], 0}};
  run_for(2s);
  ASSERT_EQ(fetched(*houses[2]).size(), 2u);  // of n1, which has it no more, and n2, which is silent
  const ConnectionId part = [&] {
    for (const Stream& s : streams)
      if (s.opener == houses[2]) return s.open.part;
    return ConnectionId{};
  }();
  ASSERT_NE(part, 0u);
  blobs[houses[0]].insert(kDigest);
  cut = {houses[1]};
  const std::uint64_t asked = submit(*houses[0], that_waits("k"));
  work();
  end(*houses[2], part, How::lost, "was silent for 30 s");
  run_for(1s);
  const auto reply = houses[0]->answer<wire::SubmitReply>(asked);
  EXPECT_TRUE(reply) << reply.error().text();
}

TEST_F(PackagesTest, AClientGetsNone) {
  const auto reply = houses[0]->ask<wire::BlobChunk>(MessageType::get_blob, wire::GetBlobRequest{kDigest, 0}, 0);
  ASSERT_FALSE(reply);
  EXPECT_THAT(reply.error().message, HasSubstr("only other agents may ask it"));
  EXPECT_TRUE(sent(*houses[0]).empty());
}

// Who names a digest in a job has the package.
TEST_F(PackagesTest, ADigestIsShownToTheJobsUserOnly) {
  submit(*houses[0], with_package(1));
  run_for(2s);
  const auto digest = [&](std::uint32_t uid) -> std::string {
    const auto reply = houses[0]->ask<wire::JobDescription>(MessageType::describe_job, wire::JobName{"j"}, uid);
    const auto shown = reply ? wire::decode<job::JobSpec>(reply->spec) : Result<job::JobSpec>(fail(ErrorCode::io, "no answer"));
    return shown ? shown->package_digest : shown.error().message;
  };
  EXPECT_EQ(digest(1000), kDigest);
  EXPECT_EQ(digest(0), kDigest);
  EXPECT_EQ(digest(1001), "");
}

}  // namespace
}  // namespace dtrain::node
