#include "common/node/key_access.h"

#include "common/node/event.h"

namespace dtrain::node {

Status permit_key(const Caller& caller, const Access& access, std::uint32_t agent_uid) {
  if (caller.uid != 0 && caller.uid != agent_uid) return {};
  const auto named = access.users.find(caller.user);
  if (named != access.users.end() && named->second == Role::operate) return {};
  return fail(ErrorCode::refused, "could not serve this connection: its key stands for " + caller.user + ", who may do everything",
              "let access.keys name another user there, or put `" + caller.user + ": operate` under access.users");
}

}  // namespace dtrain::node
