// No shim is granted a lease in the name of a coordinator older than one that its host follows already: that one may have given
// the task away.
#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {
namespace {

class GrantsAreOfTheNewest final : public HostChecker {
 public:
  using HostChecker::HostChecker;
  std::string_view name() const override { return "grants_are_of_the_newest"; }

  void on_effect(const node::Effect& effect) override {
    const auto* answer = std::get_if<node::AnswerLease>(&effect);
    if (answer == nullptr || host().node() == nullptr) return;
    const std::uint64_t follows = host().node()->ledger().state().epoch;
    if (answer->granted && answer->epoch < follows)
      violation(answer->id.text() + " is granted a lease by coordinator " + std::to_string(answer->epoch) + ", " + host().name() +
                " follows " + std::to_string(follows));
  }
};

}  // namespace

std::unique_ptr<Checker> grants_are_of_the_newest(WorldView& world, std::size_t host) {
  return std::make_unique<GrantsAreOfTheNewest>(world, host);
}

}  // namespace dtrain::sim
