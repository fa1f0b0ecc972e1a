// Resolves names of seeds to addresses, anew at each request, without ever blocking the loop: a resolver may take
// half a minute. IP addresses are answered at once; names are looked up on a thread that ends with the answer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/host/address.h"
#include "common/base/result.h"

namespace dtrain::host {

inline constexpr std::uint16_t kDefaultPort = 7400;  // of a seed that names none
inline constexpr std::size_t kAddressesOfName = 8;   // further ones of a name are left out

// "gpu01", "10.0.0.1:7400", "[fd00::1]:7400", "fd00::1"; the port defaults to kDefaultPort.
struct Seed {
  std::string host;
  std::uint16_t port = kDefaultPort;
};
Result<Seed> parse_seed(std::string_view text);

// Addresses of the name; empty: there are none now. Waits for the name server as long as that takes.
std::vector<std::string> addresses_of(const std::string& name);

class Resolver {
 public:
  // Gets all addresses found so far; called again when a name adds to them.
  using Sink = std::function<void(std::vector<Endpoint>)>;

  static Result<std::unique_ptr<Resolver>> open();
  ~Resolver();
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // A request while names are still being looked up gets the same answer.
  void resolve(const std::vector<Seed>& seeds, const Sink& sink);
  int fd() const;  // readable: dispatch() has addresses
  void dispatch(const Sink& sink);

 private:
  struct Shared;
  explicit Resolver(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  std::shared_ptr<Shared> shared_;  // with the thread, which may outlive this
};

}  // namespace dtrain::host
