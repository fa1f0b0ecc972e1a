// Where the codec finds that version; and one that tests of an upgrade use.
#pragma once

#include "common/base/since.h"

namespace dtrain::wire {

using dtrain::Since;
// A version of no release, to which tests of an upgrade raise the ledger. Its only rule: a job may have `rehearsal`.
inline constexpr Since kRehearsal{1'000'000};

}  // namespace dtrain::wire
