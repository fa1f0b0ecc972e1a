// The founders of a cluster as the config names them: which of them this machine is, and where the others are.
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

// HOST, or HOST:PORT with another port than the usual one: alike on all machines, however each of them writes it.
std::string founder_name(const host::Seed& seed);

// Which of them this machine is: the one that is its node name (or begins with it and a dot), else whose address is its
// own, else, where names may be looked up, whose name stands for such an address. "": none of them.
// ErrorCode::invalid: several are.
Result<std::string> own_founder(const std::vector<host::Seed>& founders, const std::string& node_name,
                                const host::Endpoint& advertised, bool look_up);

// Addresses of founders, by founder_name(); names are looked up anew every now and then, without making anybody wait.
class Founders {
 public:
  using Watch = std::function<Status(int fd, std::function<void()> dispatch)>;
  // Once.
  Status open(const std::vector<std::string>& founders, const Watch& watch);
  // As known now; a name that was not looked up yet has none, and soon will.
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
