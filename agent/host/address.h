// Addresses of this host: what the agent listens on, what it tells others, and which interface that is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace dtrain::host {

struct Endpoint {
  std::string ip;          // numeric; IPv6 without brackets
  std::uint16_t port = 0;  // 0: any free one
  std::string text() const;
};

struct Interface {
  std::string name;
  std::string ip;
};

// "10.0.0.11:7400" or "[fd00::1]:7400".
Result<Endpoint> parse_endpoint(std::string_view text);
bool is_ip(const std::string& text);
bool is_loopback(const std::string& ip);     // 127/8 or ::1
bool is_unspecified(const std::string& ip);  // 0.0.0.0 or ::
bool is_link_local(const std::string& ip);   // 169.254/16 or fe80::/10: means nothing beyond its own wire

// 0.0.0.0 listens to IPv4 only, :: to IPv6 only: who is told an address of the other family cannot connect.
enum class Family : unsigned char { ipv4, ipv6 };
Family family_of(const std::string& ip);

// Addresses of interfaces that are up.
Result<std::vector<Interface>> interfaces();
// The interface that carries `ip`; "" when none does. Any 127/8 address is lo's.
std::string interface_of(const std::string& ip);
// An IP is itself; an interface's name is its first address, of `preferred` and not link-local where it has such a one.
Result<std::string> resolve_ip_or_interface(const std::string& text, Family preferred = Family::ipv4);
// The address of `family` that the kernel would send from towards `seed` (as parse_seed() takes it), never a link-local
// one. Sends nothing; a name is resolved, which may take as long as the resolver does.
Result<std::string> source_address_towards(const std::string& seed, Family family);

inline constexpr std::size_t kRouteTargets = 16;  // further peers tell nothing new about the way to them
// What choose_advertise() is to look towards: names among the seeds cost a look-up each, half a minute at worst, and are
// left out where a peer's IP is known from before.
std::vector<std::string> route_targets(const std::vector<std::string>& seeds, const std::vector<std::string>& peer_ips);

// What to advertise, of the family of `listen`: `advertise` where given; else the listen address where it is a specific
// one; else the source address towards the first target that has one; without targets that of the default route; without
// that the only address there is. Never loopback or link-local unasked. Errors: the address given is of the other family,
// or nobody's.
Result<std::string> choose_advertise(const Endpoint& listen, const std::string& advertise,
                                     const std::vector<std::string>& targets);
// The only address of `family` that is neither loopback's nor link-local. Errors: there is none, or several.
Result<std::string> only_address(const std::vector<Interface>& all, Family family);
// A warning with its cure when no interface has the address; "" when all is well.
std::string check_advertise(const std::string& ip, const std::vector<Interface>& all);

}  // namespace dtrain::host
