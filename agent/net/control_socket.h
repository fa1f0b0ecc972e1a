// The listening end of the control socket, and who connected to it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "common/base/result.h"

namespace dtrain::net {

// Binds a socket, permits everybody to connect, listens, and puts it at `path` in one step, so that whoever sees it
// can connect. `no_descriptors`: where the kernel supports it, connections refuse descriptors (last_close.h).
Result<int> listen_unix(const std::string& path, bool no_descriptors);

struct Peer {
  std::uint32_t uid = static_cast<std::uint32_t>(-1);  // nobody's
  pid_t pid = 0;                                       // 0: a process that this namespace does not see
};
// Who connected and from which process, as the kernel says.
Peer peer_of(int fd);

}  // namespace dtrain::net
