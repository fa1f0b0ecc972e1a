// Starts dtrain-shim: own session, nothing inherited but its first connection, born in its cgroup.
#pragma once

#include <string>

#include "agent/base/unique_fd.h"
#include "common/base/result.h"

namespace dtrain::proc {

// `cgroup`: the v2 cgroup that it is born in; "": the caller's. `theirs`: its end of its first connection. Answers
// its pidfd.
Result<UniqueFd> spawn_shim(const std::string& shim_path, const std::string& directory, const std::string& cgroup, UniqueFd theirs);

}  // namespace dtrain::proc
