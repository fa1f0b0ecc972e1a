#include "common/task/lease_rules.h"

#include <iterator>

namespace dtrain::task::lease {
namespace {

constexpr std::string_view kNames[] = {
    "from-asking",    "expiry-first",     "start-asks",  "thaw-asks",     "own-nonce",
    "freeze-bounded", "superseded-stays", "epoch-fence", "guard-freezes", "guard-reads-record",
};
constexpr auto kLast = static_cast<std::size_t>(enum_last(Rule{}));
static_assert(std::size(kNames) == kLast + 1);

}  // namespace

std::span<const std::string_view> rule_names(Rule) { return kNames; }

}  // namespace dtrain::task::lease
