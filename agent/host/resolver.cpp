#include "agent/host/resolver.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "agent/base/epoll.h"

namespace dtrain::host {

std::vector<std::string> addresses_of(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* raw = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &raw) != 0) return {};  // looked up again at the next try
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> found(raw, &::freeaddrinfo);
  std::vector<std::string> ips;
  for (const addrinfo* entry = found.get(); entry && ips.size() < kAddressesOfName; entry = entry->ai_next) {
    char text[INET6_ADDRSTRLEN] = "";
    if (entry->ai_family == AF_INET)
      ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(entry->ai_addr)->sin_addr, text, sizeof text);
    else if (entry->ai_family == AF_INET6)
      ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(entry->ai_addr)->sin6_addr, text, sizeof text);
    if (text[0] != '\0' && std::find(ips.begin(), ips.end(), text) == ips.end()) ips.emplace_back(text);
  }
  return ips;
}

Result<Seed> parse_seed(std::string_view text) {
  const auto wrong = [&](const std::string& cause) {
    return fail(ErrorCode::invalid, "could not read node \"" + std::string(text) + "\": " + cause,
                "write HOST or HOST:PORT, such as gpu01, 10.0.0.11:7400 or [fd00::1]:7400");
  };
  Seed seed;
  std::string_view host = text, port;
  if (text.starts_with('[')) {
    const auto end = text.find(']');
    if (end == std::string_view::npos) return wrong("the bracket is not closed");
    host = text.substr(1, end - 1);
    port = text.substr(end + 1);
    if (!port.empty() && port.front() != ':') return wrong("behind the bracket comes :PORT or nothing");
    if (!port.empty()) port.remove_prefix(1);
  } else if (const auto colon = text.rfind(':'); colon != std::string_view::npos && text.find(':') == colon) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (port.empty()) return wrong("the port is missing");
  }
  if (host.empty()) return wrong("the host is missing");
  seed.host = host;
  if (!port.empty()) {
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), seed.port);
    if (error != std::errc() || end != port.data() + port.size() || seed.port == 0) return wrong("the port must be 1 to 65535");
  }
  return seed;
}

struct Resolver::Shared {
  const WorkFlag news;
  std::mutex mutex;
  bool running = false;                         // a thread looks up
  std::optional<std::vector<Endpoint>> answer;  // not yet delivered
};

Result<std::unique_ptr<Resolver>> Resolver::open() {
  auto shared = std::make_shared<Shared>();
  if (!shared->news) return fail(ErrorCode::io, std::string("could not create the resolver's eventfd: ") + ::strerror(errno));
  return std::unique_ptr<Resolver>(new Resolver(std::move(shared)));
}

Resolver::~Resolver() = default;

int Resolver::fd() const { return shared_->news.fd(); }

void Resolver::resolve(const std::vector<Seed>& seeds, const Sink& sink) {
  std::vector<Endpoint> known;
  std::vector<Seed> names;
  for (const Seed& seed : seeds) {
    if (is_ip(seed.host)) known.push_back({seed.host, seed.port});
    else names.push_back(seed);
  }
  if (!known.empty() || names.empty()) sink(known);
  if (names.empty()) return;
  {
    const std::lock_guard lock(shared_->mutex);
    if (std::exchange(shared_->running, true)) return;
  }
  // Detached: the agent must be able to stop while a name server is silent. What the thread uses is shared.
  try {
    std::thread([shared = shared_, names = std::move(names), all = std::move(known)]() mutable {
      for (std::size_t i = 0; i < names.size(); ++i) {
        for (std::string& ip : addresses_of(names[i].host)) all.push_back({std::move(ip), names[i].port});
        const std::lock_guard lock(shared->mutex);
        shared->answer = all;
        if (i + 1 == names.size()) shared->running = false;
        shared->news.raise();
      }
    }).detach();
  } catch (const std::system_error&) {  // no thread available: looked up again at the next try
    const std::lock_guard lock(shared_->mutex);
    shared_->running = false;
  }
}

void Resolver::dispatch(const Sink& sink) {
  shared_->news.lower();
  std::optional<std::vector<Endpoint>> answer;
  {
    const std::lock_guard lock(shared_->mutex);
    answer.swap(shared_->answer);
  }
  if (answer) sink(std::move(*answer));
}

}  // namespace dtrain::host
