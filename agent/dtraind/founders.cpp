#include "agent/dtraind/founders.h"

#include <algorithm>

namespace dtrain::daemon {
namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : " and ") + name;
  return out;
}

// If a machine listens on every address, any of its interfaces may be meant.
std::vector<std::string> own_addresses(const std::string& advertised) {
  std::vector<std::string> ips{advertised};
  for (const host::Interface& interface : host::interfaces().value_or(std::vector<host::Interface>()))
    if (!host::is_loopback(interface.ip)) ips.push_back(interface.ip);
  return ips;
}

bool any_of_them(const std::vector<std::string>& ips, const std::vector<std::string>& own) {
  return std::ranges::any_of(ips, [&](const std::string& ip) { return std::ranges::find(own, ip) != own.end(); });
}

}  // namespace

std::string founder_name(const host::Seed& seed) {
  if (seed.port == host::kDefaultPort) return seed.host;
  return host::is_ip(seed.host) ? host::Endpoint{seed.host, seed.port}.text() : seed.host + ":" + std::to_string(seed.port);
}

Result<std::string> own_founder(const std::vector<host::Seed>& founders, const std::string& node_name, const host::Endpoint& advertised,
                                bool look_up) {
  const std::vector<std::string> own = own_addresses(advertised.ip);
  const auto named = [&](const host::Seed& seed) {
    return !host::is_ip(seed.host) && (seed.host == node_name || seed.host.starts_with(node_name + "."));
  };
  const auto at_it = [&](const host::Seed& seed) { return seed.host == advertised.ip; };
  const auto here = [&](const host::Seed& seed) { return host::is_ip(seed.host) && any_of_them({seed.host}, own); };
  const auto leads_here = [&](const host::Seed& seed) {
    return look_up && !host::is_ip(seed.host) && any_of_them(host::addresses_of(seed.host), own);
  };
  std::vector<std::string> found;
  const auto try_with = [&](const auto& is_it) {
    if (!found.empty()) return;
    for (const host::Seed& seed : founders)
      if (seed.port == advertised.port && is_it(seed)) found.push_back(founder_name(seed));
  };
  try_with(named);
  try_with(at_it);
  try_with(here);
  try_with(leads_here);
  if (found.size() > 1)
    return fail(ErrorCode::invalid, "could not form a cluster: " + joined(found) + " are all this machine",
                "name each founder once in `join`, and give each node a name of its own");
  return found.empty() ? std::string() : found.front();
}

Status Founders::open(const std::vector<std::string>& founders, const Watch& watch) {
  for (const std::string& founder : founders) {
    Place& place = places_[founder];
    place.seed = host::parse_seed(founder).value_or(host::Seed{});
    if (host::is_ip(place.seed.host)) {
      place.addresses = {{place.seed.host, place.seed.port}};
      continue;
    }
    auto resolver = host::Resolver::open();
    if (!resolver) return fail(resolver.error());
    place.resolver = std::move(*resolver);
    if (auto watched = watch(place.resolver->fd(), [&place] { place.resolver->dispatch(place.sink()); }); !watched) return watched;
  }
  return {};
}

// While the name server does not answer, the last known addresses stay.
host::Resolver::Sink Founders::Place::sink() {
  return [this](std::vector<host::Endpoint> found) {
    if (!found.empty()) addresses = std::move(found);
  };
}

std::vector<host::Endpoint> Founders::addresses(const std::string& founder, Instant now) {
  const auto at = places_.find(founder);
  if (at == places_.end()) return {};
  Place& place = at->second;
  if (place.resolver && place.next <= now) {
    place.next = now + kFounderLookup;
    place.resolver->resolve({place.seed}, place.sink());
  }
  return place.addresses;
}

}  // namespace dtrain::daemon
