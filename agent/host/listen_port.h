// Reserves the agent's port and says who has it when it is taken.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "agent/host/address.h"
#include "common/base/result.h"

namespace dtrain::host {

// Held as long as this lives. Nothing listens yet: connecting to it is refused.
class ListenPort {
 public:
  // Port 0 takes any free one. ErrorCode::unavailable: somebody has it; the message names them where it can.
  // `lingering`: connections of an earlier agent may still linger on it, and two may reserve it; who listens first has it.
  static Result<ListenPort> reserve(const Endpoint& endpoint, bool lingering = false);
  ListenPort(ListenPort&& other) noexcept : fd_(std::exchange(other.fd_, -1)), endpoint_(other.endpoint_) {}
  ListenPort& operator=(ListenPort&&) = delete;
  ~ListenPort();
  const Endpoint& endpoint() const { return endpoint_; }

 private:
  ListenPort(int fd, Endpoint endpoint) : fd_(fd), endpoint_(std::move(endpoint)) {}
  int fd_;
  Endpoint endpoint_;
};

// "python3 (pid 4711)", or "" when it cannot be found out (another user's process).
std::string owner_of_tcp_port(std::uint16_t port);

// A warning with its cure when `first`-`last` overlaps the range that the kernel picks ports of connections from;
// "" when all is well.
std::string check_task_ports(std::uint16_t first, std::uint16_t last, const std::string& range_file);
inline constexpr const char* kLocalPortRangeFile = "/proc/sys/net/ipv4/ip_local_port_range";

}  // namespace dtrain::host
