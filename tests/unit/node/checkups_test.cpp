// `doctor` between nodes: who is examined and asked, what is made of the answers, and that every request ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  std::uint64_t ask() {
    mark = one().effects.size();
    (void)one().ask<wire::DoctorReply>(MessageType::query_doctor, wire::Empty{});
    examine = effects_of<Examine>(one(), mark);
    opened = effects_of<OpenRelay>(one(), mark);
    return one().requests();
  }
  void examined(House& house, const Examine& what) {
    Examined e;
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
  EXPECT_EQ(examine.at(0).peers.size(), 1u);
  examined(one(), examine[0]);
  answer(opened[0], well());
  EXPECT_THAT(said(number), HasSubstr("bad reach n3: its agent is down, and its host is up"));
}

TEST_F(CheckupsTest, AnotherAgentHearsWhatIsWrongHereAndHowItIsSeen) {
  RelayReceived e;
  e.header.sender = *MemberId::parse(houses[1]->started.facts.id);
  wire::RelayOpen open;
  open.stream = 7;
  open.allowed = 1000;
  e.message = open;
  mark = one().effects.size();
  one().give(e);
  const auto accepted = effects_of<AcceptRelay>(one(), mark);
  ASSERT_EQ(accepted.size(), 1u);
  const ConnectionId connection = accepted[0].connection;
  one().give(Request{connection, 1, wire::encode(wire::make_message(MessageType::query_doctor, 1, wire::Empty{}))});
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
  const std::uint64_t number = ask();
  for (const OpenRelay& open : opened) {
    wire::DoctorReply ill = well();
    ill.findings.assign(kFindings / 2, {"disk", "n2", "bad", "full", "empty it"});
    answer(open, ill);
  }
  examined(one(), examine[0]);
  const auto reply = one().answer<wire::DoctorReply>(number);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->findings.size(), kFindings) << "what is well is left out, and that is enough";
  for (const wire::Finding& f : reply->findings) ASSERT_EQ(f.level, "bad");
  const std::uint64_t more = ask();
  for (const OpenRelay& open : opened) {
    wire::DoctorReply ill = well();
    ill.findings.assign(kFindings, {"disk", "n2", "bad", "full", "empty it"});
    answer(open, ill);
  }
  examined(one(), examine[0]);
  const auto cut = one().answer<wire::DoctorReply>(more);
  ASSERT_TRUE(cut);
  ASSERT_EQ(cut->findings.size(), kFindings + 1);
  EXPECT_EQ(cut->findings.back().finding, std::to_string(kFindings) + " more findings are left out");
}

TEST_F(CheckupsTest, AClientThatGoesIsForgottenAndTooManyAreRefused) {
  for (std::size_t i = 0; i < kCheckups; ++i) ask();
  const std::uint64_t refused = ask();
  EXPECT_THAT(said(refused), HasSubstr("it is being examined 8 times already; try again in a moment"));
  EXPECT_TRUE(examine.empty());
  for (std::uint64_t number = refused - kCheckups; number < refused; ++number) one().give(ConnectionClosed{number});
  EXPECT_EQ(effects_of<CloseRelay>(one(), 0).size(), 2 * kCheckups);
  ask();
  EXPECT_EQ(examine.size(), 1u);
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
