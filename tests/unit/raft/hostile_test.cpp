// What decodes may still be anything. Members in every role, told messages that no correct peer would send:
// nothing breaks, the log stays a log, what is durable fits together, memory stays bounded.
#include "common/raft/configuration.h"
#include "tests/unit/raft/lone_voter.h"
#include "tests/unit/wire/raft_samples.h"

namespace dtrain::raft {
namespace {

void expect_a_log(const Stored& disk) {
  std::uint64_t index = disk.snapshot ? disk.snapshot->index : 0, term = disk.snapshot ? disk.snapshot->term : 0;
  for (const LogEntry& entry : disk.log) {
    ASSERT_EQ(entry.index, ++index);
    ASSERT_GE(entry.term, term);
    term = entry.term;
  }
  ASSERT_GE(disk.hard.term, term);
}

TEST(Hostile, MessagesBreakNothing) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    test::RaftSampler sampler(seed);
    Rng rng(seed);
    Stored stored = found({1, {7, 7}}, {TinyCouncil::ids(1, 1 + 2 * (seed % 3)), {}});
    if (seed % 7 == 0) stored = {};
    LoneVoter voter(stored, "");
    std::uint64_t committed = 0;
    for (int i = 0; i < 2000; ++i) {
      voter.slow = rng.chance(1, 3);
      wire::RaftMessage message = sampler.message();
      // Mostly of this term and history, so that it gets further than the first check.
      if (rng.chance(2, 3)) message.header.term = voter->term();
      if (rng.chance(3, 4)) message.header.life = {1, 1};
      if (auto* request = std::get_if<wire::VoteReply>(&message.body); request && rng.chance(1, 2))
        request->term = voter->term() + (request->pre ? 1 : 0), request->granted = true;
      const auto bytes = wire::encode_raft(message);
      const auto decoded = wire::decode_raft(wire::type_of(message.body), message.header.sender, bytes);
      if (decoded) voter.give(Received{*decoded});
      if (rng.chance(1, 5)) voter.give(Propose{static_cast<std::uint64_t>(i) + 1, "payload"});
      if (rng.chance(1, 9)) voter.give(ReadAsked{static_cast<std::uint64_t>(i) + 10'000});
      if (rng.chance(1, 9))
        voter.give(
            ChangeAsked{static_cast<std::uint64_t>(i) + 20'000, static_cast<ChangeKind>(rng.below(4)), LoneVoter::id(1 + rng.below(6))});
      if (rng.chance(1, 20)) voter.give(TransferAsked{LoneVoter::id(rng.below(4))});
      if (rng.chance(1, 20)) voter.give(LeaderGone{LoneVoter::id(1 + rng.below(6))});
      if (rng.chance(1, 9)) voter.pass(Duration(rng.below(400'000'000)));
      if (rng.chance(1, 30)) voter.now += 3s;
      if (rng.chance(1, 30) && voter->commit() > voter->snapshot_index()) voter.give(Snapshotted{voter->commit(), "snap"});
      ASSERT_GE(voter->commit(), committed);
      committed = voter->commit();
      ASSERT_LE(committed, voter->last_index());
      ASSERT_LE(voter->durable_index(), voter->last_index());
      ASSERT_LT(voter->memory_bytes(), std::size_t{8 << 20});
      if (rng.chance(1, 200) || voter->mute() != Mute::none) {
        expect_a_log(voter.disk);
        voter.disk.hard.stale = false;
        voter.restart(rng.chance(1, 2));
        committed = voter->commit();
      }
      voter.out.clear();
    }
  }
}

}  // namespace
}  // namespace dtrain::raft
