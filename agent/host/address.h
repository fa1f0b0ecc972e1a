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

// Addresses of interfaces that are up.
Result<std::vector<Interface>> interfaces();
// The interface that carries `ip`; "" when none does. Any 127/8 address is lo's.
std::string interface_of(const std::string& ip);
// An IP is itself; an interface's name is its first address.
Result<std::string> resolve_ip_or_interface(const std::string& text);
// The address that the kernel would send from towards `seed` ("gpu01", "10.0.0.1", either with ":PORT"). Sends
// nothing; a name is resolved, which may take as long as the resolver does.
Result<std::string> source_address_towards(const std::string& seed);

// What to advertise: `advertise` where given; else the listen address where it is a specific one; else the source
// address towards the first seed that answers to its name; without seeds that of the default route; without that the only
// address there is. Never loopback unasked.
Result<std::string> choose_advertise(const Endpoint& listen, const std::string& advertise,
                                     const std::vector<std::string>& seeds);
// The only address that is not loopback's. Errors: there is none, or several.
Result<std::string> only_address(const std::vector<Interface>& all);
// A warning with its cure when no interface has the address; "" when all is well.
std::string check_advertise(const std::string& ip, const std::vector<Interface>& all);

}  // namespace dtrain::host
