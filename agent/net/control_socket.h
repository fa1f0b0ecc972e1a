// The listening end of the control socket and who connected to it.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"

namespace dtrain::net {

// Binds, opens to everybody, listens, and puts the socket at `path` in one step, so that whoever sees it can connect.
Result<int> listen_unix(const std::string& path);

// As the kernel says; the largest number, nobody's, should it not say.
std::uint32_t uid_of_peer(int fd);

}  // namespace dtrain::net
