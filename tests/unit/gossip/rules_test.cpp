#include "common/gossip/rules.h"

#include <gtest/gtest.h>

#include <set>

namespace dtrain::gossip {
namespace {

TEST(Rules, EachNameIsItsOwnRule) {
  const auto& names = breakable_rules();
  ASSERT_EQ(names.size(), static_cast<std::size_t>(Rule::gone_needs_two)) << "one name for each but none";
  EXPECT_EQ(std::set(names.begin(), names.end()).size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(rule_named(names[i]), static_cast<Rule>(i + 1));
}

TEST(Rules, NamesStandWithTheirRules) {
  EXPECT_EQ(rule_named("alive-needs-higher-incarnation"), Rule::alive_needs_higher_incarnation);
  EXPECT_EQ(rule_named("pong-must-match"), Rule::pong_must_match);
  EXPECT_EQ(rule_named("freeze-without-quorum"), Rule::freeze_without_quorum);
  EXPECT_EQ(rule_named("gone-needs-two"), Rule::gone_needs_two);
}

TEST(Rules, NoneIsBrokenInProduction) {
  EXPECT_EQ(rule_named(""), Rule::none);
  EXPECT_EQ(rule_named("no-such-rule"), Rule::none);
}

}  // namespace
}  // namespace dtrain::gossip
