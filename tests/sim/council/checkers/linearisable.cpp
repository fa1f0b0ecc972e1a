// What clients ask and are told is what one register would have told them, each operation at one instant
// between request and answer. Every write makes a version of its own, so a history of operations is
// linearisable exactly when no version has two writers, no writer two versions, and versions never go back
// between an answer and a later request (Herlihy and Wing, "Linearizability", 1990; with distinct values the
// order of writes is known, which makes it easy).
#include <algorithm>
#include <map>
#include <vector>

#include "tests/sim/council/checkers/checkers.h"

namespace dtrain::sim::council {
namespace {

class Linearisable final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "linearisable"; }

  void asked(const Operation& operation) override {
    if (operation.write) asked_[operation.request] = operation.asked;
  }
  void answered(const raft::History& by, const Operation& operation, const Reading& reading) override {
    Model& model = models_[by];
    if (!(model.versions.try_emplace(reading.version, reading).first->second == reading))
      return violation(text(operation) + " was told version " + std::to_string(reading.version) +
                       " by another write, or after other writes, than another was");
    const auto [request, fresh] = model.version_of.try_emplace(reading.request, reading.version);
    if (request->second != reading.version)
      return violation("request " + std::to_string(reading.request) + " wrote both version " + std::to_string(request->second) +
                       " and version " + std::to_string(reading.version));
    if (fresh && reading.version != 0 && reading.version <= model.known_at(asked_[reading.request]))
      return violation("request " + std::to_string(reading.request) + " wrote version " + std::to_string(reading.version) +
                       "; a later one had been told before it was asked");
    if (operation.write && reading.request != operation.request)
      return violation(text(operation) + " was answered with the write of " + std::to_string(reading.request));
    if (const std::uint64_t known = model.known_at(operation.asked); reading.version < known)
      return violation(text(operation) + " was told version " + std::to_string(reading.version) + "; version " + std::to_string(known) +
                       " had been told before it was asked");
    if (model.told.empty() || model.told.back().second < reading.version) model.told.emplace_back(world_.now(), reading.version);
  }

 private:
  struct Model {
    std::map<std::uint64_t, Reading> versions;
    std::map<std::uint64_t, std::uint64_t> version_of;    // by request
    std::vector<std::pair<Instant, std::uint64_t>> told;  // from when on at least that version was known; ascending
    std::uint64_t known_at(Instant when) const {
      const auto after = std::lower_bound(told.begin(), told.end(), when, [](const auto& one, Instant at) { return one.first < at; });
      return after == told.begin() ? 0 : std::prev(after)->second;
    }
  };
  static std::string text(const Operation& operation) {
    return std::string(operation.write ? "write " : "read ") + std::to_string(operation.request);
  }

  std::map<raft::History, Model> models_;
  std::map<std::uint64_t, Instant> asked_;  // writes, by request
};

}  // namespace

std::unique_ptr<Checker> linearisable(WorldView& world) { return std::make_unique<Linearisable>(world); }

}  // namespace dtrain::sim::council
