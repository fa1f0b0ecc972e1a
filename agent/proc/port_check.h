// Is a task's reserved port free on this host? A plain bind test, as the task itself will bind; tasks are
// staged and attempts are started only after it. What a killed task left behind (TIME_WAIT and other sockets
// that no process owns) is taken away with SOCK_DESTROY where that is permitted; a living owner is named.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace dtrain::proc {

// Ok: `address`:`port` can be bound. `address` is an IP address; "" means every address of this host; a name
// is not tested, nor is port 0. Where leftovers may not be removed, a port that can be bound with
// SO_REUSEADDR counts as free: servers set it. The error's message is the cause alone, for the caller to put
// after "could not ...: " :
//   port 20001 on 127.0.0.1 is used by pid 812 (nginx)
// Does not wait for anything; walks /proc when the port is taken.
Status check_port(const std::string& address, std::uint16_t port);

// A TCP socket as sock_diag knows it.
struct SocketInfo {
  std::uint8_t family = 0;
  std::uint8_t state = 0;  // TCP_* of netinet/tcp.h
  std::uint32_t uid = 0;
  std::uint32_t inode = 0;  // 0: no process owns it
  std::string identity;     // opaque: struct inet_diag_sockid
};
Result<std::vector<SocketInfo>> sockets_on_port(std::uint16_t port);

}  // namespace dtrain::proc
