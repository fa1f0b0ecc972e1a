// What was wrong once and would be found by no rule's test.
#include "tests/unit/gossip/lone_member.h"
#include "tests/unit/gossip/tiny_cluster.h"

namespace dtrain::gossip {
namespace {

using wire::MemberState;
using wire::RumourKind;
using L = LoneMember;

wire::FactPtr fact(std::uint64_t version, const std::string& value = "v") {
  return std::make_shared<const wire::Fact>(wire::Fact{wire::FactKey::free, version, value});
}
wire::Rumour fact_of(std::uint64_t i, const wire::FactPtr& fact) { return {RumourKind::fact, L::id(i), L::kInc, {}, nullptr, fact, {}}; }
wire::Row row(MemberState state, std::uint64_t i, std::uint64_t incarnation, Duration gone = {}) {
  return {state, incarnation, L::identity(i), {}, static_cast<std::uint64_t>(gone / 1ms)};
}

TEST(Defects, AFactOfVersionZeroWasReadThroughNull) {
  L lone(4);
  lone.hear({fact_of(2, fact(0)), fact_of(L::kSelf, fact(0))});
  EXPECT_EQ(lone.count(ChangeKind::fact), 0u);
  wire::PeerHeader header;
  header.sender = L::id(20);
  lone.give(Received{header, wire::Join{"lab", {MemberState::alive, 1, L::identity(20), {fact(0)}}}, 5, ""});
  ASSERT_EQ(lone.state(20), MemberState::alive);
  EXPECT_EQ(lone->find(L::id(20))->facts[1], nullptr);
}

// What is told between the copy of the table and the moment in which others know the newcomer reaches it by
// nobody: at 10,000 members that start again in hundreds, one missed a death, another a fact, until the
// periodic sync.
TEST(Defects, ANewcomerMissedWhatWasToldBeforeItWasKnown) {
  MembershipOptions options;
  options.sync_period = 1h;
  TinyCluster cluster(options);
  cluster.start(12);
  cluster.run(20s);
  const Instant joined = cluster.now();
  cluster.launch(12, cluster.self_of(12));
  cluster.lost = [&](std::size_t, std::size_t to, const wire::GossipBody& body) {
    return to == 12 && cluster.now() > joined + 1100ms && cluster.now() < joined + 2900ms && !std::holds_alternative<wire::Pong>(body);
  };
  cluster.run(1200ms);
  ASSERT_TRUE(cluster.all_alive_everywhere()) << cluster.story();
  cluster.give(1, FactChanged{wire::FactKey::free, "news"});
  cluster.run(1600ms);
  const auto known = [&](std::size_t at) {
    const auto view = cluster[at].find(TinyCluster::id_of(1));
    const auto& facts = view->facts;
    return std::ranges::any_of(facts, [](const auto& one) { return one && one->value == "news"; });
  };
  ASSERT_TRUE(known(11));
  ASSERT_FALSE(known(12)) << "the test loses nothing";
  EXPECT_TRUE(cluster.run_until([&] { return known(12); }, 5s)) << cluster.story();
}

// Idle links are closed by ourselves, which nobody reports.
TEST(Defects, ALinkThatIsNotKeptCountedAsUpForEver) {
  MembershipOptions options;
  options.random_every = 1'000'000;  // only what the test asks for is probed beside the neighbours
  L lone(30, "", options);
  lone.run_answering(1s);
  ASSERT_TRUE(lone.out.links);
  const std::vector<Peer> peers = lone.out.links->peers;
  std::uint64_t other = 0;
  const auto kept = [&](std::uint64_t i) { return std::ranges::any_of(peers, [&](const Peer& peer) { return peer.id == L::id(i); }); };
  while (kept(other)) ++other;
  const auto suspected_after = [&](std::uint64_t subject) {
    lone.clear();
    const Instant since = lone.now;
    lone.receive(wire::ProbeNow{L::identity(subject), L::kInc}, (subject + 1) % 30);
    Instant suspected = kNever;
    lone.run(6s, [&] {
      lone.answer_pings({subject});
      if (suspected == kNever && lone.count(ChangeKind::suspect, subject) != 0) suspected = lone.now;
    });
    return suspected - since;
  };
  const Duration cold = suspected_after(other);
  EXPECT_GE(cold, options.connect_deadline);
  EXPECT_LE(cold, options.connect_deadline + 1s);
  // A pong proves that it is up after all.
  std::uint64_t answers = other + 1;
  while (kept(answers)) ++answers;
  ASSERT_LT(answers, 30u);
  lone.receive(wire::ProbeNow{L::identity(answers), L::kInc}, 0);
  lone.answer_pings({other});
  EXPECT_LE(suspected_after(answers), options.probe_total + 100ms);
}

TEST(Defects, LinksThatWereUpOnceWereRememberedForEver) {
  L lone(30);
  lone.run(60s, [&] { lone.answer_pings({}), lone.clear(); });
  const std::size_t before = lone->memory_bytes();
  for (std::uint64_t i = 1000; i < 3000; ++i) lone.give(LinkUp{L::identity(i)->address});
  EXPECT_GT(lone->memory_bytes(), before + 2000 * sizeof(wire::Endpoint));
  lone.run(60s, [&] { lone.answer_pings({}), lone.clear(); });
  EXPECT_LT(lone->memory_bytes(), before + 8192);
}

TEST(Defects, AnUnconditionalSyncWasLostBehindOneWithACondition) {
  const auto synced = [](bool condition_first) {
    L lone(8);
    lone.hear({L::dead(3)});
    lone.run_answering(100ms, {3});
    lone.clear();
    const auto conditional = [&] { lone.receive(wire::Gossip{}, 4, L::kInc + 1); };
    const auto always = [&] { lone.hear({L::alive(3, L::kInc + 1)}, 3); };  // back after a cut
    if (condition_first) conditional();
    always();
    if (!condition_first) conditional();
    lone.hear({L::alive(4, L::kInc + 1)});  // the condition is met
    lone.run_answering(1s);
    const auto roots = lone.sent<wire::SyncRoot>();
    return std::ranges::any_of(roots, [](const auto& sent) { return sent.first == L::id(3); });
  };
  EXPECT_TRUE(synced(true));
  EXPECT_TRUE(synced(false));
}

TEST(Defects, TheSecondJoinOfAnAccusedNodeCarriedTheOldIncarnation) {
  TinyCluster cluster;
  cluster.start(5);
  cluster.run(15s);
  const std::uint64_t known = cluster[0].find(TinyCluster::id_of(2))->incarnation;
  wire::PeerHeader header;
  header.cluster = {7, 7};
  header.sender = TinyCluster::id_of(1);
  header.incarnation = cluster[1].incarnation();
  const wire::Rumour accusation{RumourKind::suspect, TinyCluster::id_of(2), known + 3, TinyCluster::id_of(1), nullptr, nullptr, {}};
  cluster.give(2, Received{header, wire::Gossip{{accusation}}, 2, ""});
  cluster.run(1s);
  cluster.kill(2);
  cluster.run(3s);
  cluster.record_sends = true;
  cluster.relaunch(2, 1);  // from a disk that was put back: it begins below what is known of it
  cluster.run(1s);
  std::vector<std::uint64_t> joins;
  for (const auto& [from, sent] : cluster.sent)
    if (const auto* join = std::get_if<wire::Join>(&sent.body); join && from == 2) joins.push_back(join->self.incarnation);
  ASSERT_GE(joins.size(), 2u);
  EXPECT_LE(joins.front(), known + 4);
  EXPECT_GT(joins.back(), known + 4);
}

TEST(Defects, IncarnationsAndVersionsWrapped) {
  L lone(4);
  lone.hear({L::suspect(L::kSelf, wire::kMostIncarnation - 1)});
  EXPECT_EQ(lone->incarnation(), wire::kMostIncarnation);
  lone.hear({L::suspect(L::kSelf, wire::kMostIncarnation)});
  EXPECT_EQ(lone->incarnation(), wire::kMostIncarnation);

  SilentLog log;
  Self self = L::self();
  self.identity.life = ~std::uint64_t{0};  // a damaged record
  self.facts = {{wire::FactKey::free, 0, "free"}};
  Membership node(self, {}, Rng(1), log);
  Outputs out;
  const auto told = [&] { return node.find(L::id(L::kSelf))->facts[1]->version; };
  const auto give = [&](const Input& input) { node.step(Instant{1000s}, input, out); };
  give(Tick{});
  EXPECT_GT(node.incarnation(), 0u);
  EXPECT_LT(node.incarnation(), wire::kMostIncarnation >> 10) << "room to refute";
  EXPECT_LT(told(), wire::kMostFactVersion);
  wire::PeerHeader header;
  header.cluster = {7, 7};
  header.sender = L::id(1);
  const auto hear_mine = [&](std::uint64_t version) { give(Received{header, wire::Gossip{{fact_of(L::kSelf, fact(version))}}, 2, ""}); };
  hear_mine(wire::kMostFactVersion - 1);
  EXPECT_EQ(told(), wire::kMostFactVersion);
  hear_mine(wire::kMostFactVersion);
  EXPECT_EQ(told(), wire::kMostFactVersion);
  give(FactChanged{wire::FactKey::free, "less"});
  EXPECT_EQ(told(), wire::kMostFactVersion);
}

TEST(Defects, TheHourOfADeadMemberBeganAnewAtEachWhoJoined) {
  L lone(8);
  lone.receive(wire::SyncRows{{row(MemberState::dead, 20, 5, 50min), row(MemberState::dead, 21, 5), row(MemberState::dead, 22, 5, 1000000h),
                               row(MemberState::down, 23, 5, 50min)},
                              {}});
  EXPECT_EQ(lone.state(20), MemberState::dead);
  lone.run(11min, [&] { lone.answer_pings({20, 21, 22, 23}), lone.clear(); });
  EXPECT_EQ(lone.state(20), std::nullopt);
  EXPECT_EQ(lone.state(21), MemberState::dead);
  EXPECT_EQ(lone.state(22), std::nullopt);
  EXPECT_EQ(lone.state(23), MemberState::down) << "kept for a day";
  // And it passes on what it was told, not when.
  lone.receive(wire::SyncRows{{}, {L::id(21), L::id(23), L::id(1)}});
  const auto told = lone.sent<wire::SyncRows>();
  ASSERT_EQ(told.size(), 1u);
  ASSERT_EQ(told[0].second.rows.size(), 3u);
  EXPECT_EQ(told[0].second.rows[0].gone_ms, std::uint64_t{11min / 1ms});
  EXPECT_EQ(told[0].second.rows[1].gone_ms, std::uint64_t{61min / 1ms});
  EXPECT_EQ(told[0].second.rows[2].gone_ms, 0u) << "alive";
}

TEST(Defects, OneBuriedAgainAndAgainPushedOutTheTombstonesOfOthers) {
  MembershipOptions options;
  options.tombstones = 100;
  L lone(8, "", options);
  lone.hear({L::dead(30, 9)});
  for (int i = 0; i < 500; ++i) lone.hear({L::dead(31, 9 + static_cast<std::uint64_t>(i % 5))});
  lone.hear({L::alive(30, 9), L::alive(31, 13)});
  EXPECT_EQ(lone.state(30), std::nullopt);
  EXPECT_EQ(lone.state(31), std::nullopt) << "the highest counts";
  lone.hear({L::alive(31, 14)});
  EXPECT_EQ(lone.state(31), MemberState::alive);
}

TEST(Defects, ARowBelowAnAccusationBroughtItBack) {
  L lone(8);
  lone.hear({L::dead(30, 9)});
  lone.receive(wire::SyncRows{{row(MemberState::dead, 30, 5)}, {}});
  EXPECT_EQ(lone.state(30), MemberState::dead);
  EXPECT_EQ(lone->find(L::id(30))->incarnation, 9u);
  lone.hear({L::alive(30, 9)});
  EXPECT_EQ(lone.state(30), MemberState::dead);
  lone.hear({L::alive(30, 10)});
  EXPECT_EQ(lone.state(30), MemberState::alive);
}

TEST(Defects, AfterAMassRestartAllAskedTheSameThree) {
  SilentLog log;
  std::set<wire::Endpoint> asked;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Self self = L::self();
    self.found = false;
    self.record.cluster_id = {7, 7};
    for (std::uint64_t i = 0; i < 30; ++i) self.record.book.push_back(*L::identity(i));
    Membership node(self, {}, Rng(seed), log);
    Outputs out;
    node.step(Instant{1000s}, Tick{}, out);
    std::size_t joins = 0;
    for (const Send& sent : out.sends)
      if (std::holds_alternative<wire::Join>(sent.body)) asked.insert(sent.to), ++joins;
    EXPECT_EQ(joins, 3u);
  }
  EXPECT_GT(asked.size(), 15u);
}

// World membership, 20 members, 24 h of churn with crashes and restarts, seed 1: of 256 peers that a record held all
// but a few were gone for good, and the seeds, alive, came after them.
TEST(Defects, WhoCameBackAfterADayAskedTheDeadBeforeItsSeeds) {
  SilentLog log;
  constexpr std::uint64_t kInService = 20, kPeers = 256;
  const wire::Endpoint stranger{"10.9.9.9", 7400};
  Self self = L::self();
  self.found = false;
  self.seeds = {"seed", "stranger"};
  self.record.cluster_id = {7, 7};
  for (std::uint64_t i = 0; i < kPeers; ++i) self.record.book.push_back(*L::identity(i));
  self.record.in_service = kInService;
  const wire::Endpoint seed = L::identity(200)->address;  // known, and not in service then
  Membership node(self, {}, Rng(1), log);
  std::vector<wire::Endpoint> asked;
  Instant now{1000s};
  const auto give = [&](const Input& input) {
    Outputs out;
    node.step(now, input, out);
    for (const Send& sent : out.sends)
      if (std::holds_alternative<wire::Join>(sent.body)) asked.push_back(sent.to);
    return out.resolve_seeds;
  };
  for (int round = 0; round < 100; ++round) {
    if (give(Tick{})) give(SeedsResolved{{seed, stranger}});
    now += 2s;
  }
  const auto is_one_below = [](const wire::Endpoint& at, std::uint64_t end) {
    for (std::uint64_t i = 0; i < end; ++i)
      if (L::identity(i)->address == at) return true;
    return false;
  };
  ASSERT_GT(asked.size(), kPeers + 2);
  for (std::size_t i = 0; i < 15; ++i) EXPECT_TRUE(is_one_below(asked[i], kInService)) << i << " " << asked[i].text();
  EXPECT_EQ(asked[15], seed);
  EXPECT_EQ(asked[16], stranger);
  const std::set<wire::Endpoint> all(asked.begin(), asked.begin() + kPeers + 1);
  EXPECT_EQ(all.size(), kPeers + 1) << "each once, before anyone twice";
}

// World membership, 20 members, 300 s, seed 102: a dead member was called alive for a moment, since a table knew it
// under a higher incarnation than the suspicion that was held here.
TEST(Defects, WhoWasSuspectWasAliveForAMomentWhenATableKnewMoreOfItsDeath) {
  for (const MemberState theirs : {MemberState::suspect, MemberState::down}) {
    L lone(6);
    lone.hear({L::suspect(2)});
    ASSERT_EQ(lone.state(2), MemberState::suspect);
    lone.clear();
    lone.receive(wire::SyncRows{{row(theirs, 2, L::kInc + 1)}, {}}, 3);
    EXPECT_EQ(lone.state(2), MemberState::suspect);
    EXPECT_EQ(lone->find(L::id(2))->incarnation, L::kInc + 1);
    EXPECT_EQ(lone.count(ChangeKind::alive, 2), 0u);
  }
}

// Seed 577: who accused in a message of its own did not hear the refutation when nobody else could tell it.
TEST(Defects, WhoAccusedInItsGossipIsToldTheRefutation) {
  L lone(6);
  const auto answers = [&] {
    std::size_t found = 0;
    for (const auto& [to, gossip] : lone.sent<wire::Gossip>())
      found += to == L::id(4) && gossip.rumours.size() == 1 && gossip.rumours[0].subject == L::id(L::kSelf) &&
               gossip.rumours[0].kind == RumourKind::alive && gossip.rumours[0].incarnation == lone->incarnation();
    return found;
  };
  const std::uint64_t before = lone->incarnation();
  lone.receive(wire::Gossip{{L::suspect(L::kSelf, before, 3)}}, 4);
  EXPECT_GT(lone->incarnation(), before);
  EXPECT_EQ(answers(), 1u);
}

// Seed 1127: who was cut off had lost its link, and asked its last question over one that was not up in time.
TEST(Defects, ALoneAccuserWithoutALinkDidNotWaitForTheAnswer) {
  const auto dies_after = [](bool link, bool confirmed) {
    L lone(12);
    lone.run_answering(3s);
    const std::uint64_t silent = lone.out.links->peers.at(0).id.low;
    if (!link) lone.give(LinkLost{L::identity(silent)->address});
    lone.clear();
    const Instant since = lone.now;
    Instant dead = kNever, suspected = kNever;
    lone.run(40s, [&] {
      lone.answer_pings({silent});
      if (suspected == kNever && lone.count(ChangeKind::suspect, silent) != 0) {
        suspected = lone.now;
        if (confirmed) lone.hear({L::suspect(silent, L::kInc, (silent + 1) % 12)}, (silent + 1) % 12);
      }
      if (dead == kNever && lone.count(ChangeKind::dead, silent) != 0) dead = lone.now;
    });
    EXPECT_NE(dead, kNever);
    EXPECT_GT(suspected, since);
    return dead - suspected;
  };
  const MembershipOptions options;
  EXPECT_EQ(dies_after(true, false), options.suspicion_max);
  EXPECT_EQ(dies_after(false, false), options.suspicion_max - options.probe_total + options.connect_deadline);
  EXPECT_LT(dies_after(false, true), options.suspicion_max);
}

// World cluster, three hosts, seed 24 with quorum-lost: the only one left restarted, and knew the others from its record alone. One
// came back with an empty disk; of its old id no row said that it will not, and its tasks were waited for without end.
TEST(Defects, WhoIsReplacedBeforeItCameBackHadNotLeft) {
  SilentLog log;
  Self self = L::self();
  self.found = false;
  self.record.cluster_id = {7, 7};
  self.record.book = {*L::identity(3), *L::identity(4)};
  Membership node(self, {}, Rng(1), log);
  node.preload(std::vector<wire::Row>{{MemberState::alive, L::kInc, L::identity(0), {}}});
  const auto hear = [&](const wire::Identity& who) {
    Outputs out;
    wire::PeerHeader header;
    header.cluster = {7, 7};
    header.sender = L::id(0);
    header.incarnation = L::kInc;
    const wire::Rumour alive{wire::RumourKind::alive, who.id, 1, {}, std::make_shared<const wire::Identity>(who), nullptr, {}};
    node.step(Instant{1000s}, Received{header, wire::Gossip{{alive}}, 1, "10.0.0.9"}, out);
  };
  wire::Identity elsewhere = *L::identity(4);
  elsewhere.id = L::id(78);
  elsewhere.name = "another";
  hear(elsewhere);
  EXPECT_FALSE(node.find(L::id(4))) << "its name is its own";
  wire::Identity newcomer = *L::identity(3);
  newcomer.id = L::id(77);
  hear(newcomer);
  ASSERT_TRUE(node.find(L::id(77)));
  EXPECT_EQ(node.find(L::id(77))->state, MemberState::alive);
  ASSERT_TRUE(node.find(L::id(3)));
  EXPECT_EQ(node.find(L::id(3))->state, MemberState::left);
}

// The only one left of a cluster suspected all others and, frozen, judged nobody for ever: forget-node refused each of them, and
// recover-quorum changed nothing.
TEST(Defects, AFrozenSurvivorCouldNotLetGoOfTheOthers) {
  L lone(4);
  lone.give(RemoveAsked{L::id(0)});
  EXPECT_EQ(lone.state(0), MemberState::alive);
  lone.run_answering(20s, {0, 1, 2, 3});
  ASSERT_EQ(lone.count(ChangeKind::frozen), 1u);
  ASSERT_TRUE(lone->frozen());
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_EQ(lone.state(i), MemberState::suspect) << i;
  lone.give(RemoveAsked{L::id(0)});
  EXPECT_EQ(lone.state(0), MemberState::left);
  EXPECT_TRUE(lone->frozen());
  lone.give(OthersLost{});
  for (std::uint64_t i = 1; i < 4; ++i) EXPECT_EQ(lone.state(i), MemberState::dead) << i;
  EXPECT_FALSE(lone->frozen());
  EXPECT_EQ(lone.count(ChangeKind::thawed), 1u);
  lone.hear({L::alive(2, L::kInc + 1)}, 2);
  EXPECT_EQ(lone.state(2), MemberState::alive) << "who is there refutes it";
}

TEST(Defects, ASuspectThatMayYetAnswerIsNotForgotten) {
  L lone(9);
  lone.hear({L::suspect(0)});
  ASSERT_EQ(lone.state(0), MemberState::suspect);
  lone.give(RemoveAsked{L::id(0)});
  EXPECT_EQ(lone.state(0), MemberState::suspect);
}

// After a restart a member that never came back had no row, and forget-node knew none of that name. An old word of it must not bring
// it back, here or at the others.
TEST(Defects, WhomOnlyTheRecordNamesCouldNotBeForgotten) {
  const auto start = [](SilentLog& log, std::uint64_t own) {
    Self self = L::self();
    self.identity = *L::identity(own);
    self.found = false;
    self.record.cluster_id = {7, 7};
    self.record.book = {*L::identity(3)};
    Membership node(self, {}, Rng(own), log);
    node.preload(std::vector<wire::Row>{{MemberState::alive, L::kInc, L::identity(0), {}}});
    return node;
  };
  SilentLog log;
  Membership node = start(log, L::kSelf), other = start(log, L::kSelf + 1);
  ASSERT_NE(node.absent(L::identity(3)->name), nullptr);
  EXPECT_EQ(node.absent(L::identity(3)->name)->id, L::id(3));
  EXPECT_EQ(node.absent("nobody"), nullptr);
  Outputs out, ignored;
  node.step(Instant{1000s}, RemoveAsked{L::id(3)}, out);
  ASSERT_TRUE(node.find(L::id(3)));
  EXPECT_EQ(node.find(L::id(3))->state, MemberState::left);
  EXPECT_EQ(node.absent(L::id(3)), nullptr);
  const auto hear = [&](Membership& at, const wire::Rumour& rumour) {
    wire::PeerHeader header;
    header.cluster = {7, 7};
    header.sender = L::id(0);
    header.incarnation = L::kInc;
    at.step(Instant{1000s}, Received{header, wire::Gossip{{rumour}}, 1, "10.0.0.9"}, ignored);
  };
  hear(other, L::claim(RumourKind::left, 3, 1 << 20));
  ASSERT_TRUE(other.find(L::id(3)));
  EXPECT_EQ(other.find(L::id(3))->state, MemberState::left);
  hear(other, L::alive(3, 5));
  EXPECT_EQ(other.find(L::id(3))->state, MemberState::left);
}

// Its row came back below what its tombstone barred: an old word of one that lags brought it back, and its successor had to leave.
TEST(Defects, WhoWasReapedAndIsReplacedWasDugUp) {
  for (const bool room : {true, false}) {
    MembershipOptions options;
    options.members = room ? 10 : 9;
    L lone(8, "", options);
    const std::uint64_t refuted = (std::uint64_t{1} << 20) + 5;
    lone.hear({L::alive(3, refuted), L::dead(3, refuted)});
    lone.run_answering(options.reclaim + 1min, {3});
    ASSERT_EQ(lone.state(3), std::nullopt) << "reaped";
    wire::Identity newcomer = *L::identity(3);
    newcomer.id = L::id(77);
    lone.hear({{RumourKind::alive, newcomer.id, 1, {}, std::make_shared<const wire::Identity>(newcomer), nullptr, {}}});
    ASSERT_EQ(lone.state(77), MemberState::alive);
    EXPECT_EQ(lone.state(3).has_value(), room) << "the table has its limit";
    lone.hear({L::alive(3, refuted)});
    EXPECT_EQ(lone.state(77), MemberState::alive);
  }
}

}  // namespace
}  // namespace dtrain::gossip
