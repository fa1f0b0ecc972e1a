#include "common/cluster/lease_rules.h"

#include <iterator>

namespace dtrain::cluster::lease {
namespace {

constexpr std::string_view kLeaseRuleNames[] = {
    "fresh-round", "round-after-arrival", "margin", "count-from-election", "no-grant-after-decision", "agent-grace",
};
constexpr auto kLastLeaseRule = static_cast<std::size_t>(enum_last(Rule{}));
static_assert(std::size(kLeaseRuleNames) == kLastLeaseRule + 1);

}  // namespace

std::span<const std::string_view> rule_names(Rule) { return kLeaseRuleNames; }

}  // namespace dtrain::cluster::lease
