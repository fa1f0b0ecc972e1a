// The version of the ledger that a field came with (common/cluster/versions.h), for fields() of what the ledger is made of.
#pragma once

#include <cstdint>

namespace dtrain::wire {

struct Since {
  std::uint32_t version = 1;
};
// No release knows it: it is what tests of an upgrade raise the ledger to. Its only rule: a job may have `rehearsal`.
inline constexpr Since kRehearsal{1'000'000};

}  // namespace dtrain::wire
