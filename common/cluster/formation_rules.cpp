#include "common/cluster/formation_rules.h"

#include <iterator>

namespace dtrain::cluster::formation {

namespace {

constexpr std::string_view kNames[] = {
    "one-promise",      "promise-durable",     "all-promised",
    "founder-by-id",    "withdrawn-is-final",  "proposer-withdraws",
    "majority-without", "void-before-without", "abandoned-by-majority",
};
static_assert(std::size(kNames) == static_cast<std::size_t>(enum_last(Rule{})) + 1);

}  // namespace

std::span<const std::string_view> rule_names(Rule) {
  return kNames;
}

}  // namespace dtrain::cluster::formation
