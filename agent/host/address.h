// Addresses of this host: which one the agent listens on, which one it advertises, and on which interface that is.
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
bool is_link_local(const std::string& ip);   // 169.254/16 or fe80::/10: valid only on its own link

// 0.0.0.0 listens to IPv4 only, :: to IPv6 only: a peer that gets an address of the other family cannot connect.
enum class Family : unsigned char { ipv4, ipv6 };
Family family_of(const std::string& ip);

// Addresses of interfaces that are up.
Result<std::vector<Interface>> interfaces();
// The interface that carries `ip`; "" when none does. Any 127/8 address is lo's.
std::string interface_of(const std::string& ip);
// For an IP itself; for an interface's name its first address, if possible one of `preferred` that is not link-local.
Result<std::string> resolve_ip_or_interface(const std::string& text, Family preferred = Family::ipv4);
// The address of `family` from which the kernel would send to `seed` (as parse_seed() takes it), never a link-local
// one. Sends nothing; resolves a name, which may take as long as the resolver does.
Result<std::string> source_address_towards(const std::string& seed, Family family);

inline constexpr std::size_t kRouteTargets = 16;  // further peers add nothing about the route
// The targets for choose_advertise(). Each name among the seeds costs a look-up of up to half a minute, so names are
// left out if a peer's IP is known.
std::vector<std::string> route_targets(const std::vector<std::string>& seeds, const std::vector<std::string>& peer_ips);

// Chooses the address to advertise, of the family of `listen`: `advertise` if given; else the listen address if it is
// specific; else the source address towards the first target that has one; without targets that of the default route;
// without that the only address there is. Never loopback or link-local unless given. Errors: the given address has
// the other family, or belongs to no interface.
Result<std::string> choose_advertise(const Endpoint& listen, const std::string& advertise, const std::vector<std::string>& targets);
// The only address of `family` that is neither loopback's nor link-local. Errors: there is none, or several.
Result<std::string> only_address(const std::vector<Interface>& all, Family family);
// A warning with its cure when no interface has the address; "" when all is well.
std::string check_advertise(const std::string& ip, const std::vector<Interface>& all);

}  // namespace dtrain::host
