#include "agent/proc/port_check.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "agent/base/small_file.h"
#include "agent/base/unique_fd.h"

namespace dtrain::proc {

namespace {

constexpr int kDestroyRounds = 3;                // new leftovers may appear while others are removed
constexpr std::size_t kNetlinkBytes = 32 << 10;  // one datagram of a dump
constexpr std::size_t kSocketsPerPort = 4096;    // looked at; further ones are left alone

struct Endpoint {
  sockaddr_storage address{};
  socklen_t length = 0;
};

// nullopt: not an IP address.
std::optional<Endpoint> endpoint_of(const std::string& address, std::uint16_t port) {
  Endpoint endpoint;
  auto& v4 = reinterpret_cast<sockaddr_in&>(endpoint.address);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(endpoint.address);
  if (address.empty() || ::inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    endpoint.length = sizeof v4;
    return endpoint;
  }
  if (::inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr) != 1) return std::nullopt;
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  endpoint.length = sizeof v6;
  return endpoint;
}

// Returns 0, or the errno of bind.
int try_bind(const Endpoint& endpoint, bool reuse) {
  const UniqueFd fd(::socket(endpoint.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return errno;
  const int on = 1;
  if (reuse) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&endpoint.address), endpoint.length) == 0) return 0;
  return errno;
}

Result<UniqueFd> open_sock_diag() {
  UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!fd) return fail(ErrorCode::io, "could not open sock_diag: " + cause_of(errno));
  return fd;
}

struct DiagRequest {
  nlmsghdr header{};
  inet_diag_req_v2 body{};
};

DiagRequest diag_request(std::uint16_t type, std::uint16_t flags, std::uint8_t family) {
  DiagRequest request;
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = type;
  request.header.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
  request.body.sdiag_family = family;
  request.body.sdiag_protocol = IPPROTO_TCP;
  return request;
}

Status send_request(int fd, const DiagRequest& request) {
  if (::send(fd, &request, sizeof request, 0) == static_cast<ssize_t>(sizeof request)) return {};
  return fail(ErrorCode::io, "could not ask sock_diag: " + cause_of(errno));
}

// Reads answers until the kernel reports the end or an error.
Status read_answers(int fd, std::uint16_t port, std::vector<SocketInfo>* sockets) {
  alignas(nlmsghdr) std::array<char, kNetlinkBytes> buffer;
  while (true) {
    const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return fail(ErrorCode::io, "could not read sock_diag: " + cause_of(errno));
    auto left = static_cast<unsigned>(got);
    for (auto* header = reinterpret_cast<nlmsghdr*>(buffer.data()); NLMSG_OK(header, left); header = NLMSG_NEXT(header, left)) {
      if (header->nlmsg_type == NLMSG_DONE) return {};
      if (header->nlmsg_type == NLMSG_ERROR) {
        const int error = -static_cast<const nlmsgerr*>(NLMSG_DATA(header))->error;
        if (error == 0) return {};
        return fail(ErrorCode::io, "could not use sock_diag: " + cause_of(error));
      }
      if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY || header->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) continue;
      inet_diag_msg message;
      std::memcpy(&message, NLMSG_DATA(header), sizeof message);
      // The kernel cannot select by port among sockets that are only bound.
      if (message.id.idiag_sport != htons(port)) continue;
      if (sockets == nullptr || sockets->size() >= kSocketsPerPort) continue;
      SocketInfo info;
      info.family = message.idiag_family;
      info.state = message.idiag_state;
      info.uid = message.idiag_uid;
      info.inode = message.idiag_inode;
      info.identity.assign(reinterpret_cast<const char*>(&message.id), sizeof message.id);
      sockets->push_back(std::move(info));
    }
  }
}

inet_diag_sockid identity_of(const SocketInfo& info) {
  inet_diag_sockid id;
  std::memcpy(&id, info.identity.data(), sizeof id);
  return id;
}

// The IPv4 address inside, if there is one: also for an IPv4-mapped IPv6 socket.
std::optional<std::uint32_t> v4_of(std::uint8_t family, const std::uint32_t* words) {
  if (family == AF_INET) return words[0];
  if (words[0] == 0 && words[1] == 0 && words[2] == htonl(0xffff)) return words[3];
  return std::nullopt;
}

bool is_any(const std::uint32_t* words) {
  return std::all_of(words, words + 4, [](std::uint32_t w) { return w == 0; });
}

// True if this socket may keep `endpoint` from being bound.
bool conflicts(const SocketInfo& info, const Endpoint& endpoint) {
  const inet_diag_sockid id = identity_of(info);
  if (is_any(id.idiag_src)) return true;  // an IPv6 socket may serve both families
  if (endpoint.address.ss_family == AF_INET) {
    const std::uint32_t wanted = reinterpret_cast<const sockaddr_in&>(endpoint.address).sin_addr.s_addr;
    const auto own = v4_of(info.family, id.idiag_src);
    return own && (wanted == htonl(INADDR_ANY) || *own == wanted);
  }
  const in6_addr& wanted = reinterpret_cast<const sockaddr_in6&>(endpoint.address).sin6_addr;
  return IN6_IS_ADDR_UNSPECIFIED(&wanted) || (info.family == AF_INET6 && std::memcmp(&wanted, id.idiag_src, sizeof wanted) == 0);
}

// Needs CAP_NET_ADMIN; without it the port stays as it was.
void destroy(const SocketInfo& info) {
  auto fd = open_sock_diag();
  if (!fd) return;
  DiagRequest request = diag_request(SOCK_DESTROY, NLM_F_ACK, info.family);
  request.body.idiag_states = 1u << info.state;
  request.body.id = identity_of(info);
  if (send_request(fd->get(), request)) (void)read_answers(fd->get(), 0, nullptr);  // the kernel's answer means that it is done
}

using Directory = std::unique_ptr<DIR, int (*)(DIR*)>;

bool holds_socket(const std::string& process, std::string_view target, std::size_t& looks) {
  const Directory fds(::opendir((process + "/fd").c_str()), ::closedir);
  if (!fds) return false;  // gone, or not permitted
  for (const dirent* entry; looks > 0 && (entry = ::readdir(fds.get())) != nullptr; --looks) {
    std::array<char, 64> link;
    const ssize_t length = ::readlinkat(::dirfd(fds.get()), entry->d_name, link.data(), link.size());
    if (length > 0 && target == std::string_view(link.data(), static_cast<std::size_t>(length))) return true;
  }
  return false;
}

// "pid 812 (nginx)", or "" if no process that was looked at has the socket.
std::string owner_of(std::uint32_t inode) {
  std::size_t looks = kOwnerLooks;
  const std::string target = "socket:[" + std::to_string(inode) + "]";
  const Directory proc(::opendir("/proc"), ::closedir);
  if (!proc) return "";
  for (const dirent* entry; looks > 0 && (entry = ::readdir(proc.get())) != nullptr;) {
    --looks;
    const std::string pid = entry->d_name;
    const std::string process = "/proc/" + pid;
    if (pid.find_first_not_of("0123456789") != std::string::npos || !holds_socket(process, target, looks)) continue;
    std::string name = read_small_file(process + "/comm").value_or("");
    while (!name.empty() && name.back() == '\n') name.pop_back();
    return "pid " + pid + " (" + name + ")";
  }
  return "";
}

}  // namespace

Result<std::vector<SocketInfo>> sockets_on_port(std::uint16_t port) {
  std::vector<SocketInfo> sockets;
  for (const std::uint8_t family : {std::uint8_t{AF_INET}, std::uint8_t{AF_INET6}}) {
    auto fd = open_sock_diag();
    if (!fd) return fail(fd.error());
    DiagRequest request = diag_request(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, family);
    request.body.idiag_states = ~0u;
    request.body.id.idiag_sport = htons(port);
    if (Status sent = send_request(fd->get(), request); !sent) return fail(sent.error());
    if (Status read = read_answers(fd->get(), port, &sockets); !read) return fail(read.error());
  }
  return sockets;
}

Status check_port(const std::string& address, std::uint16_t port, PortOwner said) {
  const std::optional<Endpoint> endpoint = endpoint_of(address, port);
  if (port == 0 || !endpoint) return {};
  const std::string what = "port " + std::to_string(port) + (address.empty() ? "" : " on " + address);
  for (int round = 0; round < kDestroyRounds; ++round) {
    const int error = try_bind(*endpoint, false);
    if (error == 0) return {};
    if (error != EADDRINUSE)
      return fail(ErrorCode::unavailable, what + " cannot be bound: " + cause_of(error),
                  "set network.taskAddress to an address of this host");
    const std::string next = "stop it (ss -ltnp names it to root), or keep the range network.taskPorts free of other programs";
    const auto sockets = sockets_on_port(port);
    bool leftovers = false;
    for (const SocketInfo& info : sockets ? *sockets : std::vector<SocketInfo>()) {
      if (!conflicts(info, *endpoint)) continue;
      if (info.inode == 0) {
        destroy(info);
        leftovers = true;
        continue;
      }
      const std::string owner = said == PortOwner::process ? owner_of(info.inode) : "";
      return fail(ErrorCode::unavailable,
                  what + " is used by " + (owner.empty() ? "a process of user id " + std::to_string(info.uid) : owner), next);
    }
    // Older kernels list a socket that is bound and does not listen in no table.
    if (!leftovers) return fail(ErrorCode::unavailable, what + " is used by another program", next);
  }
  if (try_bind(*endpoint, false) == 0 || try_bind(*endpoint, true) == 0) return {};
  return fail(ErrorCode::unavailable, what + " is still held by closed connections of an earlier process (TIME_WAIT)",
              "try again in a minute, or run dtraind with CAP_NET_ADMIN, which lets it remove them");
}

}  // namespace dtrain::proc
