// Decides who may call from another machine, under a key that access.keys maps to a user of this host.
#pragma once

#include <cstdint>

#include "common/base/result.h"
#include "common/node/access.h"

namespace dtrain::node {

// Refuses a key that stands for root or for the agent's own user, unless access.users names that user as an operator:
// such users may do everything, and only locally does the kernel vouch for them. ErrorCode::refused.
Status permit_key(const Caller& caller, const Access& access, std::uint32_t agent_uid);

}  // namespace dtrain::node
