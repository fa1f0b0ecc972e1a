// Rule 7: snapshots carry the configuration and go by chunks, and everything is bounded.
#include <algorithm>
#include <set>

#include "tests/unit/raft/lone_voter.h"

namespace dtrain::raft {
namespace {

using wire::AppendReply;
using wire::AppendRequest;
using wire::SnapshotChunk;
using wire::SnapshotReply;

SnapshotChunk chunk(std::uint64_t index, std::uint64_t term, std::uint64_t total, std::uint64_t offset, std::string bytes) {
  return {1, index, term, LoneVoter::voters(4), {}, {}, total, offset, std::move(bytes)};
}

TEST(Snapshot, CarriesTheConfiguration) {
  for (const std::string& broken : kept_and("snapshot-carries-config")) {
    LoneVoter voter(3, {}, broken);
    voter.receive(2, 5, chunk(9, 4, 5, 0, "state"));
    ASSERT_TRUE(voter.out.installed);
    EXPECT_EQ(voter->configuration(), LoneVoter::voters(broken.empty() ? 4 : 3));
    EXPECT_EQ(voter.disk.snapshot->configuration, wire::encode_configuration(voter->configuration()));
  }
}

TEST(Snapshot, ComesInByChunksWhateverTheirOrder) {
  LoneVoter voter(3);
  voter.receive(2, 5, chunk(9, 4, 6, 3, "def"));
  EXPECT_EQ(voter.sent<SnapshotReply>().back().next_offset, 0u);
  voter.receive(2, 5, chunk(9, 4, 6, 0, "abc"));
  voter.receive(2, 5, chunk(9, 4, 6, 0, "abc"));
  EXPECT_EQ(voter.sent<SnapshotReply>().back().next_offset, 3u);
  voter.receive(2, 5, chunk(8, 4, 6, 3, "xyz"));  // of another one: begins anew
  EXPECT_EQ(voter.sent<SnapshotReply>().back().next_offset, 0u);
  voter.receive(2, 5, chunk(9, 4, 6, 0, "abc"));
  voter.slow = true;
  voter.receive(2, 5, chunk(9, 4, 6, 3, "def"));
  ASSERT_TRUE(voter.out.installed);
  EXPECT_EQ(voter.out.installed->payload, "abcdef");
  EXPECT_FALSE(voter.sent<SnapshotReply>().back().done) << "not durable";
  EXPECT_EQ(voter->commit(), 9u);
  voter.land();
  EXPECT_TRUE(voter.sent<SnapshotReply>().back().done);
  EXPECT_EQ(voter.disk.snapshot->index, 9u);
  EXPECT_TRUE(voter.disk.log.empty());
}

TEST(Snapshot, OfWhatIsHereAlreadyIsNotInstalled) {
  LoneVoter voter(3, {2, 2});
  voter.receive(2, 5, chunk(2, 2, 5, 0, "state"));
  EXPECT_FALSE(voter.out.installed);
  EXPECT_EQ(voter->commit(), 2u) << "what a snapshot holds is committed";
  EXPECT_TRUE(voter.sent<SnapshotReply>().at(0).done);
  EXPECT_EQ(voter->last_index(), 3u) << "what is behind it stays";
}

TEST(Snapshot, NonsenseIsDropped) {
  LoneVoter voter(3);
  SnapshotChunk nobody = chunk(9, 4, 3, 0, "abc");
  nobody.configuration = {};
  for (const SnapshotChunk& bad : {chunk(0, 4, 3, 0, "abc"), chunk(9, 0, 3, 0, "abc"), chunk(9, 6, 3, 0, "abc"), chunk(9, 4, 2, 0, "abc"),
                                   chunk(9, 4, 3, 4, ""), chunk(9, 4, std::uint64_t{1} << 40, 0, "abc"), nobody})
    voter.receive(2, 5, bad);
  EXPECT_EQ(voter->counters().dropped, 7u);
  EXPECT_FALSE(voter.out.installed);
}

TEST(Snapshot, GoesOutInChunksOneUnderWay) {
  LoneVoter voter(3);
  voter.lead();
  for (std::uint64_t number = 1; number <= 3000; ++number) {
    voter.give(Propose{number, "x"});
    if (number % 100 == 0) voter.acknowledge(2, voter->last_index());
  }
  voter.give(Snapshotted{voter->commit(), std::string(600 << 10, 's')});
  voter.out.clear();
  voter.pass(550ms);  // voter 3 answers nothing, and what it needs is gone
  ASSERT_EQ(voter.sent<SnapshotChunk>(3).size(), 1u);
  EXPECT_TRUE(voter->followers(voter.now).at(1).snapshot);
  const std::uint64_t index = voter->snapshot_index();
  for (std::uint64_t offset = 256 << 10; offset <= (512 << 10); offset += 256 << 10) {
    voter.receive(3, voter->term(), SnapshotReply{1, index, offset, false});
    voter.receive(3, voter->term(), SnapshotReply{1, index, offset, false});  // repeated
  }
  ASSERT_EQ(voter.sent<SnapshotChunk>(3).size(), 3u);
  EXPECT_EQ(voter.sent<SnapshotChunk>(3).back().bytes.size(), std::size_t{88 << 10});
  voter.receive(3, voter->term(), SnapshotReply{1, index, 600 << 10, true});
  EXPECT_EQ(voter->followers(voter.now).at(1).match, index);
  EXPECT_FALSE(voter->followers(voter.now).at(1).snapshot);
}

TEST(Bounded, MessagesAndWindows) {
  LoneVoter voter(3);
  voter.lead();
  voter.acknowledge_all();
  voter.out.clear();
  voter.slow = true;
  for (std::uint64_t number = 1; number <= 100; ++number) voter.give(Propose{number, std::string(100 << 10, 'x')});
  EXPECT_EQ(voter.sent<AppendRequest>(2).size(), 16u) << "the window";
  voter.acknowledge(2, 2 + 16);
  for (const AppendRequest& request : voter.sent<AppendRequest>(2)) {
    std::size_t bytes = 0;
    for (const LogEntry& entry : request.entries) bytes += entry.payload.size();
    EXPECT_LE(bytes, std::size_t{256 << 10});
  }
  voter.give(Propose{200, std::string(wire::kEntryBytes + 1, 'x')});
  EXPECT_EQ(voter.answer(200)->refusal, Refusal::too_large);
  voter.land();
  EXPECT_LE(voter.writing->entries.size(), 41u) << "4 MiB in one write";
}

// Each keeps its snapshot and has a chunk under way.
TEST(Bounded, LearnersThatAreSentASnapshotAtOneTime) {
  LoneVoter voter(1);
  voter.lead();
  const std::size_t most = RaftOptions{}.snapshots_under_way;
  const std::uint64_t first = 10, last = first + most + 3;
  for (std::uint64_t learner = first; learner <= last; ++learner)
    voter.give(ChangeAsked{learner, ChangeKind::add_learner, LoneVoter::id(learner)});
  for (std::uint64_t number = 101; number <= 3100; ++number) voter.give(Propose{number, "x"});
  voter.give(Snapshotted{voter->commit(), std::string(600 << 10, 's')});
  voter.out.clear();
  const auto begun = [&] {
    std::set<MemberId> to;
    for (const Send& send : voter.out.sends)
      if (std::holds_alternative<SnapshotChunk>(send.message.body)) to.insert(send.to);
    return to.size();
  };
  voter.pass(250ms);
  EXPECT_EQ(begun(), most);
  const auto waiting = [&] { return std::ranges::count_if(voter->followers(voter.now), &FollowerView::waits); };
  EXPECT_EQ(waiting(), 4);
  for (std::uint64_t learner = first; learner <= last; ++learner)
    EXPECT_FALSE(voter.sent<AppendRequest>(learner).empty()) << "who waits hears that there is a leader";
  voter.receive(first, voter->term(), SnapshotReply{1, voter->snapshot_index(), 600 << 10, true});
  voter.pass(200ms);
  EXPECT_EQ(begun(), most + 1);
  EXPECT_EQ(waiting(), 3);
  voter.pass(3s);
  EXPECT_EQ(begun(), most + 4) << "who is silent keeps nobody waiting";
}

TEST(Bounded, ProposalsAndReads) {
  LoneVoter voter(3);
  voter.lead();
  for (std::uint64_t number = 1; number <= 4097; ++number) voter.give(Propose{number, "x"});
  EXPECT_FALSE(voter.answer(4096));
  EXPECT_EQ(voter.answer(4097)->refusal, Refusal::overloaded);
  for (std::uint64_t number = 5001; number <= 9097; ++number) voter.give(ReadAsked{number});
  EXPECT_EQ(voter.answer(9097)->refusal, Refusal::overloaded);
  EXPECT_EQ(voter->counters().overloaded, 2u);
}

TEST(Bounded, MessagesThatWaitForTheDisk) {
  LoneVoter voter(3);
  voter.slow = true;
  voter.receive(2, 2, voter.request(1, 1));
  for (int i = 0; i < 10'000; ++i) voter.receive(2, 2, voter.request(1, 1));
  EXPECT_LT(voter->memory_bytes(), std::size_t{4 << 20});
  voter.land_all();
  EXPECT_LE(voter.sent<AppendReply>().size(), 4097u);
}

}  // namespace
}  // namespace dtrain::raft
