#include "agent/host/listen_port.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <set>
#include <sstream>

namespace dtrain::host {
namespace {

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

Address to_address(const Endpoint& endpoint) {
  Address out;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
  if (::inet_pton(AF_INET, endpoint.ip.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(endpoint.port);
    out.size = sizeof *v4;
  } else if (::inet_pton(AF_INET6, endpoint.ip.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(endpoint.port);
    out.size = sizeof *v6;
  }
  return out;
}

// Inodes of the sockets bound to the port: /proc/net/tcp, columns "sl local_address rem_address st ... inode".
void collect_inodes(const char* table, std::uint16_t port, std::set<std::string>& out) {
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream columns(line);
    std::string slot, local, remote, state, skip, inode;
    columns >> slot >> local >> remote >> state >> skip >> skip >> skip >> skip >> skip >> inode;
    const auto colon = local.rfind(':');
    if (colon != std::string::npos && std::strtoul(local.c_str() + colon + 1, nullptr, 16) == port)
      out.insert("socket:[" + inode + "]");
  }
}

bool holds_one_of(const std::string& pid, const std::set<std::string>& sockets) {
  const std::string dir = "/proc/" + pid + "/fd";
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir(dir.c_str()), &::closedir);
  if (!listing) return false;
  while (const dirent* entry = ::readdir(listing.get())) {
    char target[64];
    const ssize_t n = ::readlinkat(::dirfd(listing.get()), entry->d_name, target, sizeof target);
    if (n > 0 && sockets.contains(std::string(target, static_cast<std::size_t>(n)))) return true;
  }
  return false;
}

}  // namespace

std::string owner_of_tcp_port(std::uint16_t port) {
  std::set<std::string> sockets;
  collect_inodes("/proc/net/tcp", port, sockets);
  collect_inodes("/proc/net/tcp6", port, sockets);
  if (sockets.empty()) return "";
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir("/proc"), &::closedir);
  if (!listing) return "";
  while (const dirent* entry = ::readdir(listing.get())) {
    const std::string pid = entry->d_name;
    if (pid.find_first_not_of("0123456789") != std::string::npos || !holds_one_of(pid, sockets)) continue;
    std::ifstream file("/proc/" + pid + "/comm");
    std::string name;
    std::getline(file, name);
    return name + " (pid " + pid + ")";
  }
  return "";
}

Result<ListenPort> ListenPort::reserve(const Endpoint& endpoint, bool lingering) {
  Address address = to_address(endpoint);
  const int fd = ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return fail(ErrorCode::io, std::string("could not create a socket: ") + ::strerror(errno));
  ListenPort port(fd, endpoint);
  // Without SO_REUSEADDR nobody can share the port. With it the minute that closed connections wait does not hold us up.
  const int on = 1;
  if (lingering) (void)::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0) {
    const int cause = errno;
    const std::string what = "could not listen on " + endpoint.text() + ": ";
    if (cause == EADDRINUSE) {
      const std::string owner = owner_of_tcp_port(endpoint.port);
      return fail(ErrorCode::unavailable, what + "the port is taken" + (owner.empty() ? "" : " by " + owner),
                  "stop that program (another dtraind?), or give another --listen IP:PORT");
    }
    if (cause == EADDRNOTAVAIL)
      return fail(ErrorCode::invalid, what + "this host has no such address", "give one of its own with --listen IP:PORT");
    return fail(ErrorCode::io, what + ::strerror(cause), "give another --listen IP:PORT");
  }
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.size) == 0)
    port.endpoint_.port = ntohs(address.storage.ss_family == AF_INET
                                    ? reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port
                                    : reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_port);
  return port;
}

ListenPort::~ListenPort() {
  if (fd_ >= 0) ::close(fd_);
}

std::string check_task_ports(std::uint16_t first, std::uint16_t last, const std::string& range_file) {
  std::ifstream file(range_file);
  unsigned low = 0, high = 0;
  if (!(file >> low >> high) || first > high || last < low) return "";
  return "the task ports " + std::to_string(first) + "-" + std::to_string(last) + " overlap " + std::to_string(low) + "-" +
         std::to_string(high) + ", from which the kernel picks the ports of connections, so that a task may find its port "
         "taken; set network.taskPorts outside of it, or reserve them: sysctl -w net.ipv4.ip_local_reserved_ports=" +
         std::to_string(first) + "-" + std::to_string(last);
}

}  // namespace dtrain::host
