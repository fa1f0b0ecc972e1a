#include "agent/host/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "agent/host/resolver.h"

namespace dtrain::host {
namespace {

// TEST-NET-1 (RFC 5737) and the documentation prefix (RFC 3849) belong to nobody, so the route towards them is the default route.
constexpr const char* kFarAway = "192.0.2.1";
constexpr const char* kFarAwayIpv6 = "2001:db8::1";

std::string to_text(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  else if (address->sa_family == AF_INET6)
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
  return text;
}

}  // namespace

std::string Endpoint::text() const {
  const std::string port_text = ":" + std::to_string(port);
  return ip.find(':') == std::string::npos ? ip + port_text : "[" + ip + "]" + port_text;
}

bool is_ip(const std::string& text) {
  unsigned char bytes[16];
  return ::inet_pton(AF_INET, text.c_str(), bytes) == 1 || ::inet_pton(AF_INET6, text.c_str(), bytes) == 1;
}

bool is_loopback(const std::string& ip) {
  in_addr v4{};
  if (::inet_pton(AF_INET, ip.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return ::inet_pton(AF_INET6, ip.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool is_unspecified(const std::string& ip) {
  in_addr v4{};
  if (::inet_pton(AF_INET, ip.c_str(), &v4) == 1) return v4.s_addr == INADDR_ANY;
  in6_addr v6{};
  return ::inet_pton(AF_INET6, ip.c_str(), &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6);
}

bool is_link_local(const std::string& ip) {
  in_addr v4{};
  if (::inet_pton(AF_INET, ip.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 16) == 0xa9fe;
  in6_addr v6{};
  return ::inet_pton(AF_INET6, ip.c_str(), &v6) == 1 && IN6_IS_ADDR_LINKLOCAL(&v6);
}

Family family_of(const std::string& ip) { return ip.find(':') == std::string::npos ? Family::ipv4 : Family::ipv6; }

Result<Endpoint> parse_endpoint(std::string_view text) {
  const auto wrong = [&](const std::string& cause) {
    return fail(ErrorCode::invalid, "could not read address \"" + std::string(text) + "\": " + cause,
                "write IP:PORT, such as 10.0.0.11:7400 or [fd00::1]:7400");
  };
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return wrong("it has no port");
  Endpoint endpoint;
  endpoint.ip = text.substr(0, colon);
  if (endpoint.ip.size() >= 2 && endpoint.ip.front() == '[' && endpoint.ip.back() == ']')
    endpoint.ip = endpoint.ip.substr(1, endpoint.ip.size() - 2);
  else if (endpoint.ip.find(':') != std::string::npos) return wrong("an IPv6 address needs brackets");
  if (!is_ip(endpoint.ip)) return wrong("\"" + endpoint.ip + "\" is not an IP address");
  const std::string_view port = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  if (error != std::errc() || end != port.data() + port.size()) return wrong("the port must be 0 to 65535");
  return endpoint;
}

Result<std::vector<Interface>> interfaces() {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return fail(ErrorCode::io, std::string("could not list the network interfaces: ") + ::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, &::freeifaddrs);
  std::vector<Interface> v4, v6;
  for (const ifaddrs* entry = list.get(); entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP)) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family == AF_INET) v4.push_back({entry->ifa_name, to_text(entry->ifa_addr)});
    // A link-local address is valid only with its interface, so it cannot be advertised.
    if (family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr))
      v6.push_back({entry->ifa_name, to_text(entry->ifa_addr)});
  }
  v4.insert(v4.end(), v6.begin(), v6.end());
  return v4;
}

std::string interface_of(const std::string& ip) {
  const auto all = interfaces();
  if (!all) return "";
  std::string loopback;
  for (const Interface& interface : *all) {
    if (interface.ip == ip) return interface.name;
    if (interface.ip == "127.0.0.1") loopback = interface.name;
  }
  return is_loopback(ip) ? loopback : "";
}

Result<std::string> resolve_ip_or_interface(const std::string& text, Family preferred) {
  if (is_ip(text)) return text;
  const auto all = interfaces();
  if (!all) return fail(all.error());
  const auto rank = [&](const std::string& ip) { return (family_of(ip) == preferred ? 2 : 0) + (is_link_local(ip) ? 0 : 1); };
  std::string known, best;
  for (const Interface& interface : *all) {
    if (interface.name == text && (best.empty() || rank(interface.ip) > rank(best))) best = interface.ip;
    if (known.find(interface.name) == std::string::npos) known += (known.empty() ? "" : ", ") + interface.name;
  }
  if (!best.empty()) return best;
  return fail(ErrorCode::invalid, "could not find an address for \"" + text + "\": it is neither an IP address nor an interface that is up",
              "interfaces with an address here: " + known);
}

Result<std::string> source_address_towards(const std::string& seed, Family family) {
  const auto target = parse_seed(seed);
  if (!target) return fail(target.error());
  addrinfo hints{};
  hints.ai_family = family == Family::ipv4 ? AF_INET : AF_INET6;
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* raw = nullptr;
  const int code = ::getaddrinfo(target->host.c_str(), std::to_string(target->port).c_str(), &hints, &raw);
  if (code != 0) return fail(ErrorCode::unavailable, "could not resolve " + target->host + ": " + ::gai_strerror(code));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> found(raw, &::freeaddrinfo);
  for (const addrinfo* entry = found.get(); entry; entry = entry->ai_next) {
    const int fd = ::socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    const bool routed =
        ::connect(fd, entry->ai_addr, entry->ai_addrlen) == 0 && ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0;
    ::close(fd);
    if (!routed) continue;
    std::string ip = to_text(reinterpret_cast<const sockaddr*>(&own));
    if (!is_link_local(ip)) return ip;
  }
  return fail(ErrorCode::unavailable, "could not find an address towards " + seed + ": there is no route to it");
}

std::vector<std::string> route_targets(const std::vector<std::string>& seeds, const std::vector<std::string>& peer_ips) {
  if (std::none_of(peer_ips.begin(), peer_ips.end(), is_ip)) return seeds;
  std::vector<std::string> ips;
  for (const std::string& text : seeds)
    if (const auto seed = parse_seed(text); seed && is_ip(seed->host)) ips.push_back(text);
  for (const std::string& ip : peer_ips) {
    if (ips.size() >= kRouteTargets) break;
    if (is_ip(ip)) ips.push_back(ip);
  }
  return ips;
}

Result<std::string> choose_advertise(const Endpoint& listen, const std::string& advertise, const std::vector<std::string>& targets) {
  const Family family = family_of(listen.ip);
  if (!advertise.empty()) {
    auto given = resolve_ip_or_interface(advertise, family);
    if (!given) return given;
    const std::string named = *given == advertise ? advertise : advertise + " (" + *given + ")";
    const bool scoped = family_of(*given) == Family::ipv6 && is_link_local(*given);
    if (is_unspecified(*given) || scoped)
      return fail(ErrorCode::invalid, "could not advertise " + named + ": nobody can reach that address",
                  "give the IP or INTERFACE that others reach this host at");
    if (family_of(*given) == family) return given;
    const bool v4 = family == Family::ipv4;
    return fail(
        ErrorCode::invalid, "could not advertise " + named + ": this agent listens on " + (v4 ? "IPv4" : "IPv6") + " only",
        std::string("give an ") + (v4 ? "IPv4" : "IPv6") + " address, or --listen " + Endpoint{v4 ? "::" : "0.0.0.0", listen.port}.text());
  }
  if (!is_unspecified(listen.ip)) return listen.ip;
  std::vector<std::string> all = targets;
  all.push_back(family == Family::ipv4 ? kFarAway : kFarAwayIpv6);
  for (const std::string& target : all) {
    const auto source = source_address_towards(target, family);
    // 127/8 is advertised only on request: a seed list may name this very machine.
    if (source && !is_loopback(*source)) return *source;
  }
  return only_address(interfaces().value_or(std::vector<Interface>()), family);
}

Result<std::string> only_address(const std::vector<Interface>& all, Family family) {
  std::string first, others;
  bool several = false;
  for (const Interface& interface : all) {
    if (is_loopback(interface.ip) || is_link_local(interface.ip) || family_of(interface.ip) != family) continue;
    others += (others.empty() ? "" : ", ") + interface.ip + " (" + interface.name + ")";
    if (first.empty()) first = interface.ip;
    else if (interface.ip != first) several = true;
  }
  if (!first.empty() && !several) return first;
  const std::string kind = family == Family::ipv4 ? "IPv4" : "IPv6";
  return fail(ErrorCode::unavailable,
              "could not choose an address to advertise: this host has no " + kind + " route to anywhere and " +
                  (first.empty() ? "no " + kind + " address but its own loopback" : "several " + kind + " addresses"),
              "give one with --advertise IP or INTERFACE" + (others.empty() ? "" : ": " + others));
}

std::string check_advertise(const std::string& ip, const std::vector<Interface>& all) {
  const bool ours = is_loopback(ip) || std::any_of(all.begin(), all.end(), [&](const Interface& i) { return i.ip == ip; });
  if (ours) return "";
  return "no interface here has the advertised address " + ip + ": right behind address translation only, where others' " +
         "connections to it must reach this host; else mend network.advertise";
}

}  // namespace dtrain::host
