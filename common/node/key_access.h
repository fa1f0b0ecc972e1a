// Who may call from another machine, under a key that access.keys maps to a user of this host.
#pragma once

#include <cstdint>

#include "common/base/result.h"
#include "common/node/access.h"

namespace dtrain::node {

// Root and the agent's own user operate whatever `access` says, for the kernel vouches for them. A key does so only by the
// configuration's word: access.users must name them as operators. ErrorCode::refused.
Status permit_key(const Caller& caller, const Access& access, std::uint32_t agent_uid);

}  // namespace dtrain::node
