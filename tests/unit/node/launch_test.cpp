// What a task's own processes may ask: to launch a program in a task of their job, and nothing else (docs/launching.md). It is judged by
// the agent that they are connected to, and by the agent that has the other task.
#include <gmock/gmock.h>

#include "common/cluster/ledger.h"
#include "tests/unit/node/working_town.h"

namespace dtrain::node {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using wire::MessageType;

class LaunchTest : public WorkingTown {
 protected:
  LaunchTest() {
    submit(generic("j", 3));
    work();
    submit(generic("other", 1));
    work();
  }
  static wire::ExecRequest program(const std::string& job, const std::string& task) {
    wire::ExecRequest q;
    q.job = job;
    q.task = task;
    q.command = {"/bin/sh", "-c", "echo secret"};
    return q;
  }
  std::size_t at(const std::string& job, const std::string& task) {
    return static_cast<std::size_t>(tasks(job).at(task).node.back() - '1');
  }
  // As the agents started it.
  AssignmentId assignment(const std::string& job, const std::string& task) {
    for (const auto& [id, attempt] : attempts)
      if (id.task.text() == task && id.job == houses[0]->node().ledger().find(job)->id) return id;
    ADD_FAILURE() << "no " << job << " " << task;
    return {};
  }
  template <class E>
  std::vector<E> made(House& house, std::size_t from) {
    std::vector<E> found;
    for (std::size_t i = from; i < house.effects.size(); ++i)
      if (const auto* wanted = std::get_if<E>(&house.effects[i])) found.push_back(*wanted);
    return found;
  }
  // What a process of that task is told.
  template <class Query>
  std::string asks(MessageType type, const Query& query, const AssignmentId& inside, std::uint32_t uid = 1000, std::size_t house = 0) {
    const auto answer = houses[house]->ask<wire::Empty>(type, query, uid, inside);
    return answer ? "" : answer.error().text();
  }
  std::vector<std::string> told(const std::string& type, std::size_t house) {
    std::vector<std::string> all;
    for (const auto& e : houses[house]->events())
      if (e.type == type) all.push_back(e.object + " (" + e.message + "): " + e.reason);
    return all;
  }
};

TEST_F(LaunchTest, InATaskOfItsJobHere) {
  const std::size_t here = at("j", "worker-1");
  const std::size_t before = houses[here]->effects.size();
  EXPECT_EQ(asks(MessageType::launch, program("j", "worker-1"), assignment("j", "worker-0"), 1000, here), "no answer yet") << "it runs";
  const auto opened = made<OpenExec>(*houses[here], before);
  ASSERT_EQ(opened.size(), 1u);
  EXPECT_EQ(opened[0].id, assignment("j", "worker-1"));
  EXPECT_TRUE(opened[0].in_task);
  EXPECT_THAT(told("audit.launch", here), ElementsAre("j/worker-1 (job=j task=j/worker-1 from=j/worker-0 user=somebody uid=1000 at=n" +
                                                      std::to_string(here + 1) + " outcome=accepted): /bin/sh"));
}

TEST_F(LaunchTest, ElsewhereTheOtherAgentIsToldFromWhichTaskAndJudgesAgain) {
  const std::size_t here = at("j", "worker-0"), there = at("j", "worker-1");
  ASSERT_NE(here, there);
  const AssignmentId inside = assignment("j", "worker-0");
  const std::size_t before = houses[here]->effects.size();
  asks(MessageType::launch, program("j", "worker-1"), inside, 1000, here);
  const auto relays = made<OpenRelay>(*houses[here], before);
  ASSERT_EQ(relays.size(), 1u);
  EXPECT_EQ(relays[0].open.inside, inside);
  const auto receive = [&](wire::RelayOpen open, MessageType type, const wire::ExecRequest& query) {
    static std::uint64_t stream = 1000;
    open.stream = ++stream;
    RelayReceived received;
    received.header.sender = *MemberId::parse(houses[here]->started.facts.id);
    received.message = open;
    const std::size_t from = houses[there]->effects.size();
    houses[there]->give(received);
    const auto accepted = made<AcceptRelay>(*houses[there], from);
    if (accepted.size() != 1) return std::string("not accepted");
    houses[there]->give(Request{accepted[0].connection, 1, wire::encode(wire::make_message(type, 1, query))});
    if (!made<OpenExec>(*houses[there], from).empty()) return std::string("runs");
    for (const Reply& reply : made<Reply>(*houses[there], from))
      if (const auto message = wire::decode<wire::Message>(reply.body); message && message->type == MessageType::error)
        return wire::decode<wire::ErrorReply>(message->payload)->errors.front().message;
    return std::string("no answer");
  };
  const wire::RelayOpen good = relays[0].open;
  EXPECT_EQ(receive(good, MessageType::launch, program("j", "worker-1")), "runs");
  wire::RelayOpen bad = good;
  bad.inside = assignment("other", "worker-0");
  EXPECT_THAT(receive(bad, MessageType::launch, program("j", "worker-1")), HasSubstr("in its own job only"));
  bad = good;
  bad.uid = 1001;
  EXPECT_THAT(receive(bad, MessageType::launch, program("j", "worker-1")), HasSubstr("in its own job only"));
  bad = good;
  bad.inside.generation += 1;
  EXPECT_THAT(receive(bad, MessageType::launch, program("j", "worker-1")), HasSubstr("comes from generation 2"));
  bad = good;
  bad.inside = {};
  EXPECT_THAT(receive(bad, MessageType::launch, program("j", "worker-1")), HasSubstr("does not come from inside a task"));
  EXPECT_THAT(receive(good, MessageType::exec, program("j", "worker-1")), HasSubstr("comes from inside a task"));
}

TEST_F(LaunchTest, NotInAnotherJobAndNotAsAnotherUser) {
  const AssignmentId inside = assignment("j", "worker-0");
  EXPECT_EQ(asks(MessageType::launch, program("other", "worker-0"), inside),
            "could not launch a program in other worker-0: a task may do so in its own job only; call dtrainctl exec from a login shell");
  EXPECT_THAT(asks(MessageType::launch, program("j", "worker-1"), inside, 1001), HasSubstr("in its own job only"));
  EXPECT_THAT(asks(MessageType::launch, program("j", "worker-9"), inside), HasSubstr("no such task"));
  AssignmentId gone = inside;
  gone.job += 1000;
  EXPECT_THAT(asks(MessageType::launch, program("j", "worker-1"), gone), HasSubstr("in its own job only"));
  const std::vector<std::string> refused = told("access.refused", 0);
  EXPECT_THAT(refused, Contains(HasSubstr("user=somebody uid=1000 at=n1 outcome=refused")));
}

TEST_F(LaunchTest, NotFromAGenerationThatIsOver) {
  const AssignmentId before = assignment("j", "worker-0");
  wire::ActionRequest restart;
  restart.job = "j";
  restart.action = wire::Action::restart;
  (void)ask<wire::Empty>(*houses[0], MessageType::action, restart, 1000);
  work(10s);
  ASSERT_EQ(houses[0]->node().ledger().find("j")->generation, 2u);
  EXPECT_EQ(
      asks(MessageType::launch, program("j", "worker-1"), before),
      "could not launch a program in j worker-1: it comes from generation 1, and the job is in generation 2; what is left of an earlier "
      "generation may start nothing");
}

TEST_F(LaunchTest, NothingElseIsAnsweredAndNobodyElseMay) {
  const AssignmentId inside = assignment("j", "worker-0");
  const std::string no = "could not answer request: it comes from inside a task";
  EXPECT_THAT(asks(MessageType::exec, program("j", "worker-1"), inside), HasSubstr(no));
  EXPECT_THAT(asks(MessageType::query_jobs, wire::JobsRequest{}, inside), HasSubstr(no));
  EXPECT_THAT(asks(MessageType::query_version, wire::Empty{}, inside), HasSubstr(no));
  wire::ActionRequest cancel;
  cancel.job = "j";
  cancel.action = wire::Action::cancel;
  EXPECT_THAT(asks(MessageType::action, cancel, inside), HasSubstr(no));
  EXPECT_THAT(asks(MessageType::query_jobs, wire::JobsRequest{}, inside, 0), HasSubstr(no)) << "root's task";
  const auto outside = houses[0]->ask<wire::Empty>(MessageType::launch, program("j", "worker-1"), 1000);
  ASSERT_FALSE(outside);
  EXPECT_THAT(outside.error().text(), HasSubstr("does not come from inside a task"));
}

}  // namespace
}  // namespace dtrain::node
