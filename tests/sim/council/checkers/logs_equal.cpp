// What is committed at an index is the same entry for all members of a history, for ever; what a survivor of
// a lost quorum had applied is in the history that it begins.
#include <algorithm>
#include <map>
#include <vector>

#include "tests/sim/council/checkers/checkers.h"

namespace dtrain::sim::council {
namespace {

class LogsEqual final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "logs_equal"; }

  void applied(Slot slot, const raft::LogEntry& entry, const RegisterMachine::Outcome&) override {
    std::vector<Committed>& log = logs_[world_.core(slot)->history()];
    if (log.size() <= entry.index) log.resize(entry.index + 1);
    Committed& first = log[entry.index];
    if (first.by == kNobody) {
      first = {slot, entry};
      return;
    }
    if (!(first.entry == entry))
      violation(world_.name(slot) + " commits entry " + std::to_string(entry.index) + " of term " + std::to_string(entry.term) + ", " +
                world_.name(first.by) + " committed another there, of term " + std::to_string(first.entry.term));
  }
  void recovered(Slot slot, const raft::History& old) override {
    std::vector<Committed> log = logs_[old];
    log.resize(std::min<std::size_t>(log.size(), kept(slot) + 1));
    logs_[world_.disk(slot).hard.history] = std::move(log);
  }

 private:
  static constexpr Slot kNobody = ~Slot{0};
  struct Committed {
    Slot by = kNobody;
    raft::LogEntry entry;
  };
  std::map<raft::History, std::vector<Committed>> logs_;  // by index
};

}  // namespace

std::unique_ptr<Checker> logs_equal(WorldView& world) { return std::make_unique<LogsEqual>(world); }

}  // namespace dtrain::sim::council
