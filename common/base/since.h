// The version of the ledger that introduced a field (common/cluster/versions.h), for fields() of the ledger's structs.
#pragma once

#include <cstdint>

namespace dtrain {

struct Since {
  std::uint32_t version = 1;
};

}  // namespace dtrain
