// All copies of the ledger that have applied as many entries of the log are the same, byte for byte (every so many entries); and once the
// cluster was left in peace, none of them is more than a few entries behind, and none is of an older history.
#include <algorithm>
#include <functional>
#include <map>

#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {
namespace {

class CopiesEqual final : public Checker {
 public:
  explicit CopiesEqual(WorldView& world) : Checker(world), every_(kEvery * (1 + world.hosts() / kHosts)) {}
  std::string_view name() const override { return "copies_equal"; }

  void stepped(std::size_t host) override {
    if (world_.alone()) return;
    const std::uint64_t index = world_.host_view(host).ledger_index();
    std::uint64_t& last = last_[host];
    if (index == last || index == 0) return;  // 0: no copy, or one that is not counted on
    last = index;
    if (index % every_ == 0) judge(host, index);
  }
  void undone(std::uint64_t last) override { prints_.erase(prints_.upper_bound(last), prints_.end()); }
  void at_rest() override { all_equal(); }
  void at_end() override { all_equal(); }

 private:
  // Encoding a whole ledger takes long, and the ledger of many hosts is large.
  static constexpr std::uint64_t kEvery = 16, kHosts = 10;
  static constexpr std::uint64_t kOnTheirWay = 8;  // at any instant

  void judge(std::size_t host, std::uint64_t index) {
    const std::size_t print = std::hash<std::string>{}(world_.host_view(host).node()->ledger_bytes());
    const auto [seen, first] = prints_.try_emplace(index, print);
    if (!first && seen->second != print)
      violation("the ledger of " + world_.host_view(host).name() + " is another than was seen elsewhere after entry " +
                std::to_string(index));
  }

  void all_equal() {
    if (world_.alone()) return;
    std::uint64_t index = 0;
    for (std::size_t i = 0; i < world_.hosts(); ++i) {
      const HostView& host = world_.host_view(i);
      if (host.node() == nullptr) return violation("the agent of " + host.name() + " is down although faults are over");
      if (host.of_older_history()) return violation(host.name() + " has not followed the new history of the cluster");
      const std::uint64_t here = host.ledger_index();
      if (here == 0) continue;  // no copy is kept there
      if (index == 0) index = here;
      if (std::max(here, index) - std::min(here, index) > kOnTheirWay)
        return violation(host.name() + " has applied " + std::to_string(here) + " entries, another " + std::to_string(index));
      judge(i, here);
    }
    if (index == 0) violation("nobody has a copy of the ledger");
  }

  const std::uint64_t every_;  // entries
  std::map<std::uint64_t, std::size_t> prints_;
  std::map<std::size_t, std::uint64_t> last_;
};

}  // namespace

std::unique_ptr<Checker> copies_equal(WorldView& world) { return std::make_unique<CopiesEqual>(world); }

}  // namespace dtrain::sim
