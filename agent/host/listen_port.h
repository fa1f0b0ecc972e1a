// Reserves the agent's port and says who has it when it is taken.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "agent/base/unique_fd.h"
#include "agent/host/address.h"
#include "common/base/result.h"

namespace dtrain::host {

// Held as long as this lives. Nothing listens yet: connecting to it is refused.
class ListenPort {
 public:
  // Port 0 takes any free one. ErrorCode::unavailable: somebody has it; the message names them where it can.
  // `lingering`: connections of an earlier agent may still linger on it, and two may reserve it; who listens first has it.
  static Result<ListenPort> reserve(const Endpoint& endpoint, bool lingering = false);
  const Endpoint& endpoint() const { return endpoint_; }

 private:
  ListenPort(int fd, Endpoint endpoint) : fd_(fd), endpoint_(std::move(endpoint)) {}
  UniqueFd fd_;
  Endpoint endpoint_;
};

// Who listens on a TCP port; pid 0: cannot be found out.
struct PortOwner {
  std::uint16_t port = 0;
  pid_t pid = 0;
  std::string name;
};
// On ports of that range, in order; at most `most`.
std::vector<PortOwner> listeners(std::uint16_t first, std::uint16_t last, std::size_t most);

// "python3 (pid 4711)", or "" when it cannot be found out (another user's process).
std::string owner_of_tcp_port(std::uint16_t port);

}  // namespace dtrain::host
