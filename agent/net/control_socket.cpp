#include "agent/net/control_socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>

#include "agent/net/last_close.h"

namespace dtrain::net {
namespace {

constexpr int kControlBacklog = 128;

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return fail(
        ErrorCode::invalid,
        "could not use control socket " + path + ": the path has more than " + std::to_string(sizeof address.sun_path - 1) + " bytes",
        "give a shorter --run-dir");
  ::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// An earlier agent's socket may be replaced; a living agent's socket, or anything else, may not.
Status check_replaceable(const std::string& path, const sockaddr_un& address) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return {};
  if (!S_ISSOCK(info.st_mode))
    return fail(ErrorCode::refused, "could not use control socket " + path + ": there is another file of that name",
                "move it away, or give another --run-dir");
  const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const bool answers = ::connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno == EAGAIN;
  ::close(probe);
  if (!answers) return {};
  return fail(ErrorCode::unavailable, "could not use control socket " + path + ": another agent answers on it",
              "stop that one, or give this one its own --run-dir");
}

tl::unexpected<Error> socket_error(const std::string& path, int fd) {
  const int cause = errno;
  if (fd >= 0) ::close(fd);
  return fail(ErrorCode::io, "could not open control socket " + path + ": " + ::strerror(cause),
              "check the run directory and its permissions");
}

}  // namespace

Result<int> listen_unix(const std::string& path, bool no_descriptors) {
  const auto address = address_of(path);
  if (!address) return fail(address.error());
  const std::string temporary = path + ".new";
  const auto temporary_address = address_of(temporary);
  if (!temporary_address) return fail(temporary_address.error());
  if (auto free = check_replaceable(path, *address); !free) return fail(free.error());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return socket_error(path, fd);
  if (no_descriptors) refuse_descriptors(fd);
  ::unlink(temporary.c_str());
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&*temporary_address), sizeof *temporary_address) != 0 ||
      ::chmod(temporary.c_str(), 0666) != 0 || ::listen(fd, kControlBacklog) != 0 || ::rename(temporary.c_str(), path.c_str()) != 0)
    return socket_error(path, fd);
  return fd;
}

Peer peer_of(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return {};
  return {credentials.uid, credentials.pid};
}

}  // namespace dtrain::net
