// The listening end of the control socket and who connected to it.
#pragma once

#include <string>

#include "common/base/result.h"
#include "common/node/event.h"

namespace dtrain::net {

// Binds, opens to everybody, listens, and puts the socket at `path` in one step, so that whoever sees it can connect.
Result<int> listen_unix(const std::string& path);

// As the kernel says. The user's name is "" when the uid has none.
node::Caller peer_of(int fd);

}  // namespace dtrain::net
