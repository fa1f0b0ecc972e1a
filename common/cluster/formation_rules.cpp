#include "common/cluster/formation_rules.h"

#include <iterator>

namespace dtrain::cluster::formation {

namespace {

constexpr std::string_view kNames[] = {
    "one-promise",        "promise-durable",  "all-promised",        "founder-by-id",         "withdrawn-is-final",
    "proposer-withdraws", "majority-without", "void-before-without", "abandoned-by-majority",
};
constexpr auto kLast = static_cast<std::size_t>(Rule::abandoned_by_majority);
static_assert(std::size(kNames) == kLast + 1);

}  // namespace

std::span<const std::string_view> rule_names(Rule) { return kNames; }

}  // namespace dtrain::cluster::formation
