// In the table of every member that is well a name stands for one living member, while the network is whole.
#include <map>

#include "tests/sim/membership/checkers/checkers.h"

namespace dtrain::sim::membership {
namespace {

constexpr std::uint32_t kAtOnce = 4;  // observers looked at in one sample: in turn

class OneNameOneMember final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "one_name_one_member"; }

  void sampled() override {
    if (!world_.network_whole() || world_.slots() == 0) return;
    for (std::uint32_t i = 0; i < kAtOnce; ++i) look(next_++ % world_.slots());
  }
  void at_rest() override {
    const std::uint32_t step = world_.slots() / 256 + 1;
    for (std::uint32_t slot = 0; slot < world_.slots(); slot += step) look(slot);
  }

 private:
  void look(std::uint32_t slot) {
    if (!world_.fit(slot)) return;
    std::map<std::string, MemberId> alive;
    world_.each_seen(slot, [&](const gossip::MemberView& row) {
      if (row.state != wire::MemberState::alive) return;
      const auto [at, fresh] = alive.emplace(row.identity->name, row.identity->id);
      if (!fresh && at->second != row.identity->id)
        violation(world_.name(slot) + " has two living members of the name " + row.identity->name + ": " + at->second.text() + " and " +
                  row.identity->id.text());
    });
  }
  std::uint32_t next_ = 0;
};

}  // namespace

std::unique_ptr<Checker> one_name_one_member(WorldView& world) { return std::make_unique<OneNameOneMember>(world); }

}  // namespace dtrain::sim::membership
