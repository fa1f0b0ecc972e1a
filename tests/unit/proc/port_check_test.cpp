#include "agent/proc/port_check.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "agent/base/unique_fd.h"

namespace dtrain::proc {
namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A listening socket on 127.0.0.1 with a port of the kernel's choice.
UniqueFd listen_anywhere(std::uint16_t& port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(0);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(fd.get(), 4), 0);
  socklen_t length = sizeof address;
  EXPECT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  port = ntohs(address.sin_port);
  return fd;
}

std::string own_name() {
  std::ifstream comm("/proc/self/comm");
  std::string name;
  std::getline(comm, name);
  return "pid " + std::to_string(::getpid()) + " (" + name + ")";
}

bool may_destroy_sockets() {
  constexpr int kNetAdmin = 12;  // bit of CAP_NET_ADMIN
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("CapEff:")) return (std::stoull(line.substr(7), nullptr, 16) >> kNetAdmin & 1) != 0;
  return false;
}

TEST(PortCheck, AFreePortIsFree) {
  std::uint16_t port = 0;
  listen_anywhere(port).reset();
  EXPECT_TRUE(check_port("127.0.0.1", port).has_value());
  EXPECT_TRUE(check_port("", port).has_value());
  EXPECT_TRUE(check_port("127.0.0.1", 0).has_value());
  EXPECT_TRUE(check_port("a-name", port).has_value()) << "names are not tested";
}

TEST(PortCheck, NamesTheOwner) {
  std::uint16_t port = 0;
  const UniqueFd listener = listen_anywhere(port);
  const Status taken = check_port("127.0.0.1", port);
  ASSERT_FALSE(taken.has_value());
  const std::string what = "port " + std::to_string(port) + " on 127.0.0.1 is used by ";
  EXPECT_EQ(taken.error().message, what + "a process of user id " + std::to_string(::geteuid()));
  EXPECT_EQ(check_port("127.0.0.1", port, PortOwner::process).error().message, what + own_name());
  EXPECT_FALSE(check_port("", port).has_value()) << "every address includes this one";
  EXPECT_TRUE(check_port("127.0.0.2", port).has_value()) << "another address is free";
}

// A user may have hundreds of thousands of descriptors: nobody looks at all of them.
TEST(PortCheck, AmongTooManyDescriptorsItsUserIsSaid) {
  constexpr int kOfOne = 8'000;
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_GE(limit.rlim_max, kOfOne + 100u) << "raise the hard limit of open files (ulimit -Hn)";
  std::vector<pid_t> hoards;
  const auto begin = [&](std::uint16_t* port) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    hoards.push_back(::fork());
    if (hoards.back() == 0) {
      limit.rlim_cur = limit.rlim_max;
      ::setrlimit(RLIMIT_NOFILE, &limit);
      std::uint16_t own = 0;
      const UniqueFd listener = port != nullptr ? listen_anywhere(own) : UniqueFd();
      for (int i = 0; port == nullptr && i < kOfOne; ++i)
        if (::dup(ready[0]) < 0) ::_exit(1);
      if (::write(ready[1], &own, sizeof own) != sizeof own) ::_exit(1);
      for (;;) ::pause();
    }
    ::close(ready[1]);
    std::uint16_t told = 0;
    EXPECT_EQ(::read(ready[0], &told, sizeof told), static_cast<ssize_t>(sizeof told));
    ::close(ready[0]);
    if (port != nullptr) *port = told;
  };
  for (std::size_t i = 0; i * kOfOne <= kOwnerLooks; ++i) begin(nullptr);
  std::uint16_t port = 0;
  begin(&port);  // behind them, unless the numbers of processes have just begun anew
  const bool in_order = std::is_sorted(hoards.begin(), hoards.end());
  const Status taken = check_port("127.0.0.1", port, PortOwner::process);
  for (const pid_t pid : hoards) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  ASSERT_FALSE(taken.has_value());
  if (in_order) {
    EXPECT_NE(taken.error().message.find("a process of user id "), std::string::npos) << taken.error().message;
  }
}

TEST(PortCheck, NamesTheOwnerOfAWildcardIpv6Socket) {
  const UniqueFd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  socklen_t length = sizeof address;
  if (!fd || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    return;  // a machine without IPv6 has no such conflict
  ASSERT_EQ(::listen(fd.get(), 4), 0);
  ASSERT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  const Status taken = check_port("127.0.0.1", ntohs(address.sin6_port), PortOwner::process);
  ASSERT_FALSE(taken.has_value());
  EXPECT_NE(taken.error().message.find(own_name()), std::string::npos) << taken.error().text();
}

TEST(PortCheck, SocketsThatAreBoundOnlyMatterOnTheirOwnPort) {
  const UniqueFd bound(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  ASSERT_EQ(::bind(bound.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::getsockname(bound.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  EXPECT_FALSE(check_port("127.0.0.1", ntohs(address.sin_port)).has_value());
  std::uint16_t free = 0;
  listen_anywhere(free).reset();
  const auto sockets = sockets_on_port(free);
  ASSERT_TRUE(sockets.has_value()) << sockets.error().text();
  EXPECT_TRUE(sockets->empty());
}

TEST(PortCheck, AnAddressOfAnotherHostIsRefused) {
  const Status refused = check_port("192.0.2.1", 20001);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("cannot be bound"), std::string::npos);
}

// A connection that the listening side closed first stays in TIME_WAIT there and would refuse a plain bind.
TEST(PortCheck, LeftoversOfAnEarlierProcessAreRemovedOrNamed) {
  std::uint16_t port = 0;
  UniqueFd listener = listen_anywhere(port);
  {
    const UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = loopback(port);
    ASSERT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    UniqueFd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(accepted);
    accepted.reset();  // the active close
    char byte = 0;
    ASSERT_EQ(::read(client.get(), &byte, 1), 0);
  }
  listener.reset();
  const auto sockets = sockets_on_port(port);
  ASSERT_TRUE(sockets.has_value()) << sockets.error().text();
  ASSERT_FALSE(sockets->empty());
  EXPECT_EQ(sockets->front().inode, 0u);
  // Removed where permitted; else a server that sets SO_REUSEADDR can start all the same.
  const Status freed = check_port("127.0.0.1", port);
  EXPECT_TRUE(freed.has_value()) << freed.error().text();
  if (may_destroy_sockets()) {
    EXPECT_TRUE(sockets_on_port(port)->empty());
  }
}

}  // namespace
}  // namespace dtrain::proc
