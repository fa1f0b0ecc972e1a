// The rules about what is believed, each with the proof that switching it off is noticed.
#include "tests/unit/gossip/lone_member.h"
#include "tests/unit/gossip/tiny_cluster.h"

namespace dtrain::gossip {
namespace {

using wire::MemberState;
using wire::RumourKind;
using L = LoneMember;

TEST(Rule01, AliveNeedsAHigherIncarnation) {
  const auto stays_suspect = [](const std::string& broken) {
    L lone(8, broken);
    lone.hear({L::suspect(3)});
    EXPECT_EQ(lone.state(3), MemberState::suspect);
    lone.hear({L::alive(3, L::kInc - 1)});
    lone.hear({L::alive(3, L::kInc)});
    return lone.state(3) == MemberState::suspect;
  };
  EXPECT_TRUE(stays_suspect(""));
  EXPECT_FALSE(stays_suspect("alive-needs-higher-incarnation"));
  L lone(8);
  lone.hear({L::suspect(3), L::alive(3, L::kInc + 1)});
  EXPECT_EQ(lone.state(3), MemberState::alive);
  lone.hear({L::suspect(3, L::kInc)});
  EXPECT_EQ(lone.state(3), MemberState::alive) << "an older accusation";
  lone.hear({L::dead(3, L::kInc)});
  EXPECT_EQ(lone.state(3), MemberState::alive);
  lone.hear({L::dead(3, L::kInc + 1)});
  EXPECT_EQ(lone.state(3), MemberState::dead);
}

TEST(Rule01, AnOlderMessageDoesNotClearATimer) {
  L lone(8);
  lone.hear({L::suspect(3, L::kInc, 1), L::suspect(3, L::kInc, 2), L::suspect(3, L::kInc, 4), L::suspect(3, L::kInc, 5)});
  lone.run_answering(3s, {3});
  lone.hear({L::alive(3, L::kInc)});
  lone.run_answering(3s, {3});
  EXPECT_EQ(lone.state(3), MemberState::dead);
}

TEST(Rule02, RefutesAboveTheAccusation) {
  const auto goes_above = [](const std::string& broken) {
    L lone(4, broken);
    const std::uint64_t accused = lone->incarnation() + 7;
    lone.hear({L::suspect(L::kSelf, accused)});
    EXPECT_EQ(lone.count(ChangeKind::refute), 1u);
    return lone->incarnation() > accused;
  };
  EXPECT_TRUE(goes_above(""));
  EXPECT_FALSE(goes_above("refute-goes-above-accusation"));
}

TEST(Rule02, AnOldAccusationIsNotAnswered) {
  L lone(4);
  lone.hear({L::dead(L::kSelf, lone->incarnation() - 1)});
  EXPECT_EQ(lone.count(ChangeKind::refute), 0u);
}

TEST(Rule02, OtherContentAtTheSameIncarnationIsRefuted) {
  L lone(4);
  const std::uint64_t before = lone->incarnation();
  lone.hear({L::alive(L::kSelf, before)});
  EXPECT_EQ(lone->incarnation(), before);
  lone.hear({L::alive(L::kSelf, before, 1, "another boot")});
  EXPECT_EQ(lone->incarnation(), before + 1);
  EXPECT_EQ(lone.count(ChangeKind::conflict), 0u) << "once may be our own past";
  lone.hear({L::alive(L::kSelf, before + 5, 1, "another boot")});
  EXPECT_EQ(lone.count(ChangeKind::conflict), 1u) << "a copied data directory";
}

TEST(Rule02, AStaleNodeLearnsItsAccusationFromWhoeverHearsIt) {
  L lone(4);
  lone.hear({L::dead(3)});
  lone.clear();
  lone.receive(wire::Gossip{{L::alive(3, L::kInc)}}, 3);
  ASSERT_EQ(lone.sent<wire::Gossip>().size(), 1u);
  const wire::Rumour told = lone.sent<wire::Gossip>()[0].second.rumours.at(0);
  EXPECT_EQ(told.kind, RumourKind::dead);
  EXPECT_EQ(told.incarnation, L::kInc);
}

TEST(Rule02, ARestartedNodeStartsAboveWhatWasSaidOfIt) {
  TinyCluster cluster;
  cluster.start(5);
  cluster.run(15s);
  // A disk that was put back: the same life once more, while the others know refutations of it.
  const std::uint64_t known = cluster[0].find(TinyCluster::id_of(2))->incarnation;
  wire::Rumour accusation{RumourKind::suspect, TinyCluster::id_of(2), known + 3, TinyCluster::id_of(1), nullptr, nullptr, {}};
  wire::PeerHeader header;
  header.cluster = {7, 7};
  header.sender = TinyCluster::id_of(1);
  header.incarnation = cluster[1].incarnation();
  cluster.give(2, Received{header, wire::Gossip{{accusation}}, 2, ""});
  cluster.run(1s);
  EXPECT_EQ(cluster[0].find(TinyCluster::id_of(2))->incarnation, known + 4);
  cluster.kill(2);
  cluster.run(3s);
  cluster.relaunch(2, 1);
  EXPECT_TRUE(cluster.run_until([&] { return cluster.everybody_sees(2, MemberState::alive); }, 1s));
  EXPECT_GT(cluster[2].incarnation(), known + 4);
}

TEST(Rule03, ARestartInsideTheSuspicionWindowRaisesRestarted) {
  const auto raised = [](const std::string& broken) {
    L lone(8, broken);
    lone.hear({L::suspect(3)});
    lone.hear({L::alive(3, 9, 2, "boot")});
    EXPECT_EQ(lone.state(3), MemberState::alive);
    EXPECT_EQ(lone.count(ChangeKind::rebooted, 3), 0u);
    return lone.count(ChangeKind::restarted, 3) == 1;
  };
  EXPECT_TRUE(raised(""));
  EXPECT_FALSE(raised("restart-raises-restarted"));
  L lone(8);
  lone.hear({L::alive(3, 9, 2, "another boot")});
  EXPECT_EQ(lone.count(ChangeKind::restarted, 3), 1u);
  EXPECT_EQ(lone.count(ChangeKind::rebooted, 3), 1u);
  lone.hear({L::alive(3, 10, 2, "another boot")});
  EXPECT_EQ(lone.count(ChangeKind::restarted, 3), 1u) << "a refutation is no restart";
}

wire::Row row_of(MemberState state, std::uint64_t i, std::uint64_t incarnation = L::kInc) {
  return {state, incarnation, L::identity(i), {}};
}

TEST(Rule06, AMergedDeadBecomesSuspectFromMe) {
  const auto suspects = [](const std::string& broken) {
    L lone(8, broken);
    lone.receive(wire::SyncRows{{row_of(MemberState::dead, 3)}, {}});
    return lone.state(3) == MemberState::suspect;
  };
  EXPECT_TRUE(suspects(""));
  EXPECT_FALSE(suspects("remote-dead-is-suspect"));
  L lone(8);
  lone.receive(wire::SyncRows{{row_of(MemberState::left, 4), row_of(MemberState::dead, 20)}, {}});
  EXPECT_EQ(lone.state(4), MemberState::left);
  EXPECT_EQ(lone.state(20), MemberState::dead) << "nobody here knew better";
}

TEST(Rule06, TakenNamesAreReportedAndNothingIsOverwritten) {
  const auto named = [](std::uint64_t i, const std::string& name, const std::string& ip) {
    wire::Identity who = *L::identity(i);
    who.name = name;
    who.address.ip = ip;
    return wire::Rumour{RumourKind::alive, who.id, 1, {}, std::make_shared<const wire::Identity>(who), nullptr, {}};
  };
  MembershipOptions options;
  options.reclaim = 600s;
  L lone(8, "", options);
  const auto join = [&](const wire::Rumour& who) {
    wire::PeerHeader header;
    header.sender = who.subject;
    lone.give(Received{header, wire::Join{"lab", {MemberState::alive, 1, who.identity, {}}}, 9, who.identity->address.ip});
  };
  lone.hear({named(50, "n3", "10.9.9.9")});
  EXPECT_EQ(lone.count(ChangeKind::conflict, 50), 1u);
  EXPECT_EQ(lone.state(50), std::nullopt);
  EXPECT_EQ(lone->find("n3")->identity->id, L::id(3));
  // Dead: not before the reclaim time. Left: at once.
  lone.hear({L::dead(3), L::claim(RumourKind::left, 4, L::kInc, 4)});
  join(named(50, "n3", "10.9.9.9"));
  join(named(51, "n4", "10.9.9.8"));
  EXPECT_EQ(lone.state(50), std::nullopt);
  EXPECT_EQ(lone.state(51), MemberState::alive);
  lone.run_answering(601s);
  join(named(50, "n3", "10.9.9.9"));
  EXPECT_EQ(lone.state(50), MemberState::alive);
  // The same machine without its old data: at once.
  join(named(52, "n5", "10.0.0.5"));
  EXPECT_EQ(lone.state(52), MemberState::alive);
  EXPECT_EQ(lone.state(5), MemberState::left);
  EXPECT_EQ(lone->find("n5")->identity->id, L::id(52));
}

TEST(Rule14, TombstonesOutliveALaggingPeer) {
  const auto stays_away = [](const std::string& broken) {
    MembershipOptions options;
    options.reclaim = 60s;
    L lone(8, broken, options);
    lone.hear({L::dead(3)});
    lone.run_answering(70s, {3});
    EXPECT_EQ(lone.state(3), std::nullopt);
    lone.receive(wire::SyncRows{{row_of(MemberState::alive, 3)}, {}});
    lone.hear({L::alive(3, L::kInc)});
    lone.receive(wire::SyncRows{{row_of(MemberState::dead, 3)}, {}});
    return lone.state(3) == std::nullopt;
  };
  EXPECT_TRUE(stays_away(""));
  EXPECT_FALSE(stays_away("tombstones-outlive-sync"));
  L lone(8);
  lone.hear({L::dead(30, 9)});
  lone.hear({L::alive(30, 9)});
  EXPECT_EQ(lone.state(30), std::nullopt) << "what was said of somebody unknown counts too";
  lone.hear({L::alive(30, 10)});
  EXPECT_EQ(lone.state(30), MemberState::alive);
}

TEST(Rule15, AnotherClustersMessagesAreDroppedAndCounted) {
  const auto dropped = [](const std::string& broken) {
    L lone(8, broken);
    wire::PeerHeader header;
    header.cluster = {8, 8};
    header.sender = L::id(3);
    lone.give(Received{header, wire::Gossip{{L::dead(4)}}, 0, ""});
    return lone.state(4) == MemberState::alive && lone->counters().drops[static_cast<std::size_t>(wire::Drop::other_cluster)] == 1;
  };
  EXPECT_TRUE(dropped(""));
  EXPECT_FALSE(dropped("other-cluster-dropped"));
}

TEST(Rule15, AJoinForAnotherClusterIsRefusedWithTheReason) {
  L lone(2);
  wire::Identity who = *L::identity(20);
  wire::PeerHeader header;
  header.sender = who.id;
  header.correlation = 77;
  const wire::Row self{MemberState::alive, 1, std::make_shared<const wire::Identity>(who), {}};
  lone.give(Received{header, wire::Join{"other", self}, 5, "10.0.0.20"});
  ASSERT_EQ(lone.sent<wire::JoinReply>().size(), 1u);
  EXPECT_NE(lone.sent<wire::JoinReply>()[0].second.refused.find("this is cluster lab, not other"), std::string::npos);
  EXPECT_EQ(lone.state(20), std::nullopt);
  lone.clear();
  lone.give(Received{header, wire::Join{"lab", self}, 5, "10.0.0.20"});
  EXPECT_EQ(lone.sent<wire::JoinReply>().at(0).second.refused, "");
  const auto reply =
      std::ranges::find_if(lone.out.sends, [](const Send& send) { return std::holds_alternative<wire::JoinReply>(send.body); });
  EXPECT_EQ(reply->header.correlation, 77u);
  EXPECT_EQ(lone.state(20), MemberState::alive);
}

TEST(Admission, AStolenNameIsRefusedWithTheReason) {
  L lone(4);
  wire::Identity who = *L::identity(20);
  who.name = "n2";
  wire::PeerHeader header;
  header.sender = who.id;
  const wire::Row self{MemberState::alive, 1, std::make_shared<const wire::Identity>(who), {}};
  lone.give(Received{header, wire::Join{"lab", self}, 5, "10.0.0.20"});
  const std::string refused = lone.sent<wire::JoinReply>().at(0).second.refused;
  EXPECT_NE(refused.find("name n2 belongs to node n2"), std::string::npos) << refused;
  EXPECT_EQ(lone->counters().members_refused, 1u);
}

TEST(Admission, ACopyOfTheDataDirectoryOnAnotherMachineIsSaid) {
  L lone(2);
  lone.give(Dropped{wire::Drop::self, "10.0.0.77"});
  EXPECT_EQ(lone.count(ChangeKind::conflict), 1u);
  lone.give(Dropped{wire::Drop::self, "127.0.0.1"});
  EXPECT_EQ(lone.count(ChangeKind::conflict), 1u) << "our own join by a local name";
}

TEST(Identity, AMembersNewAddressOrKeyIsSaidOnce) {
  L lone(4);
  const auto with = [](std::uint64_t incarnation, const std::string& ip, const std::string& key_print) {
    wire::Identity who = *L::identity(2);
    who.address.ip = ip;
    who.key_print = key_print;
    wire::Rumour rumour = L::alive(2, incarnation);
    rumour.identity = std::make_shared<const wire::Identity>(who);
    return rumour;
  };
  const std::string ip = L::identity(2)->address.ip;
  lone.hear({with(L::kInc + 1, ip, "feed")});
  EXPECT_EQ(lone.count(ChangeKind::moved, 2), 1u);
  lone.hear({with(L::kInc + 2, ip, "feed")});
  EXPECT_EQ(lone.count(ChangeKind::moved, 2), 1u) << "a refutation alone";
  lone.hear({with(L::kInc + 3, "10.9.9.9", "feed")});
  EXPECT_EQ(lone.count(ChangeKind::moved, 2), 2u);
  EXPECT_EQ(lone.count(ChangeKind::alive, 2), 0u);
}

TEST(Facts, TheHigherVersionWinsAndIsPassedOn) {
  L lone(4);
  const auto fact = [](std::uint64_t version, const std::string& value) {
    return wire::Rumour{RumourKind::fact,
                        L::id(2),
                        L::kInc,
                        {},
                        nullptr,
                        std::make_shared<const wire::Fact>(wire::Fact{wire::FactKey::free, version, value}),
                        {}};
  };
  lone.hear({fact(5, "five"), fact(4, "four")});
  EXPECT_EQ(lone->find(L::id(2))->facts[1]->value, "five");
  EXPECT_EQ(lone.count(ChangeKind::fact, 2), 1u);
  lone.run_answering(50ms);
  lone.hear({fact(6, "six")});
  EXPECT_EQ(lone->find(L::id(2))->facts[1]->value, "six");
  bool passed_on = false;
  for (const auto& [to, gossip] : lone.sent<wire::Gossip>())
    for (const wire::Rumour& rumour : gossip.rumours) passed_on = passed_on || (rumour.fact && rumour.fact->value == "five");
  EXPECT_TRUE(passed_on);
}

TEST(Record, SurvivesEncodingAndSaysWhatIsDamaged) {
  MemberRecord record;
  record.cluster_id = {1, 2};
  record.left = true;
  record.in_service = 2;
  for (std::uint64_t i = 0; i < 3; ++i) record.book.push_back(*L::identity(i, i, "b" + std::to_string(i)));
  const auto back = MemberRecord::decode(record.encode());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->cluster_id, record.cluster_id);
  EXPECT_EQ(back->book, record.book);
  EXPECT_TRUE(back->left);
  EXPECT_EQ(back->in_service, 2u);
  const auto damaged = MemberRecord::decode("nonsense");
  ASSERT_FALSE(damaged);
  EXPECT_NE(damaged.error().text().find("could not read the member record"), std::string::npos);
}

}  // namespace
}  // namespace dtrain::gossip
