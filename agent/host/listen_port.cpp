#include "agent/host/listen_port.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <map>
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

struct Bound {
  std::uint16_t port = 0;
  bool listens = false;
  std::string socket;  // as /proc/PID/fd names it
};

// Sockets bound to a TCP port: /proc/net/tcp, columns "sl local_address rem_address st ... inode".
void collect_bound(const char* table, const std::function<bool(std::uint16_t)>& wanted, std::vector<Bound>& out) {
  static constexpr const char* kListen = "0A";
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream columns(line);
    std::string slot, local, remote, state, skip, inode;
    columns >> slot >> local >> remote >> state >> skip >> skip >> skip >> skip >> skip >> inode;
    const auto colon = local.rfind(':');
    if (colon == std::string::npos) continue;
    const auto port = static_cast<std::uint16_t>(std::strtoul(local.c_str() + colon + 1, nullptr, 16));
    if (wanted(port)) out.push_back({port, state == kListen, "socket:[" + inode + "]"});
  }
}

std::vector<Bound> bound_sockets(const std::function<bool(std::uint16_t)>& wanted) {
  std::vector<Bound> out;
  collect_bound("/proc/net/tcp", wanted, out);
  collect_bound("/proc/net/tcp6", wanted, out);
  return out;
}

std::string name_of(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

// Who has these sockets open; any of several. Other users' processes show theirs only to root.
std::map<std::string, std::string> holders(std::set<std::string> sockets) {
  std::map<std::string, std::string> pids;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(sockets.empty() ? nullptr : ::opendir("/proc"), &::closedir);
  while (const dirent* process = listing && !sockets.empty() ? ::readdir(listing.get()) : nullptr) {
    const std::string pid = process->d_name;
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(("/proc/" + pid + "/fd").c_str()), &::closedir);
    while (const dirent* entry = open ? ::readdir(open.get()) : nullptr) {
      char target[64];
      const ssize_t n = ::readlinkat(::dirfd(open.get()), entry->d_name, target, sizeof target);
      const auto found = n > 0 ? sockets.find(std::string(target, static_cast<std::size_t>(n))) : sockets.end();
      if (found == sockets.end()) continue;
      pids[*found] = pid;
      sockets.erase(found);
    }
  }
  return pids;
}

}  // namespace

std::optional<PortOwner> owner_of_tcp_port(std::uint16_t port) {
  std::set<std::string> sockets;
  for (const Bound& bound : bound_sockets([port](std::uint16_t p) { return p == port; })) sockets.insert(bound.socket);
  const auto pids = holders(std::move(sockets));
  if (pids.empty()) return std::nullopt;
  const std::string& pid = pids.begin()->second;
  return PortOwner{port, static_cast<pid_t>(std::stol(pid)), name_of(pid)};
}

std::vector<PortOwner> listeners(std::uint16_t first, std::uint16_t last, std::size_t most) {
  std::map<std::uint16_t, std::string> sockets;
  for (Bound& bound : bound_sockets([&](std::uint16_t port) { return port >= first && port <= last; }))
    if (bound.listens && sockets.size() < most) sockets.try_emplace(bound.port, std::move(bound.socket));
  std::set<std::string> all;
  for (const auto& [port, socket] : sockets) all.insert(socket);
  const auto pids = holders(std::move(all));
  std::vector<PortOwner> owners;
  for (const auto& [port, socket] : sockets) {
    const auto pid = pids.find(socket);
    if (pid == pids.end()) owners.push_back({port, 0, ""});
    else owners.push_back({port, static_cast<pid_t>(std::stol(pid->second)), name_of(pid->second)});
  }
  return owners;
}

Result<ListenPort> ListenPort::reserve(const Endpoint& endpoint, bool lingering, std::optional<PortOwner>* taken_by) {
  Address address = to_address(endpoint);
  const int fd = ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return fail(ErrorCode::io, std::string("could not create a socket: ") + ::strerror(errno));
  ListenPort port(fd, endpoint);
  // Without SO_REUSEADDR nobody can share the port. With it, closed connections that wait for a minute do not block it.
  const int on = 1;
  if (lingering) (void)::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0) {
    const int cause = errno;
    const std::string what = "could not listen on " + endpoint.text() + ": ";
    if (cause == EADDRINUSE) {
      const auto owner = owner_of_tcp_port(endpoint.port);
      if (taken_by) *taken_by = owner;
      return fail(ErrorCode::unavailable, what + "the port is taken" + (owner ? " by " + owner->text() : ""),
                  "stop that program (another dtraind?), or give another --listen IP:PORT");
    }
    if (cause == EADDRNOTAVAIL)
      return fail(ErrorCode::invalid, what + "this host has no such address", "give one of its own with --listen IP:PORT");
    return fail(ErrorCode::io, what + ::strerror(cause), "give another --listen IP:PORT");
  }
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.size) == 0)
    port.endpoint_.port = ntohs(address.storage.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port
                                                                     : reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_port);
  return port;
}

}  // namespace dtrain::host
