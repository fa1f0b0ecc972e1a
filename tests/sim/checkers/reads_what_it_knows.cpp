// A program that does not know the version of the ledger never goes on behind what it cannot read; and only who was given an older
// program than it had is ever left behind: the ledger is raised when all who have a copy know the next version.
#include <set>

#include "common/wire/since.h"
#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {
namespace {

class ReadsWhatItKnows final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "reads_what_it_knows"; }

  void stepped(std::size_t number) override {
    const HostView& host = world_.host_view(number);
    if (host.knows() >= wire::kRehearsal.version) newer_.insert(number);
    if (host.node() == nullptr) return;
    const cluster::Ledger& ledger = host.node()->ledger();
    if (ledger.state().version > host.knows() || (ledger.state().rehearsals > 0 && host.knows() < wire::kRehearsal.version))
      violation("the ledger of " + host.name() + " has version " + std::to_string(ledger.state().version) +
                ", of which its program knows nothing");
    if (ledger.behind() && !newer_.contains(number))
      violation("the program of " + host.name() + " was left behind: " + ledger.behind()->cause);
  }
  void at_rest() override {
    for (std::size_t i = 0; i < world_.hosts(); ++i)
      if (const node::Node* node = world_.host_view(i).node(); node != nullptr && node->ledger().behind())
        violation(world_.host_view(i).name() + " was upgraded and still cannot read: " + node->ledger().behind()->cause);
  }

 private:
  std::set<std::size_t> newer_;  // hosts that once had the newer program
};

}  // namespace

std::unique_ptr<Checker> reads_what_it_knows(WorldView& world) { return std::make_unique<ReadsWhatItKnows>(world); }

}  // namespace dtrain::sim
