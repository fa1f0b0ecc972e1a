#include "common/raft/rules.h"

#include <iterator>

namespace dtrain::raft {

namespace {

constexpr std::string_view kNames[] = {
    "pre-vote",
    "check-quorum",
    "refusal-carries-own-term",
    "own-term-entry",
    "ack-verified-only",
    "commit-verified-only",
    "durable-before-send",
    "one-change-at-a-time",
    "truncated-config-rolls-back",
    "snapshot-carries-config",
    "one-vote-per-term",
    "fresh-life-only",
    "applied-once",
    "disk-error-stops-voting",
    "read-index-confirmed",
    "elapsed-from-leader",
    "history-fences",
    "forget-only-without-leader",
    "own-history-elects",
};
constexpr auto kLast = static_cast<std::size_t>(Rule::own_history_elects);
static_assert(std::size(kNames) == kLast + 1);

}  // namespace

std::span<const std::string_view> rule_names(Rule) { return kNames; }

}  // namespace dtrain::raft
