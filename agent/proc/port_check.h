// Is a task's reserved port free on this host? A plain bind test, as the task itself will bind; tasks are
// staged and attempts are started only after it. What a killed task left behind (TIME_WAIT and other sockets
// that no process owns) is taken away with SOCK_DESTROY where that is permitted; a living owner's user is named.
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
//   port 20001 on 127.0.0.1 is used by a process of user id 1004
// The kernel says whose the socket is. Which process has it is in /proc alone, among all descriptors of all users, of whom each may have
// some 100,000: only who may take its time asks for that, gets "pid 812 (nginx)", and where there are too many the same as others.
// Does not wait for anything.
inline constexpr std::size_t kOwnerLooks = 20'000;  // at processes and their descriptors: some 20 ms
enum class PortOwner : unsigned char { user, process };
Status check_port(const std::string& address, std::uint16_t port, PortOwner said = PortOwner::user);

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
