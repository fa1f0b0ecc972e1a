// The founders that the configuration names: which of them this machine is, and the addresses of the others.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/host/resolver.h"
#include "common/base/result.h"
#include "common/base/time.h"

namespace dtrain::daemon {

inline constexpr Duration kFounderLookup = 2s;  // least time between two look-ups of one founder's name

// HOST, or HOST:PORT with a port other than the usual one: the same on all machines, however each of them writes it.
std::string founder_name(const host::Seed& seed);

// Returns which founder this machine is: the one with its node name (or beginning with it and a dot), else the one
// with its address, else, if names may be looked up, the one whose name resolves to such an address. "": none of
// them. ErrorCode::invalid: several are.
Result<std::string> own_founder(const std::vector<host::Seed>& founders, const std::string& node_name, const host::Endpoint& advertised,
                                bool look_up);

// The founders' addresses, by founder_name(). Names are looked up again from time to time, without blocking.
class Founders {
 public:
  using Watch = std::function<Status(int fd, std::function<void()> dispatch)>;
  // To be called once.
  Status open(const std::vector<std::string>& founders, const Watch& watch);
  // The addresses known now; a name that was not looked up yet has none, and soon will.
  std::vector<host::Endpoint> addresses(const std::string& founder, Instant now);

 private:
  struct Place {
    host::Seed seed;
    std::vector<host::Endpoint> addresses;
    std::unique_ptr<host::Resolver> resolver;  // of a name
    Instant next{};
    host::Resolver::Sink sink();
  };
  std::map<std::string, Place> places_;
};

}  // namespace dtrain::daemon
