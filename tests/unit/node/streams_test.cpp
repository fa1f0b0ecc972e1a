// Requests with more than one answer: when a watch tells what.
#include <gtest/gtest.h>

#include "tests/unit/node/two_nodes.h"

namespace dtrain::node {
namespace {

using wire::MessageType;

class StreamsTest : public ::testing::Test {
 protected:
  StreamsTest() {
    house.start();
    town.run_for(15s);
    job::JobSpec spec;
    spec.name = "j";
    spec.framework = job::Framework::generic;
    job::RoleSpec role;
    role.replicas = role.min_replicas = 1;
    role.command = {"true"};
    role.resources.gpus = 100;  // waits: nothing of it is anywhere, so that an order takes effect at once
    spec.roles["worker"] = role;
    wire::SubmitRequest submit;
    submit.spec = wire::encode(spec);
    (void)house.ask<wire::SubmitReply>(MessageType::submit, submit, 1000);
    town.run_for(1s);
  }
  void act(wire::Action action, bool force = false) {
    wire::ActionRequest request;
    request.action = action;
    request.job = "j";
    request.force = force;
    const auto reply = house.ask<wire::Empty>(MessageType::action, request, 1000);
    ASSERT_TRUE(reply) << reply.error().text();
  }
  // The newest update of the watch.
  wire::JobUpdate told() const { return house.answer<wire::JobUpdate>(watch).value_or(wire::JobUpdate{}); }

  Town town;
  House& house = town.add("n1");
  std::uint64_t watch = 0;
};

TEST_F(StreamsTest, TheEndOfAJobIsToldAtOnceAndAllElseAtItsTime) {
  ASSERT_TRUE(house.ask<wire::JobUpdate>(MessageType::watch, wire::WatchRequest{"j", 0, 60'000}, 1000));
  watch = house.requests();
  EXPECT_EQ(told().job.state, "Pending");
  act(wire::Action::suspend);
  EXPECT_EQ(told().job.state, "Pending");
  town.run_for(61s);
  EXPECT_EQ(told().job.state, "Suspended");
  EXPECT_FALSE(told().final);
  act(wire::Action::cancel);
  EXPECT_EQ(told().job.state, "Cancelled");
  EXPECT_TRUE(told().final);
  act(wire::Action::remove);
  EXPECT_TRUE(told().gone);
}

}  // namespace
}  // namespace dtrain::node
