// The agent's side of a connection to one shim (dtrain-shim/protocol.h).
#pragma once

#include <array>
#include <string>
#include <variant>

#include "agent/base/unique_fd.h"
#include "agent/dtrain-shim/protocol.h"
#include "agent/proc/record.h"
#include "common/base/result.h"

namespace dtrain::proc {

class ShimLink {
 public:
  ShimLink() = default;
  explicit ShimLink(UniqueFd socket) : socket_(std::move(socket)) {}
  // Connects to <directory>/shim.sock without waiting; long paths work. On failure errno is kept: ECONNREFUSED or
  // ENOENT if no shim lives, EAGAIN if it does not accept at the moment.
  static ShimLink connect(const std::string& directory);

  int fd() const { return socket_.get(); }
  explicit operator bool() const { return static_cast<bool>(socket_); }
  pid_t peer_pid() const;  // of an adopted shim's process; 0: not known
  void close() { socket_.reset(); }
  UniqueFd release() { return std::move(socket_); }

  // Returns the command's sequence number; 0: could not be sent (errno).
  std::uint32_t send(shim::Command command, std::uint32_t a = 0, std::uint32_t b = 0);
  std::uint32_t send(shim::CommandPacket packet);  // its sequence number is set here
  // With descriptors, which stay the caller's.
  std::uint32_t send(shim::CommandPacket packet, const std::array<int, shim::kRunDescriptors>& descriptors);

  struct Nothing {};  // no packet at the moment
  struct Closed {};   // nothing more will come
  using Received = std::variant<Nothing, Closed, shim::ReplyPacket, ShimRecord, shim::AskPacket>;
  // The next packet; unknown ones are skipped.
  Received receive();

 private:
  UniqueFd socket_;
  std::uint32_t sequence_ = 0;
};

}  // namespace dtrain::proc
