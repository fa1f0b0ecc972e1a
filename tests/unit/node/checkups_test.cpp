// `doctor` between nodes: who is examined and asked, what is made of the answers, and that every request ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "common/node/checkups.h"
#include "tests/unit/node/two_nodes.h"

namespace dtrain::node {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using wire::MessageType;
using How = RelayEnded::How;

class CheckupsTest : public ::testing::Test {
 protected:
  CheckupsTest() {
    for (const char* name : {"n1", "n2", "n3"}) {
      houses.push_back(&town.add(name));
      houses.back()->start();
      town.run_for(1s);
    }
    town.run_for(15s);
  }
  template <class E>
  std::vector<E> effects_of(const House& house, std::size_t from) {
    std::vector<E> found;
    for (std::size_t i = from; i < house.effects.size(); ++i)
      if (const auto* wanted = std::get_if<E>(&house.effects[i])) found.push_back(*wanted);
    return found;
  }
  // A client asks n1: the number of its request.
  std::uint64_t ask(std::uint32_t uid = 0) {
    mark = one().effects.size();
    (void)one().ask<wire::DoctorReply>(MessageType::query_doctor, wire::Empty{}, uid);
    examine = effects_of<Examine>(one(), mark);
    opened = effects_of<OpenRelay>(one(), mark);
    return one().requests();
  }
  // `as`: what else was seen.
  void examined(House& house, const Examine& what, const Examination& as = {}) {
    Examined e;
    e.seen = as;
    e.token = what.token;
    e.seen.terms.name = house.started.facts.name;
    e.seen.terms.listen_ip = "0.0.0.0";
    e.seen.terms.port = 7400;
    e.seen.terms.advertise = e.seen.terms.task_address = house.address().ip;
    e.seen.advertise_interface = e.seen.task_interface = "eth0";
    e.seen.cgroup2 = {"memory", "pids"};
    e.seen.terms.keyed = true;
    house.give(e);
  }
  void answer(const OpenRelay& open, const wire::DoctorReply& reply) {
    one().give(RelayAnswered{open.connection, wire::encode(wire::make_message(MessageType::doctor, 1, reply))});
    one().give(RelayEnded{open.part, How::done, {}});
  }
  // An agent asks n1, for a client of it: the connection.
  ConnectionId ask_from(const House& agent, std::uint64_t stream) {
    RelayReceived e;
    e.header.sender = *MemberId::parse(agent.started.facts.id);
    wire::RelayOpen open;
    open.stream = stream;
    open.allowed = 1000;
    open.user = "somebody";
    open.uid = 1000;
    e.message = open;
    one().give(e);
    const auto accepted = effects_of<AcceptRelay>(one(), 0);
    if (accepted.empty()) return 0;
    const ConnectionId connection = accepted.back().connection;
    one().give(Request{connection, 1, wire::encode(wire::make_message(MessageType::query_doctor, 1, wire::Empty{}))});
    return connection;
  }
  // How many answers n1 gave there, and how many of them are no errors.
  std::pair<int, int> answers_at(ConnectionId connection) {
    std::pair<int, int> count;
    for (const Reply& reply : effects_of<Reply>(one(), 0))
      if (reply.connection == connection)
        ++count.first, count.second += wire::decode<wire::Message>(reply.body)->type == MessageType::doctor;
    return count;
  }
  wire::DoctorReply well() {
    wire::DoctorReply reply;
    reply.wall_ms = town.now.wall.time_since_epoch().count();
    reply.sight.address = "10.0.0.1:7400";
    return reply;
  }
  std::string said(std::uint64_t number) {
    const auto reply = one().answer<wire::DoctorReply>(number);
    if (!reply) return "no answer: " + reply.error().text();
    std::string text;
    for (const wire::Finding& f : reply->findings) text += f.level + " " + f.check + " " + f.node + ": " + f.finding + "\n";
    return text;
  }
  House& one() { return *houses[0]; }

  Town town;
  std::vector<House*> houses;
  std::size_t mark = 0;
  std::vector<Examine> examine;
  std::vector<OpenRelay> opened;
};

TEST_F(CheckupsTest, ThisHostIsExaminedAndAllOthersAreAsked) {
  const std::uint64_t number = ask();
  ASSERT_EQ(examine.size(), 1u);
  ASSERT_EQ(examine[0].peers.size(), 2u);
  EXPECT_EQ(examine[0].peers[0].name, "n2");
  EXPECT_EQ(examine[0].peers[0].address.text(), "10.0.0.2:7400");
  ASSERT_EQ(opened.size(), 2u);
  EXPECT_EQ(wire::decode<wire::Message>(opened[0].query)->type, MessageType::query_doctor);
  answer(opened[0], well());
  examined(one(), examine[0]);
  EXPECT_THAT(said(number), HasSubstr("no answer")) << "n3 has not answered yet";
  wire::DoctorReply third = well();
  third.findings = {{"disk", "n3", "bad", "full", "empty it"}};
  answer(opened[1], third);
  EXPECT_THAT(said(number), HasSubstr("ok reach n2: both ports"));
  EXPECT_THAT(said(number), HasSubstr("bad disk n3: full"));
  EXPECT_THAT(said(number), HasSubstr("ok cluster n1: belongs to lab, coordinated by n1"));
  EXPECT_THAT(said(number), HasSubstr("ok disk n1"));
  EXPECT_EQ(one().node().own_connections(), 0u);
}

TEST_F(CheckupsTest, AClockIsJudgedByTheWayOfTheAnswerAlone) {
  const std::uint64_t number = ask();
  examined(one(), examine[0]);
  town.run_for(3s);  // n2 took as long to look at itself; half a second is the way
  wire::DoctorReply slow = well();
  slow.took_ns = Duration(2500ms).count();
  slow.wall_ms -= 250;
  answer(opened[0], slow);
  wire::DoctorReply wrong = well();
  wrong.took_ns = Duration(3s).count();
  wrong.wall_ms += 100'000;
  answer(opened[1], wrong);
  EXPECT_THAT(said(number), HasSubstr("bad clock n3: the clock of n3 is 100.0 s ahead of those of most members (give or take 0.0 s)"));
  EXPECT_THAT(said(number), Not(HasSubstr("clock n2")));
}

TEST_F(CheckupsTest, WhoDoesNotAnswerIsNamed) {
  const std::uint64_t number = ask();
  examined(one(), examine[0]);
  one().give(RelayEnded{opened[0].part, How::lost, {ErrorCode::unavailable, "was silent for 30 s", ""}});
  town.run_for(kPeerAnswersWithin + 1s);
  EXPECT_THAT(said(number), HasSubstr("bad reach n2: its agent does not answer n1: was silent for 30 s"));
  EXPECT_THAT(said(number), HasSubstr("bad reach n3: its agent does not answer n1: within 18 s nothing came"));
  EXPECT_EQ(effects_of<CloseRelay>(one(), mark).size(), 1u);
  // What comes after that is nobody's any more.
  EXPECT_EQ(one().node().own_connections(), 0u);
  answer(opened[1], well());
}

TEST_F(CheckupsTest, WhoGoesMeanwhileIsNotWaitedFor) {
  const std::uint64_t number = ask();
  examined(one(), examine[0]);
  answer(opened[0], well());
  town.kill(*houses[2]);
  town.run_for(5s);
  EXPECT_THAT(said(number), HasSubstr("bad reach n3: its agent does not answer n1: host n3 is down"));
}

TEST_F(CheckupsTest, AHostThatHangsIsSaidToHang) {
  const std::uint64_t number = ask();
  for (const OpenRelay& open : opened) answer(open, well());
  town.run_for(kExamineWithin - 1s);
  EXPECT_THAT(said(number), HasSubstr("no answer"));
  town.run_for(2s);
  EXPECT_THAT(said(number), HasSubstr("bad host n1: it could not be examined within 15 s"));
  EXPECT_THAT(said(number), HasSubstr("ok reach n2"));
  examined(one(), examine[0]);  // too late
}

TEST_F(CheckupsTest, AnAgentThatIsDownIsNotAsked) {
  town.kill(*houses[2]);
  town.run_for(5s);
  const std::uint64_t number = ask();
  EXPECT_EQ(opened.size(), 1u);
  EXPECT_EQ(examine.at(0).peers.size(), 2u) << "whether anybody listens there is looked at";
  examined(one(), examine[0]);
  answer(opened[0], well());
  EXPECT_THAT(said(number), HasSubstr("bad reach n3: its agent is down, and its host is up"));
}

TEST_F(CheckupsTest, AnotherAgentHearsWhatIsWrongHereAndHowItIsSeen) {
  mark = one().effects.size();
  const ConnectionId connection = ask_from(*houses[1], 7);
  examine = effects_of<Examine>(one(), mark);
  ASSERT_EQ(examine.size(), 1u);
  ASSERT_EQ(examine[0].peers.size(), 1u) << "only the one that asks";
  EXPECT_EQ(examine[0].peers[0].name, "n2");
  EXPECT_TRUE(effects_of<OpenRelay>(one(), mark).empty()) << "nobody else is asked";
  town.run_for(2s);
  Examined seen;
  seen.token = examine[0].token;
  seen.seen.terms.name = "n1";
  seen.seen.cgroup2 = {"memory", "pids"};
  seen.seen.contacts = {{Contact::Answer::silent, "n2", {"10.0.0.2", 7400}, false, ""}};
  seen.seen.disks = {{"paths.data", "/d", "", 100, 50, 0, 0, true, false, false}};
  one().give(seen);
  const auto replies = effects_of<Reply>(one(), mark);
  ASSERT_FALSE(replies.empty());
  EXPECT_EQ(replies.back().connection, connection);
  const auto message = wire::decode<wire::Message>(replies.back().body);
  ASSERT_EQ(message->type, MessageType::doctor);
  const auto reply = wire::decode<wire::DoctorReply>(message->payload);
  for (const wire::Finding& f : reply->findings) EXPECT_NE(f.level, "ok") << f.finding;
  ASSERT_EQ(reply->findings.size(), 1u);
  EXPECT_THAT(reply->findings[0].finding, HasSubstr("mounted read-only"));
  EXPECT_EQ(reply->sight.address, "10.0.0.2:7400");
  EXPECT_EQ(reply->sight.gossip, "there is no answer");
  EXPECT_EQ(Duration(reply->took_ns), 2s);
  EXPECT_EQ(reply->wall_ms, town.now.wall.time_since_epoch().count());
}

TEST_F(CheckupsTest, MoreThanCanBeToldIsLeftOut) {
  const wire::Finding full{"disk", "n2", "bad", "full", "empty it"};
  const std::uint64_t number = ask();
  wire::DoctorReply ill = well(), endless = well();
  ill.findings.assign(kPeerFindings + 1, full);
  answer(opened[0], ill);
  endless.findings.assign(2 * kPeerFindings, full);
  answer(opened[1], endless);
  Examination seen;
  seen.disks.assign(kFindings - 3 * kPeerFindings, {"paths.data", "/d", "gone", 0, 0, 0, 0, false, false, false});
  examined(one(), examine[0], seen);
  const auto reply = one().answer<wire::DoctorReply>(number);
  ASSERT_TRUE(reply);
  EXPECT_LE(reply->findings.size(), kFindings);
  const auto of_peers = std::ranges::count(reply->findings, full);
  EXPECT_EQ(static_cast<std::size_t>(of_peers), 2 * (kPeerFindings + 1)) << "whatever a member says";
  EXPECT_THAT(said(number), HasSubstr("warn host n3: " + std::to_string(kPeerFindings - 1) + " more findings are left out"));
  EXPECT_THAT(said(number), HasSubstr("\nok "));
  // What is well is left out first, and then the rest.
  const std::uint64_t more = ask();
  for (const OpenRelay& open : opened) answer(open, well());
  seen.disks.resize(kFindings, seen.disks.front());
  examined(one(), examine[0], seen);
  const auto cut = one().answer<wire::DoctorReply>(more);
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->findings.size(), kFindings);
  for (const wire::Finding& f : cut->findings) ASSERT_EQ(f.level, "bad");
  const std::uint64_t most = ask();
  for (const OpenRelay& open : opened) answer(open, ill);
  examined(one(), examine[0], seen);
  const auto rest = one().answer<wire::DoctorReply>(most);
  ASSERT_TRUE(rest);
  ASSERT_EQ(rest->findings.size(), kFindings + 1);
  EXPECT_EQ(rest->findings.back().finding, std::to_string(2 * (kPeerFindings + 1)) + " more findings are left out");
}

TEST_F(CheckupsTest, AnAnswerThatIsTooLongIsNone) {
  const std::uint64_t number = ask();
  wire::DoctorReply huge = well();
  huge.sight.named.assign(kPeerAnswerBytes / 10, "192.0.2.177");
  answer(opened[0], huge);
  answer(opened[1], well());
  examined(one(), examine[0]);
  EXPECT_THAT(said(number), HasSubstr("warn reach n2: it was not asked: its answer has more than 262144 bytes"));
}

TEST_F(CheckupsTest, AMemberMaySayAnyTime) {
  const std::uint64_t number = ask();
  examined(one(), examine[0]);
  wire::DoctorReply late = well(), early = well();
  late.wall_ms = std::numeric_limits<std::int64_t>::max();
  late.took_ns = std::numeric_limits<std::int64_t>::min();
  answer(opened[0], late);
  early.wall_ms = std::numeric_limits<std::int64_t>::min();
  early.took_ns = std::numeric_limits<std::int64_t>::max();
  answer(opened[1], early);
  EXPECT_THAT(said(number), HasSubstr("bad clock n2: the clock of n2 is 3155695200.0 s ahead of those of most members"));
  EXPECT_THAT(said(number), HasSubstr("bad clock n3: the clock of n3 is 3155695200.0 s behind those of most members"));
}

TEST_F(CheckupsTest, AClientThatGoesIsForgottenAndTooManyAreRefused) {
  std::vector<Examine> all;
  for (std::uint32_t i = 0; i < kCheckups; ++i) {
    ask(1000 + i / kCheckupsOfUser);
    all.push_back(examine.at(0));
  }
  const std::uint64_t refused = ask(999), once_more = ask(1000);
  EXPECT_THAT(said(refused), HasSubstr("it is being examined 8 times already; try again in a moment"));
  EXPECT_THAT(said(once_more), HasSubstr("it is being examined 2 times already for the same user; try again in a moment"));
  EXPECT_TRUE(examine.empty());
  for (std::uint64_t number = refused - kCheckups; number < refused; ++number) one().give(ConnectionClosed{number});
  EXPECT_EQ(effects_of<CloseRelay>(one(), 0).size(), 2 * kCheckups);
  // Its place is free when the examination has ended, which nobody can stop; or when that hangs.
  EXPECT_THAT(said(ask(999)), HasSubstr("already"));
  for (std::size_t i = 0; i < kCheckupsOfUser; ++i) examined(one(), all[i]);
  for (const std::uint32_t uid : {1000u, 999u}) {
    ask(uid);
    EXPECT_EQ(examine.size(), 1u);
  }
  EXPECT_THAT(said(ask(998)), HasSubstr("8 times already"));
  town.run_for(kExamineWithin + 1s);
  ask(998);
  EXPECT_EQ(examine.size(), 1u);
}

TEST_F(CheckupsTest, AllTogetherLeaveStreamsToOthers) {
  for (const char* name : {"n4", "n5", "n6"}) town.add(name).start();
  town.run_for(15s);
  std::vector<OpenRelay> all;
  for (std::uint32_t i = 0; i < kCheckups; ++i) {
    ask(1000 + i / kCheckupsOfUser);
    all.insert(all.end(), opened.begin(), opened.end());
  }
  EXPECT_EQ(all.size(), kPeersAskedAtOnce) << "of five others each";
  mark = one().effects.size();
  answer(all[0], well());
  EXPECT_EQ(effects_of<OpenRelay>(one(), mark).size(), 1u) << "who waited is next";
}

TEST_F(CheckupsTest, WhoHasNoRoomForTheQuestionIsNotOutOfReach) {
  const std::uint64_t number = ask();
  examined(one(), examine[0]);
  one().give(RelayEnded{opened[0].part, How::refused, {ErrorCode::limit, "could not examine host n2: it is being examined", "try again"}});
  answer(opened[1], well());
  EXPECT_THAT(said(number), HasSubstr("warn reach n2: it was not asked: could not examine host n2: it is being examined"));
  EXPECT_THAT(said(number), Not(HasSubstr("bad reach")));
}

TEST_F(CheckupsTest, AgentsShareAnExaminationAndTakeNoClientsPlace) {
  const std::size_t from = one().effects.size();
  const auto begun = [&] { return effects_of<Examine>(one(), from); };
  std::vector<ConnectionId> asked{ask_from(*houses[1], 1)};
  for (std::uint64_t stream = 2; stream < 2 + kCheckups; ++stream) {
    asked.push_back(ask_from(*houses[1], stream));
    asked.push_back(ask_from(*houses[2], stream));
  }
  ASSERT_EQ(begun().size(), 1u);
  examined(one(), begun()[0]);
  EXPECT_EQ(answers_at(asked[0]), std::pair(1, 1));
  EXPECT_EQ(answers_at(asked[1]), std::pair(0, 0)) << "it asked after that one had begun";
  ASSERT_EQ(begun().size(), 2u);
  EXPECT_EQ(begun()[1].peers.size(), 2u);
  const Examine second = begun()[1];
  ask();
  EXPECT_EQ(examine.size(), 1u);
  examined(one(), second);
  for (const ConnectionId connection : asked) EXPECT_EQ(answers_at(connection), std::pair(1, 1));
}

TEST_F(CheckupsTest, TooManyAgentsAreRefused) {
  std::vector<ConnectionId> asked;
  for (std::uint64_t stream = 1; stream <= kCheckupsOfAgents / 2; ++stream)
    for (const House* house : {houses[1], houses[2]}) asked.push_back(ask_from(*house, stream));
  EXPECT_EQ(answers_at(asked.back()), std::pair(0, 0));
  EXPECT_EQ(answers_at(ask_from(*houses[1], 1000)), std::pair(1, 0));
}

TEST_F(CheckupsTest, AgentsAreToldInTimeWhereOneExaminationHangs) {
  mark = one().effects.size();
  const ConnectionId first = ask_from(*houses[1], 1);
  town.run_for(1s);
  const ConnectionId second = ask_from(*houses[1], 2);
  town.run_for(kExamineWithin - 900ms);
  EXPECT_EQ(answers_at(first), std::pair(1, 1));
  EXPECT_EQ(answers_at(second), std::pair(0, 0));
  EXPECT_EQ(effects_of<Examine>(one(), mark).size(), 2u) << "the next one begins";
  town.run_for(1s);
  EXPECT_EQ(answers_at(second), std::pair(1, 1));
  EXPECT_LT(kExamineWithin, kPeerAnswersWithin);
}

TEST_F(CheckupsTest, AHostThatCannotBeExaminedSaysWhy) {
  const std::uint64_t number = ask();
  for (const OpenRelay& open : opened) answer(open, well());
  Examined e;
  e.token = examine[0].token;
  e.error = Error{ErrorCode::limit, "16 earlier examinations of it have not ended", ""};
  one().give(e);
  EXPECT_THAT(said(number), HasSubstr("bad host n1: it could not be examined: 16 earlier examinations of it have not ended"));
  EXPECT_THAT(said(number), HasSubstr("ok reach n2"));
}

TEST_F(CheckupsTest, WhatProgramsOthersRunOnlyOperatorsAreTold) {
  Examination seen;
  seen.strangers = {{20017, "python3 (pid 4711)"}};
  for (const std::uint32_t uid : {0u, 1000u}) {
    const std::uint64_t number = ask(uid);
    const auto query = opened[0].open;
    EXPECT_EQ(query.uid, uid) << "others judge by it, too";
    for (const OpenRelay& open : opened) answer(open, well());
    examined(one(), examine[0], seen);
    EXPECT_THAT(said(number), HasSubstr("taken by programs that are no tasks: 20017"));
    EXPECT_EQ(said(number).find("20017 by python3 (pid 4711)") != std::string::npos, uid == 0);
  }
}

TEST_F(CheckupsTest, AnUnfitHostIsFoundWithTheLineOfItsCheck) {
  one().give(HostChecked{{1, 0, "", "/scratch is not mounted\n"}});
  const std::uint64_t number = ask();
  for (const OpenRelay& open : opened) answer(open, well());
  examined(one(), examine[0]);
  EXPECT_THAT(said(number), HasSubstr("bad health n1: no new tasks are placed here: health check ended with 1: /scratch is not mounted"));
}

TEST_F(CheckupsTest, ACheckThatHasNotEndedYetIsAWarning) {
  town.kill(one());
  ++one().started.life;
  one().started.facts.unfit = kNotChecked;
  one().start();
  town.run_for(15s);
  const auto health = [&] {
    const std::uint64_t number = ask();
    for (const OpenRelay& open : opened) answer(open, well());
    examined(one(), examine[0]);
    return said(number);
  };
  EXPECT_THAT(health(), HasSubstr("warn health n1: no new tasks are placed here: its health check has not ended yet"));
  one().give(HostChecked{{1, 0, "", ""}});
  town.run_for(2s);
  EXPECT_THAT(health(), HasSubstr("bad health n1: no new tasks are placed here: health check ended with 1"));
}

TEST_F(CheckupsTest, AGpuThatFellSickIsFound) {
  one().give(GpuFaulted{{"0000:20:00.0", 79, "GPU has fallen off the bus"}});
  const std::uint64_t number = ask();
  for (const OpenRelay& open : opened) answer(open, well());
  examined(one(), examine[0]);
  EXPECT_THAT(said(number), HasSubstr("bad gpus n1: GPU 1 at 0000:20:00.0"));
  EXPECT_THAT(said(number), HasSubstr("Xid 79: GPU has fallen off the bus"));
}

TEST_F(CheckupsTest, WhereOthersSeeThisNodeIsFound) {
  town.add("n4").start();
  town.translated = &one();
  town.seen_at = "192.0.2.7";
  town.run_for(60s);
  const std::uint64_t number = ask();
  for (const OpenRelay& open : opened) answer(open, well());
  examined(one(), examine[0]);
  EXPECT_THAT(said(number), HasSubstr("warn addresses n1: peers see this node at 192.0.2.7, it advertises 10.0.0.1\n"));
  town.translated = nullptr;
  town.run_for(60s);
  const std::uint64_t mended = ask();
  for (const OpenRelay& open : opened) answer(open, well());
  examined(one(), examine[0]);
  EXPECT_THAT(said(mended), HasSubstr("ok addresses n1"));
  EXPECT_THAT(said(mended), Not(HasSubstr("192.0.2.7")));
}

TEST_F(CheckupsTest, AHostWithoutAClusterSaysForWhatItWaits) {
  House& lonely = town.add("n4");
  lonely.started.members.seeds = {"10.0.0.77"};
  town.cut_off = &lonely;
  lonely.start();
  town.run_for(2s);
  (void)lonely.ask<wire::DoctorReply>(MessageType::query_doctor, wire::Empty{});
  const auto asked = effects_of<Examine>(lonely, 0);
  ASSERT_EQ(asked.size(), 1u);
  examined(lonely, asked[0]);
  const auto reply = lonely.answer<wire::DoctorReply>(lonely.requests());
  ASSERT_TRUE(reply) << reply.error().text();
  std::string text;
  for (const wire::Finding& f : reply->findings) text += f.level + " " + f.check + ": " + f.finding + "\n";
  EXPECT_THAT(text, HasSubstr("bad cluster: this host belongs to no cluster: it waits for"));
}

TEST_F(CheckupsTest, AMajorityThatIsLostIsFound) {
  town.kill(*houses[1]);
  town.kill(*houses[2]);
  town.run_for(60s);
  const std::uint64_t number = ask();
  examined(one(), examine[0]);
  town.run_for(kCheckupWithin);
  EXPECT_THAT(said(number), HasSubstr("bad cluster n1: no coordinator is known"));
}

}  // namespace
}  // namespace dtrain::node
