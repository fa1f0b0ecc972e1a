// A write that was acknowledged is there for ever: every later leader that serves has it, and at rest every
// replica.
#include <map>
#include <set>

#include "tests/sim/council/checkers/checkers.h"

namespace dtrain::sim::council {
namespace {

class AcknowledgedNeverLost final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "acknowledged_never_lost"; }

  void applied(Slot slot, const raft::LogEntry& entry, const RegisterMachine::Outcome& outcome) override {
    Acknowledged& known = of(slot);
    if (outcome.done == RegisterMachine::Done::executed) known.index_of.emplace(outcome.request, entry.index);
  }
  void answered(const raft::History& by, const Operation& operation, const Reading&) override {
    if (!operation.write) return;
    Acknowledged& known = acknowledged_[by];
    const auto at = known.index_of.find(operation.request);
    if (at == known.index_of.end())
      return violation("request " + std::to_string(operation.request) + " was acknowledged and never carried out");
    known.most = std::max(known.most, at->second);
  }
  void stepped(Slot slot) override {
    const raft::Raft& core = *world_.core(slot);
    if (core.role() != raft::Role::leader || core.term() <= of(slot).term) return;
    of(slot).term = core.term();  // of the newest leader: those of older terms may be behind and answer nobody
    judge(slot, core.last_index());
  }
  void at_rest() override {  // that the others are equal to the leader is another checker's
    for (Slot slot = 0; slot < world_.slots(); ++slot)
      if (world_.core(slot) && world_.core(slot)->ready()) judge(slot, world_.machine(slot).applied());
  }
  void recovered(Slot slot, const raft::History& old) override {
    // What only the lost ones had is lost.
    Acknowledged known = acknowledged_[old];
    std::erase_if(known.index_of, [&](const auto& one) { return one.second > kept(slot); });
    known.most = std::min(known.most, kept(slot));
    acknowledged_[world_.disk(slot).hard.history] = std::move(known);
  }

 private:
  struct Acknowledged {
    std::map<std::uint64_t, std::uint64_t> index_of;  // by request
    std::uint64_t most = 0;                           // the last index of an acknowledged one
    std::uint64_t term = 0;
  };
  Acknowledged& of(Slot slot) { return acknowledged_[world_.core(slot)->history()]; }
  void judge(Slot slot, std::uint64_t index) {
    if (index < of(slot).most)
      violation(world_.name(slot) + " has the log up to entry " + std::to_string(index) + "; entry " + std::to_string(of(slot).most) +
                " was acknowledged");
  }

  std::map<raft::History, Acknowledged> acknowledged_;
};

}  // namespace

std::unique_ptr<Checker> acknowledged_never_lost(WorldView& world) { return std::make_unique<AcknowledgedNeverLost>(world); }

}  // namespace dtrain::sim::council
