// Some time after everything was healed all members of a cluster have the same table: everyone who runs is
// alive with the incarnation, identity and facts that it has itself; nobody else is alive or suspected; of
// those who are gone all know the same.
#include <algorithm>
#include <map>

#include "tests/sim/membership/checkers/checkers.h"

namespace dtrain::sim::membership {
namespace {

constexpr std::uint32_t kObservers = 300;  // of a large cluster: enough to find what a share of the members has wrong

const char* text(wire::MemberState state) { return wire::to_string(state); }

class Converges final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "converges"; }

  void at_rest() override {
    std::map<std::uint32_t, std::vector<std::uint32_t>> clusters;
    for (std::uint32_t slot = 0; slot < world_.slots(); ++slot) {
      const Truth& truth = world_.truth(slot);
      if (!truth.runs || truth.impostor) continue;
      if (!truth.admitted) {
        violation(world_.name(slot) + " runs and was not admitted");
        return;
      }
      clusters[truth.cluster].push_back(slot);
    }
    for (const auto& [cluster, members] : clusters) judge(members);
  }

 private:
  struct Gone {
    wire::MemberState state;
    std::uint64_t incarnation;
    std::uint32_t told_by;
  };

  void judge(const std::vector<std::uint32_t>& members) {
    std::map<MemberId, gossip::MemberView> expected;  // as each sees itself
    for (const std::uint32_t slot : members) {
      const MemberId& id = world_.truth(slot).identity.id;
      const auto self = world_.seen(slot, id);
      if (!self) {
        violation(world_.name(slot) + " does not know itself");
        return;
      }
      expected[id] = *self;
    }
    std::map<MemberId, Gone> gone;
    const std::size_t step = members.size() / kObservers + 1;
    for (std::size_t i = 0; i < members.size(); i += step) {
      if (!table_is_right(members[i], expected, gone)) return;
    }
  }

  bool table_is_right(std::uint32_t slot, const std::map<MemberId, gossip::MemberView>& expected, std::map<MemberId, Gone>& gone) {
    std::size_t found = 0;
    std::string wrong;
    world_.each_seen(slot, [&](const gossip::MemberView& row) {
      if (!wrong.empty()) return;
      const auto self = expected.find(row.identity->id);
      const std::string row_text = row.identity->name + " " + text(row.state) + " incarnation " + std::to_string(row.incarnation);
      if (self == expected.end()) {
        if (row.state == wire::MemberState::alive || row.state == wire::MemberState::suspect) wrong = row_text + ", which does not run";
        const auto [other, fresh] = gone.emplace(row.identity->id, Gone{row.state, row.incarnation, slot});
        if (!fresh && (other->second.state != row.state || other->second.incarnation != row.incarnation))
          wrong = row_text + ", and " + world_.name(other->second.told_by) + " has it " + text(other->second.state) + " incarnation " +
                  std::to_string(other->second.incarnation);
        return;
      }
      ++found;
      if (row.state != wire::MemberState::alive || row.incarnation != self->second.incarnation)
        wrong = row_text + ", which is alive with incarnation " + std::to_string(self->second.incarnation);
      else if (!(*row.identity == *self->second.identity))
        wrong = row_text + " with another identity than its own: " + row.identity->address.text() + " life " +
                std::to_string(row.identity->life) + ", is " + self->second.identity->address.text() + " life " +
                std::to_string(self->second.identity->life);
      else
        for (std::size_t key = 0; key < wire::kFactKeys; ++key)
          if (!same(row.facts[key], self->second.facts[key])) wrong = row_text + " with another fact " + std::to_string(key);
    });
    if (wrong.empty() && found != expected.size()) {
      for (const auto& [id, self] : expected)
        if (!world_.seen(slot, id)) wrong = "no " + self.identity->name + ", which runs";
      if (wrong.empty()) wrong = std::to_string(found) + " members of " + std::to_string(expected.size());
    }
    if (!wrong.empty()) violation(world_.name(slot) + " has " + wrong);
    return wrong.empty();
  }

  static bool same(const wire::Fact* a, const wire::Fact* b) { return a == nullptr || b == nullptr ? a == b : *a == *b; }
};

}  // namespace

std::unique_ptr<Checker> converges(WorldView& world) { return std::make_unique<Converges>(world); }

}  // namespace dtrain::sim::membership
