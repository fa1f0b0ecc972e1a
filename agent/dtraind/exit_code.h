// Why the agent ends, as an exit code (sysexits.h). docs/agent.md lists them.
#pragma once

#include <sysexits.h>

#include "common/base/result.h"

namespace dtrain::daemon {

struct Failure {
  int exit_code = EX_SOFTWARE;
  Error error;
};
template <class T>
using Start = tl::expected<T, Failure>;

inline tl::unexpected<Failure> give_up(int exit_code, Error error) { return tl::unexpected<Failure>(Failure{exit_code, std::move(error)}); }

}  // namespace dtrain::daemon
