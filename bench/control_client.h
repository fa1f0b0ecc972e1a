// A bench program's connection to an agent's control socket (common/wire/control.h). Blocking, since it only has to be fast.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <charconv>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/wire/codec.h"
#include "common/wire/control.h"

namespace dtrain::bench {

// -1: errno says why.
inline int connect_to(std::string_view path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return -1;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return -1;
  return fd;
}

inline bool send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

// Sends requests and receives replies, in any order. One thread may send while another receives.
class Client {
 public:
  explicit Client(int fd) : fd_(fd) {}

  template <class Body>
  bool send(wire::MessageType type, const Body& body) {
    return send_all(fd_, wire::frame(wire::make_message(type, ++asked_, body)));
  }

  // nullopt: the agent has closed the connection, or sent what cannot be read.
  std::optional<wire::Message> receive() {
    while (true) {
      auto message = replies_.next();
      if (!message) return std::nullopt;
      if (message->has_value()) return std::move(**message);
      char buffer[64 << 10];
      const ssize_t got = ::recv(fd_, buffer, sizeof buffer, 0);
      if (got <= 0) return std::nullopt;
      replies_.feed(std::string_view(buffer, static_cast<std::size_t>(got)));
    }
  }

 private:
  const int fd_;
  wire::Deframer replies_;
  std::uint64_t asked_ = 0;
};

// The positive number of an argument; 0: none.
inline int positive(const char* argument) {
  int number = 0;
  std::from_chars(argument, argument + std::strlen(argument), number);
  return number > 0 ? number : 0;
}

}  // namespace dtrain::bench
