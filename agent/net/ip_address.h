// Converts numeric endpoints to the kernel's form and back.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>
#include <string>

#include "common/wire/gossip.h"

namespace dtrain::net {

class SocketAddress {
 public:
  static std::optional<SocketAddress> of(const wire::Endpoint& endpoint);
  int family() const { return storage_.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return size_; }

 private:
  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

// 0.0.0.0 and ::
bool is_any(const std::string& ip);
// 127.0.0.0/8 and ::1
bool is_loopback(std::string_view ip);
// The address of the other end; "" when the descriptor is no connection any more.
std::string peer_ip(int fd);

}  // namespace dtrain::net
