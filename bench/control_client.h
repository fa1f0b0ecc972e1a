// A bench program's connection with an agent's control socket (common/wire/control.h). Blocking; all it needs is speed.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <charconv>
#include <cstring>
#include <string_view>

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

// The positive number of an argument; 0: none.
inline int positive(const char* argument) {
  int number = 0;
  std::from_chars(argument, argument + std::strlen(argument), number);
  return number > 0 ? number : 0;
}

}  // namespace dtrain::bench
