// dtrainctl's connection to the agent of another machine: connects to its door (client_door.h) and then offers a
// stream socket on which the agent answers as on its control socket. A thread of its own carries the bytes, whatever
// the owner waits for, so that the agent's pings are answered.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "agent/net/client_keys.h"
#include "common/base/result.h"

namespace dtrain::net {

// True for "gpu01:7402", "10.0.0.1:7402", "[fd00::1]:7402"; false for "/run/a:1/control.sock" and "control.sock".
bool is_host_and_port(const std::string& address);

class ClientLink {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // Returns when the agent has answered, or at the deadline at the latest. Errors begin "could not reach agent
  // <address>". ErrorCode::refused: the agent was reached and does not know the key; unavailable: it was not reached.
  static Result<std::unique_ptr<ClientLink>> open(const std::string& address, const ClientKeys& keys, Deadline deadline);
  // Sends what was written to the socket, for at most kFarewell.
  virtual ~ClientLink() = default;

  // The stream socket, non-blocking; the caller owns it from now on. To be called once.
  virtual int take_socket() = 0;
  // Why the socket ended, if it was not the agent that closed it; "" otherwise. Any thread may call it.
  virtual std::string cause() const = 0;
};

inline constexpr std::chrono::milliseconds kFarewell{1000};

}  // namespace dtrain::net
