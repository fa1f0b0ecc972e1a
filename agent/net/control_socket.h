// The listening end of the control socket and who connected to it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "common/base/result.h"

namespace dtrain::net {

// Binds, opens to everybody, listens, and puts the socket at `path` in one step, so that whoever sees it can connect.
// `no_descriptors`: where the kernel can, connections take none (last_close.h).
Result<int> listen_unix(const std::string& path, bool no_descriptors);

struct Peer {
  std::uint32_t uid = static_cast<std::uint32_t>(-1);  // nobody's
  pid_t pid = 0;                                       // 0: of a process that this namespace does not see
};
// As the kernel says: who connected, and from which process.
Peer peer_of(int fd);

}  // namespace dtrain::net
