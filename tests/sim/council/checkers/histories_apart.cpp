// Members of different histories have nothing to do with each other: nobody is taken over into another
// history, and no vote, entry or snapshot of another history has an effect.
#include <map>

#include "tests/sim/council/checkers/checkers.h"

namespace dtrain::sim::council {
namespace {

class HistoriesApart final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "histories_apart"; }

  void started(Slot slot) override {
    last_.erase(slot);
    remember(slot);
  }
  void stepping(Slot slot, const raft::Input& input) override {
    before_ = world_.core(slot)->term();
    last_before_ = world_.core(slot)->last_index();
    const auto* received = std::get_if<raft::Received>(&input);
    foreign_ = received && !received->message.header.history.none() && !world_.core(slot)->history().none() &&
               received->message.header.history != world_.core(slot)->history();
    if (foreign_) sender_ = received->message.header.sender;
  }
  void stepped(Slot slot) override {
    const raft::Raft& core = *world_.core(slot);
    if (foreign_ && (core.term() != before_ || core.last_index() != last_before_))
      violation(world_.name(slot) + " does what a member of another history told it");
    remember(slot);
    foreign_ = false;  // what is sent before the next step was held up by the disk
  }
  void sent(Slot slot, const raft::Send& send) override {
    if (foreign_ && send.to == sender_ && !std::holds_alternative<wire::Fenced>(send.message.body))
      violation(world_.name(slot) + " answers a member of another history");
  }

 private:
  void remember(Slot slot) {
    const raft::Raft& core = *world_.core(slot);
    if (core.history().none()) return;
    const auto [at, fresh] = last_.emplace(slot, core.history());
    if (!fresh && at->second != core.history())
      violation(world_.name(slot) + " was taken over from history " + std::to_string(at->second.number) +
                " into history " + std::to_string(core.history().number));
  }

  std::map<Slot, raft::History> last_;
  std::uint64_t before_ = 0, last_before_ = 0;
  MemberId sender_;
  bool foreign_ = false;
};

}  // namespace

std::unique_ptr<Checker> histories_apart(WorldView& world) {
  return std::make_unique<HistoriesApart>(world);
}

}  // namespace dtrain::sim::council
