// What a cluster makes of a host whose health check fails.
#include <gmock/gmock.h>

#include "tests/unit/node/working_town.h"

namespace dtrain::node {
namespace {

using ::testing::HasSubstr;

constexpr const char* kWhy = "health check ended with 1: /scratch is not mounted";

class UnfitHosts : public WorkingTown {
 protected:
  void check(std::size_t at, std::int32_t code) { houses[at]->give(HostChecked{{code, 0, "", "/scratch is not mounted\n"}}); }
  wire::NodeView seen(const std::string& name, std::size_t at) { return houses[at]->nodes(name).at(0); }
  std::size_t told(std::size_t at, const std::string& type) {
    std::size_t n = 0;
    for (const auto& event : houses[at]->events()) n += event.type == type;
    return n;
  }
};

TEST_F(UnfitHosts, AreGivenNothingNewAndEverybodyHearsWhy) {
  submit(generic("before", 3));
  work();
  ASSERT_TRUE(any_on("before", "n2"));
  check(1, 1);
  check(1, 1);
  work();
  for (std::size_t at = 0; at < houses.size(); ++at) {
    EXPECT_FALSE(seen("n2", at).schedulable);
    EXPECT_EQ(seen("n2", at).unfit, kWhy);
    EXPECT_TRUE(seen("n3", at).schedulable);
    EXPECT_EQ(houses[at]->status().unfit, (std::map<std::string, std::string>{{"n2", kWhy}}));
  }
  EXPECT_EQ(told(1, "host.sick"), 1u);
  EXPECT_EQ(houses[1]->log.count(std::string("host.sick node=n2 reason=") + kWhy), 1u);
  submit(generic("after", 6));
  work();
  EXPECT_FALSE(any_on("after", "n2")) << where("after");
  EXPECT_THAT(where("before"), HasSubstr("@n2/Running")) << "what runs runs on";
  EXPECT_EQ(kills + signals, 0);
  check(1, 0);
  work();
  EXPECT_EQ(told(1, "host.well"), 1u);
  for (std::size_t at = 0; at < houses.size(); ++at) EXPECT_TRUE(seen("n2", at).schedulable);
}

TEST_F(UnfitHosts, AJobThatNeedsThemWaitsWithTheReasonAndIsPlacedOnceTheyAreFit) {
  for (std::size_t at = 0; at < houses.size(); ++at) check(at, 1);
  town.run_for(2s);
  submit(generic("j", 1));
  work();
  EXPECT_THAT(described("j").waiting_for, HasSubstr("needs a host that takes tasks, none of 3 hosts does (n"));
  EXPECT_THAT(described("j").waiting_for, HasSubstr(std::string(": ") + kWhy));
  check(2, 0);
  work();
  EXPECT_THAT(where("j"), HasSubstr("@n3/Running"));
}

// Nobody knows yet whether it is fit: a host that was sick before its agent's restart is given nothing in between.
TEST_F(UnfitHosts, BeforeTheFirstCheckHasEndedAHostIsGivenNothing) {
  town.kill(*houses[1]);
  ++houses[1]->started.life;
  houses[1]->started.facts.unfit = kNotChecked;
  houses[1]->start();
  town.run_for(15s);
  EXPECT_EQ(seen("n2", 0).unfit, kNotChecked);
  submit(generic("j", 6));
  work();
  EXPECT_FALSE(any_on("j", "n2")) << where("j");
  check(1, 0);
  work();
  EXPECT_TRUE(seen("n2", 0).schedulable);
  EXPECT_EQ(told(1, "host.well"), 0u) << "it was never sick";
}

TEST_F(UnfitHosts, WithoutACheckTheyAreFitAgain) {
  check(1, 1);
  town.run_for(2s);
  Reconfigured same{houses[1]->started.facts.labels, "", {}, {}, true};
  houses[1]->give(same);
  town.run_for(2s);
  EXPECT_EQ(seen("n2", 0).unfit, kWhy);
  same.health_check = false;
  houses[1]->give(same);
  town.run_for(2s);
  EXPECT_TRUE(seen("n2", 0).schedulable);
}

}  // namespace
}  // namespace dtrain::node
