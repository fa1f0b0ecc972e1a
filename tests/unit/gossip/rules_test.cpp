#include "common/gossip/rules.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace dtrain::gossip {
namespace {

TEST(Rules, EachNameBreaksExactlyItsOwn) {
  const std::vector<std::string> names = Rules::names();
  EXPECT_EQ(std::set(names.begin(), names.end()).size(), names.size());
  for (std::size_t broken = 0; broken < names.size(); ++broken) {
    const Rules rules(names[broken]);
    for (std::size_t rule = 0; rule < names.size(); ++rule) EXPECT_EQ(rules.hold(static_cast<Rule>(rule)), rule != broken);
  }
}

TEST(Rules, AllHoldInProduction) {
  for (const char* name : {"", "no-such-rule"}) {
    const Rules rules(name);
    for (std::size_t rule = 0; rule < Rules::names().size(); ++rule) EXPECT_TRUE(rules.hold(static_cast<Rule>(rule)));
  }
}

}  // namespace
}  // namespace dtrain::gossip
