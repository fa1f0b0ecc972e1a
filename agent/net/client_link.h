// A dtrainctl's way to the agent of another machine: connects to its door (client_door.h) and is then a stream socket on which the
// agent speaks like on its control socket. A thread of its own carries the bytes; it runs whatever its owner waits for, so that the
// agent's pings are answered.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "agent/net/client_keys.h"
#include "common/base/result.h"

namespace dtrain::net {

// "gpu01:7402", "10.0.0.1:7402", "[fd00::1]:7402"; neither "/run/a:1/control.sock" nor "control.sock".
bool is_host_and_port(const std::string& address);

class ClientLink {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // Returns when the agent has answered, or at the deadline, and then in time of it. Errors begin "could not reach agent <address>".
  // ErrorCode::refused: it is reached, and does not know the key; unavailable: it is not.
  static Result<std::unique_ptr<ClientLink>> open(const std::string& address, const ClientKeys& keys, Deadline deadline);
  // Sends on what was written to the socket, as long as kFarewell at most.
  virtual ~ClientLink() = default;

  // The stream socket, non-blocking; the caller's from now on. Once.
  virtual int take_socket() = 0;
  // Why the socket ended, where it was not the agent that closed it; "" else. Any thread may ask.
  virtual std::string cause() const = 0;
};

inline constexpr std::chrono::milliseconds kFarewell{1000};

}  // namespace dtrain::net
