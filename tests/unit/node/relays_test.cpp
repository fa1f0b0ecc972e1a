// Requests that are answered at another host: whom they are opened with, who may open one, when they are over. The bytes
// between are the agent's; here a test says what they brought.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/node/relays.h"
#include "tests/unit/node/two_nodes.h"

namespace dtrain::node {
namespace {

using ::testing::HasSubstr;
using wire::MessageType;
using How = RelayEnded::How;

template <class E>
std::vector<E> effects_of(const House& house, std::size_t from = 0) {
  std::vector<E> found;
  for (std::size_t i = from; i < house.effects.size(); ++i)
    if (const auto* wanted = std::get_if<E>(&house.effects[i])) found.push_back(*wanted);
  return found;
}

class RelaysTest : public ::testing::Test {
 protected:
  RelaysTest() {
    for (const char* name : {"n1", "n2", "n3"}) {
      houses.push_back(&town.add(name));
      houses.back()->started.facts.task_address = houses.back()->address().ip;
    }
    for (House* house : houses) {
      house->start();
      town.run_for(1s);
    }
    town.run_for(15s);
    job::JobSpec spec;
    spec.name = "j";
    spec.framework = job::Framework::generic;
    spec.policy.placement = job::Placement::spread;
    job::RoleSpec role;
    role.replicas = role.min_replicas = 3;
    role.command = {"true"};
    spec.roles["worker"] = role;
    wire::SubmitRequest submit;
    submit.spec = wire::encode(spec);
    (void)houses[0]->ask<wire::SubmitReply>(MessageType::submit, submit, 1000);
    town.run_for(1s);
    for (House* house : houses) run(*house);
    town.run_for(2s);
    for (House* house : houses) {
      for (const StartAttempt& start : effects_of<StartAttempt>(*house)) house->give(AttemptStarted{start.id, start.attempt, 4711, {}});
    }
    town.run_for(2s);
  }
  void run(House& house) {
    for (const Stage& stage : effects_of<Stage>(house)) {
      house.give(Staged{stage.id, std::string("/work")});
      house.give(ShimUp{stage.id, {}});
    }
  }
  std::string task_on(const std::string& node) {
    const auto reply = houses[0]->ask<wire::TasksReply>(MessageType::query_tasks, wire::JobName{"j"});
    if (!reply) return "";
    for (const wire::TaskView& t : reply->tasks)
      if (t.node == node && t.state == "Running") return t.task;
    return "";
  }
  wire::LogsRequest logs(const std::string& task, bool follow = false) {
    wire::LogsRequest q;
    q.job = "j";
    q.task = task;
    q.follow = follow;
    return q;
  }
  // Of a request to `house` since: what it opened.
  template <class Query>
  std::vector<OpenRelay> opened(House& house, MessageType type, const Query& query, std::uint32_t uid = 0) {
    const std::size_t before = house.effects.size();
    (void)house.ask<wire::Empty>(type, query, uid);
    return effects_of<OpenRelay>(house, before);
  }
  // `other` is told to open a stream by houses[0].
  RelayReceived open(std::uint64_t stream, std::uint32_t uid = 0, std::uint64_t applied = 0) {
    RelayReceived e;
    e.header.sender = *MemberId::parse(houses[0]->started.facts.id);
    wire::RelayOpen o;
    o.stream = stream;
    o.user = "somebody";
    o.uid = uid;
    o.applied = applied;
    o.allowed = 1000;
    e.message = o;
    return e;
  }
  std::string replied(House& house, ConnectionId connection, std::size_t before) {
    std::string text;
    for (const Reply& r : effects_of<Reply>(house, before)) {
      if (r.connection != connection) continue;
      const auto message = wire::decode<wire::Message>(r.body);
      if (!message || message->type != MessageType::error) continue;
      text += wire::decode<wire::ErrorReply>(message->payload)->errors.front().message;
    }
    return text;
  }

  Town town;
  std::vector<House*> houses;
};

TEST_F(RelaysTest, ATaskElsewhereIsAskedWhereItIs) {
  const std::string there = task_on("n3"), here = task_on("n1");
  ASSERT_FALSE(there.empty());
  const auto parts = opened(*houses[0], MessageType::logs, logs(there), 1000);
  ASSERT_EQ(parts.size(), 1u);
  const OpenRelay& part = parts.front();
  ASSERT_TRUE(part.peer);
  EXPECT_EQ(part.peer->member.text(), houses[2]->started.facts.id);
  EXPECT_EQ(part.peer->to, houses[2]->address());
  EXPECT_EQ((std::tuple(part.open.user, part.open.uid, part.whole)), (std::tuple(std::string("somebody"), 1000u, false)));
  EXPECT_GT(part.open.applied, 0u);
  const auto query = wire::decode<wire::Message>(part.query);
  ASSERT_TRUE(query);
  EXPECT_EQ((std::pair(query->type, query->request)), (std::pair(MessageType::logs, std::uint64_t{1})));
  const std::uint64_t number = houses[0]->requests();
  EXPECT_FALSE(houses[0]->answers.contains(number));
  houses[0]->give(RelayEnded{part.part, How::done, {}});
  ASSERT_TRUE(houses[0]->answers.contains(number));
  EXPECT_TRUE(houses[0]->answers.at(number).last);
  EXPECT_EQ(houses[0]->answers.at(number).type, MessageType::log_chunk);
  // One that is here needs nobody else; the whole job needs all three.
  EXPECT_TRUE(opened(*houses[0], MessageType::logs, logs(here)).empty());
  EXPECT_EQ(opened(*houses[0], MessageType::logs, logs("")).size(), 3u);
  EXPECT_TRUE(opened(*houses[0], MessageType::logs, logs(there), 1001).empty()) << "somebody else's job";
}

TEST_F(RelaysTest, OnlyWhatIsMissingIsMissed) {
  const auto parts = opened(*houses[0], MessageType::logs, logs(""));
  ASSERT_EQ(parts.size(), 3u);
  const std::uint64_t number = houses[0]->requests();
  for (const OpenRelay& part : parts)
    houses[0]->give(RelayEnded{part.part,
                               part.peer && part.peer->to == houses[2]->address() ? How::lost : How::done,
                               {ErrorCode::unavailable, "was silent for 30 s", "try again"}});
  const auto answer = houses[0]->answer<wire::LogChunk>(number);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().text(), "could not read all logs of j: host n3 was silent for 30 s; try again");
}

TEST_F(RelaysTest, AFollowedLogOutlivesAHost) {
  const std::string there = task_on("n3");
  const auto parts = opened(*houses[0], MessageType::logs, logs(there, true));
  ASSERT_EQ(parts.size(), 1u);
  const std::uint64_t number = houses[0]->requests();
  std::size_t before = houses[0]->effects.size();
  town.kill(*houses[2]);
  town.run_for(5s);
  ASSERT_EQ(effects_of<CloseRelay>(*houses[0], before).size(), 1u);
  ASSERT_TRUE(houses[0]->answers.contains(number));
  EXPECT_FALSE(houses[0]->answers.at(number).last);
  EXPECT_THAT(houses[0]->answer<wire::LogChunk>(number)->note, HasSubstr("host n3 is down"));
  EXPECT_TRUE(effects_of<CloseConnection>(*houses[0], before).empty());
  // Back within its grace: what was printed knows the client alone.
  houses[2]->started.life = 2;
  houses[2]->start();
  town.run_for(5s);
  EXPECT_FALSE(effects_of<CloseConnection>(*houses[0], before).empty());
  houses[0]->give(ConnectionClosed{number});
  before = houses[0]->effects.size();
  town.kill(*houses[2]);
  town.run_for(5s);
  EXPECT_TRUE(effects_of<CloseConnection>(*houses[0], before).empty());
}

TEST_F(RelaysTest, AFollowedTaskIsFollowedToAnotherHost) {
  const std::string there = task_on("n3");
  ASSERT_EQ(opened(*houses[0], MessageType::logs, logs(there, true)).size(), 1u);
  const std::size_t before = houses[0]->effects.size();
  town.kill(*houses[2]);
  town.run_for(40s);
  const auto parts = effects_of<OpenRelay>(*houses[0], before);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_THAT(houses[0]->answer<wire::LogChunk>(houses[0]->requests())->note, HasSubstr(there + " goes on at host n"));
}

// The follow began while the job had no place: all hosts were asked, and none was needed.
TEST_F(RelaysTest, ALogThatIsFollowedFromPendingOutlivesAHost) {
  for (const char* name : {"n1", "n2", "n3"}) (void)houses[0]->ask<wire::Empty>(MessageType::drain, wire::DrainRequest{name, "", true, 0});
  town.run_for(1s);
  job::JobSpec spec;
  spec.name = "k";
  spec.framework = job::Framework::generic;
  job::RoleSpec role;
  role.replicas = role.min_replicas = 1;
  role.command = {"true"};
  spec.roles["worker"] = role;
  wire::SubmitRequest submit;
  submit.spec = wire::encode(spec);
  (void)houses[0]->ask<wire::SubmitReply>(MessageType::submit, submit, 1000);
  town.run_for(1s);
  ASSERT_TRUE(houses[0]->answer<wire::SubmitReply>(houses[0]->requests()));
  wire::LogsRequest query;
  query.job = "k";
  query.follow = query.all_attempts = true;
  const auto parts = opened(*houses[0], MessageType::logs, query);
  ASSERT_EQ(parts.size(), 3u);
  const std::uint64_t number = houses[0]->requests();
  const auto to_second = [&](const OpenRelay& part) { return part.peer && part.peer->to == houses[1]->address(); };
  const auto refused = std::ranges::find_if(parts, to_second);
  ASSERT_NE(refused, parts.end());
  houses[0]->give(RelayEnded{refused->part, How::lost, {ErrorCode::limit, "serves 128 streams of other hosts already", "end some"}});
  // Gone and back before it has a task: it has told nothing, and is asked again once it has one.
  std::size_t before = houses[0]->effects.size();
  town.kill(*houses[2]);
  town.run_for(5s);
  houses[2]->started.life = 2;
  houses[2]->start();
  town.run_for(5s);
  EXPECT_TRUE(effects_of<CloseConnection>(*houses[0], before).empty());
  EXPECT_TRUE(effects_of<OpenRelay>(*houses[0], before).empty());
  EXPECT_FALSE(houses[0]->answers.contains(number)) << "nothing is missing";
  (void)houses[0]->ask<wire::Empty>(MessageType::drain, wire::DrainRequest{"n3", "", false, 0});
  town.run_for(1s);
  auto again = effects_of<OpenRelay>(*houses[0], before);
  ASSERT_EQ(again.size(), 1u);
  ASSERT_TRUE(again.front().peer);
  EXPECT_EQ(again.front().peer->to, houses[2]->address());
  // Gone while it has the task: said, and asked again when it is back.
  before = houses[0]->effects.size();
  town.kill(*houses[2]);
  town.run_for(5s);
  EXPECT_THAT(houses[0]->answer<wire::LogChunk>(number)->note, HasSubstr("host n3 is down"));
  houses[2]->started.life = 3;
  houses[2]->start();
  town.run_for(5s);
  EXPECT_FALSE(effects_of<CloseConnection>(*houses[0], before).empty());
  EXPECT_THAT(houses[0]->answer<wire::LogChunk>(number)->note, HasSubstr("host n3 is back"));
}

TEST_F(RelaysTest, ExecIsAnsweredThereOrNotAtAll) {
  wire::ExecRequest exec;
  exec.job = "j";
  exec.task = task_on("n3");
  exec.command = {"true"};
  auto parts = opened(*houses[0], MessageType::exec, exec);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_TRUE(parts.front().whole);
  const std::uint64_t first = houses[0]->requests();
  houses[0]->give(RelayEnded{parts.front().part, How::refused, {ErrorCode::refused, "the client has it", ""}});
  EXPECT_FALSE(houses[0]->answers.contains(first));  // the agent passed it on
  parts = opened(*houses[0], MessageType::exec, exec);
  const std::uint64_t second = houses[0]->requests();
  const std::size_t before = houses[0]->effects.size();
  town.kill(*houses[2]);
  town.run_for(5s);
  ASSERT_EQ(effects_of<CloseRelay>(*houses[0], before).size(), 1u);
  EXPECT_THAT(houses[0]->answer<wire::Empty>(second).error().text(),
              HasSubstr("could not run a command in j " + exec.task + ": host n3 is down; "));
  EXPECT_TRUE(opened(*houses[0], MessageType::exec, exec).empty());
  EXPECT_THAT(houses[0]->answer<wire::Empty>(houses[0]->requests()).error().text(), HasSubstr("host n3 is down"));
}

TEST_F(RelaysTest, ExecInATaskThatDoesNotRunIsAConflict) {
  job::JobSpec spec;
  spec.name = "k";
  spec.framework = job::Framework::generic;
  job::RoleSpec role;
  role.replicas = role.min_replicas = 1;
  role.command = {"true"};
  spec.roles["worker"] = role;
  wire::SubmitRequest submit;
  submit.spec = wire::encode(spec);
  (void)houses[0]->ask<wire::SubmitReply>(MessageType::submit, submit, 1000);
  town.run_for(1s);
  wire::ExecRequest exec;
  exec.job = "k";
  exec.task = "worker-0";
  exec.command = {"true"};
  const auto refused = houses[0]->ask<wire::Empty>(MessageType::exec, exec);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::refused) << refused.error().text();
  EXPECT_THAT(refused.error().text(), HasSubstr("it does not run"));
}

TEST_F(RelaysTest, AClientThatGoesClosesItsStreams) {
  const auto parts = opened(*houses[0], MessageType::logs, logs("", true));
  ASSERT_EQ(parts.size(), 3u);
  const std::size_t before = houses[0]->effects.size();
  houses[0]->give(ConnectionClosed{houses[0]->requests()});
  EXPECT_EQ(effects_of<CloseRelay>(*houses[0], before).size(), 3u);
}

TEST_F(RelaysTest, AnotherAgentsCallerIsServedByTheSameRules) {
  House& house = *houses[2];
  const auto ask = [&](std::uint64_t stream, std::uint32_t uid, MessageType type, const auto& query) {
    const std::size_t before = house.effects.size();
    house.give(open(stream, uid));
    const auto accepted = effects_of<AcceptRelay>(house, before);
    EXPECT_EQ(accepted.size(), 1u);
    EXPECT_EQ((std::pair(accepted.front().stream, accepted.front().allowed)), (std::pair(stream, std::uint64_t{1000})));
    EXPECT_EQ(accepted.front().peer.to, houses[0]->address());
    house.give(Request{accepted.front().connection, 1, wire::encode(wire::make_message(type, 1, query))});
    return accepted.front().connection;
  };
  std::size_t before = house.effects.size();
  const ConnectionId served = ask(1, 1000, MessageType::logs, logs(""));
  ASSERT_EQ(effects_of<OpenLog>(house, before).size(), 1u);
  EXPECT_EQ(effects_of<OpenLog>(house, before).front().connection, served);
  EXPECT_TRUE(effects_of<OpenRelay>(house, before).empty()) << "it is not passed on again";
  before = house.effects.size();
  EXPECT_THAT(replied(house, ask(2, 1001, MessageType::logs, logs("")), before), HasSubstr("it belongs to"));
  before = house.effects.size();
  EXPECT_THAT(replied(house, ask(3, 0, MessageType::query_nodes, wire::NodeName{}), before),
              HasSubstr("checkpoints, jobs and doctor only"));
  before = house.effects.size();
  wire::ExecRequest exec;
  exec.job = "j";
  exec.task = task_on("n1");
  exec.command = {"true"};
  EXPECT_THAT(replied(house, ask(4, 0, MessageType::exec, exec), before), HasSubstr("its tasks are on host n1"));
}

TEST_F(RelaysTest, AStreamIsOpenedOnceAndSomeOnly) {
  House& house = *houses[2];
  const auto give = [&](const RelayReceived& e) {
    const std::size_t before = house.effects.size();
    house.give(e);
    const auto accepted = effects_of<AcceptRelay>(house, before);
    const auto said = effects_of<SendRelay>(house, before);
    if (!accepted.empty()) return std::pair(accepted.front().connection, std::string());
    return std::pair(ConnectionId{0}, said.empty() ? std::string() : std::get<wire::RelayClose>(said.front().message).cause);
  };
  const auto [first, none] = give(open(5));
  ASSERT_NE(first, 0u);
  EXPECT_EQ(give(open(5)), std::pair(ConnectionId{0}, std::string())) << "it is open";
  house.give(ConnectionClosed{first});
  EXPECT_THAT(give(open(5)).second, HasSubstr("is over"));
  std::vector<ConnectionId> all;
  for (std::uint64_t stream = 10; stream < 10 + kRelaysOfOne; ++stream) all.push_back(give(open(stream)).first);
  EXPECT_EQ(std::ranges::count(all, ConnectionId{0}), 0);
  EXPECT_THAT(give(open(1000)).second, HasSubstr("serves 64 streams of other hosts already"));
  // So many end that single ones are not remembered: all before are over.
  for (std::uint64_t stream = 2000; stream < 2000 + 2 * kEndedRelays; ++stream) {
    house.give(ConnectionClosed{all.back()});
    all.back() = give(open(stream)).first;
    ASSERT_NE(all.back(), 0u) << stream;
  }
  EXPECT_THAT(give(open(2000)).second, HasSubstr("is over"));
  EXPECT_THAT(give(open(1500)).second, HasSubstr("is over"));
  RelayReceived stranger = open(9000);
  stranger.header.sender = {77, 77};
  EXPECT_EQ(give(stranger), std::pair(ConnectionId{0}, std::string()));
  RelayReceived data = open(1);
  data.message = wire::RelayData{4, true, 0, "x", 0, 0, false};
  EXPECT_THAT(give(data).second, HasSubstr("its agent was restarted"));
}

TEST_F(RelaysTest, APlanIsMadeByWhoCoordinates) {
  wire::SubmitRequest plan;
  plan.spec = wire::encode(job::JobSpec{});
  EXPECT_TRUE(opened(*houses[0], MessageType::plan, plan).empty());
  const auto asked = opened(*houses[1], MessageType::plan, plan, 1000);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked.front().peer->to, houses[0]->address());
  EXPECT_EQ(asked.front().open.uid, 1000u);
  EXPECT_TRUE(opened(*houses[1], MessageType::query_jobs, wire::JobsRequest{}).empty()) << "its copy of the ledger tells";
  // It coordinates no more: not passed on again.
  House& house = *houses[2];
  std::size_t before = house.effects.size();
  house.give(open(1));
  const ConnectionId connection = effects_of<AcceptRelay>(house, before).front().connection;
  house.give(Request{connection, 1, wire::encode(wire::make_message(MessageType::plan, 1, plan))});
  EXPECT_THAT(replied(house, connection, before), HasSubstr("only the coordinator places tasks"));
  EXPECT_TRUE(effects_of<OpenRelay>(house, before).empty());
}

TEST_F(RelaysTest, AnAnswerIsNoOlderThanWhatTheAskerKnows) {
  House& house = *houses[2];
  std::size_t before = house.effects.size();
  house.give(open(1, 0, 1'000'000));
  const ConnectionId connection = effects_of<AcceptRelay>(house, before).front().connection;
  house.give(Request{connection, 1, wire::encode(wire::make_message(MessageType::logs, 1, logs("")))});
  town.run_for(5s);
  EXPECT_TRUE(effects_of<OpenLog>(house, before).empty());
  EXPECT_EQ(replied(house, connection, before), "");
  town.run_for(6s);
  EXPECT_THAT(replied(house, connection, before), HasSubstr("is behind that of the agent"));
}

TEST_F(RelaysTest, WhoOpenedAStreamAndDiedIsNotWaitedFor) {
  House& house = *houses[2];
  const std::size_t before = house.effects.size();
  house.give(open(1));
  const ConnectionId connection = effects_of<AcceptRelay>(house, before).front().connection;
  town.kill(*houses[0]);
  town.run_for(10s);
  const auto closed = effects_of<CloseConnection>(house, before);
  ASSERT_FALSE(closed.empty());
  EXPECT_EQ(closed.front().connection, connection);
}

}  // namespace
}  // namespace dtrain::node
