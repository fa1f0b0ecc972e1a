// The protocol rules of a core that --break can switch off one at a time, to show that tests and simulator notice.
// All hold in production.
//
// `Rule` is an enum class without gaps that begins at 0; rule_names(Rule) is found by ADL and returns the names that
// --break knows, in the same order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/broken_rule.h"

namespace dtrain {

// Which rules hold. The name is compared once, not with every message.
template <class Rule>
class BreakableRules {
 public:
  // "" or an unknown name breaks no rule; code that reads a command line checks against names().
  explicit BreakableRules(std::string_view broken = {}) {
    const auto all = rule_names(Rule{});
    const auto found = std::find_if(all.begin(), all.end(), [&](std::string_view name) { return breaks(broken, name); });
    any_ = found != all.end();
    if (any_) broken_ = static_cast<Rule>(found - all.begin());
  }
  bool hold(Rule rule) const { return !any_ || rule != broken_; }

  static std::vector<std::string> names() {
    const auto all = rule_names(Rule{});
    return {all.begin(), all.end()};
  }

 private:
  bool any_ = false;
  Rule broken_{};
};

}  // namespace dtrain
