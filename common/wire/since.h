// The version of the ledger that introduced a field (common/cluster/versions.h), for fields() of the ledger's structs.
#pragma once

#include <cstdint>

namespace dtrain::wire {

struct Since {
  std::uint32_t version = 1;
};
// A version of no release, to which tests of an upgrade raise the ledger. Its only rule: a job may have `rehearsal`.
inline constexpr Since kRehearsal{1'000'000};

}  // namespace dtrain::wire
