// Reserves the agent's port, and finds out who has it if it is taken.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/base/unique_fd.h"
#include "agent/host/address.h"
#include "common/base/result.h"

namespace dtrain::host {

// Who has a TCP port; pid 0: cannot be found out, as of another user's process.
struct PortOwner {
  std::uint16_t port = 0;
  pid_t pid = 0;
  std::string name;
  std::string text() const { return pid == 0 ? "" : name + " (pid " + std::to_string(pid) + ")"; }  // "python3 (pid 4711)"
};

// The port is reserved as long as this lives. Nothing listens yet: connecting to it is refused.
class ListenPort {
 public:
  // Port 0 takes any free one. ErrorCode::unavailable: another process has it; the message names it if possible.
  // `lingering`: connections of an earlier agent may linger on the port, so two processes may reserve it; the first
  // to listen gets it.
  // Where `taken_by` is given, it says who has it, as far as can be found out.
  static Result<ListenPort> reserve(const Endpoint& endpoint, bool lingering = false, std::optional<PortOwner>* taken_by = nullptr);
  const Endpoint& endpoint() const { return endpoint_; }

 private:
  ListenPort(int fd, Endpoint endpoint) : fd_(fd), endpoint_(std::move(endpoint)) {}
  UniqueFd fd_;
  Endpoint endpoint_;
};

// Who listens on ports of that range, in order; at most `most`.
std::vector<PortOwner> listeners(std::uint16_t first, std::uint16_t last, std::size_t most);

std::optional<PortOwner> owner_of_tcp_port(std::uint16_t port);

}  // namespace dtrain::host
