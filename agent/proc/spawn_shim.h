// Starts dtrain-shim in a session and cgroup of its own, inheriting nothing but its first connection.
#pragma once

#include <string>

#include "agent/base/unique_fd.h"
#include "common/base/result.h"

namespace dtrain::proc {

// `cgroup`: the v2 cgroup in which it is born; "": the caller's. `theirs`: its end of its first connection. Returns its pidfd.
Result<UniqueFd> spawn_shim(const std::string& shim_path, const std::string& directory, const std::string& cgroup, UniqueFd theirs);

}  // namespace dtrain::proc
