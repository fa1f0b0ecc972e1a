// A socket with a name in the current directory.
#pragma once

#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace dtrain::shim {

// A socket that exists already was left by a shim that was killed. The shim's umask keeps others out.
inline bool bind_file(int fd, const sockaddr_un& name) {
  const auto* address = reinterpret_cast<const sockaddr*>(&name);
  if (bind(fd, address, sizeof(name)) == 0) return true;
  return errno == EADDRINUSE && unlink(name.sun_path) == 0 && bind(fd, address, sizeof(name)) == 0;
}

}  // namespace dtrain::shim
