#include "agent/loop/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>

namespace dtrain::loop {
namespace {

std::string take_variable(const char* name) {
  const char* value = ::getenv(name);
  std::string taken = value ? value : "";
  ::unsetenv(name);
  return taken;
}

std::uint64_t number_of(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value);
  return wrong == std::errc() && end == text.data() + text.size() ? value : 0;
}

// The manager's socket: a path, or "@" and an abstract name. Length 0: it cannot be one.
socklen_t address_of(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  if (name.size() < 2 || name.size() >= sizeof address.sun_path || (name[0] != '/' && name[0] != '@')) return 0;
  name.copy(address.sun_path, name.size());
  if (name[0] == '@') address.sun_path[0] = '\0';
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
}

}  // namespace

ServiceManager ServiceManager::from_environment() {
  ServiceManager manager;
  manager.name_ = take_variable("NOTIFY_SOCKET");
  const std::uint64_t microseconds = number_of(take_variable("WATCHDOG_USEC"));
  const std::string pid = take_variable("WATCHDOG_PID");
  sockaddr_un address{};
  if (address_of(manager.name_, address) != 0) manager.fd_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  // It belongs to another process, which passed its environment on, or to none.
  if (microseconds == 0 || (!pid.empty() && number_of(pid) != static_cast<std::uint64_t>(::getpid()))) return manager;
  manager.watches_ = true;
  const auto limit = std::chrono::microseconds(std::min<std::uint64_t>(microseconds, std::uint64_t{1} << 50));
  manager.period_ = std::clamp<Duration>(limit / kSignsPerWatchdog, kShortestTell, kTellEvery);
  return manager;
}

void ServiceManager::send(std::string text, const std::string& status) {
  std::string line = status.substr(0, kStatusBytes);
  std::replace(line.begin(), line.end(), '\n', ' ');  // a line break would begin another assignment
  const bool news = !line.empty() && line != said_;
  if (news) text += (text.empty() ? "STATUS=" : "\nSTATUS=") + line;
  if (!listens() || text.empty()) return;
  // By name each time: a restarted manager may have bound another socket there.
  sockaddr_un address{};
  const socklen_t length = address_of(name_, address);
  const ssize_t sent =
      ::sendto(fd_.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), length);
  if (sent >= 0 && news) said_ = std::move(line);
}

void ServiceManager::ready(Instant now, const std::string& status) {
  if (!listens()) return;
  send("READY=1", status);
  next_ = now + period_;
}

void ServiceManager::tell(Instant now, const std::string& status) {
  if (!listens()) return;
  send(watches_ ? "WATCHDOG=1" : "", status);
  next_ = now + period_;
}

void ServiceManager::stopping(const std::string& status) {
  send("STOPPING=1", status);
  next_ = kNever;
}

}  // namespace dtrain::loop
