// A world that is whatever a test says it is: each checker is shown a broken promise, and a kept one.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/membership/checkers/checkers.h"
#include "tests/sim/violation.h"

namespace dtrain::sim::membership {

struct FakeRow {
  wire::MemberState state = wire::MemberState::alive;
  std::uint64_t incarnation = 1;
  wire::Identity identity;
  std::map<wire::FactKey, wire::Fact> facts;
};

class FakeView final : public WorldView {
 public:
  // `count` members of cluster 0 that have been well for long and know each other.
  explicit FakeView(std::uint32_t count) {
    now_ += 100s;
    for (std::uint32_t i = 0; i < count; ++i) add(0);
    know_all();
  }
  std::uint32_t add(std::uint32_t cluster) {
    const auto slot = static_cast<std::uint32_t>(truths_.size());
    Truth truth;
    truth.identity.id = {7, slot + 1};
    truth.identity.name = "n" + std::to_string(slot);
    truth.identity.address = {"10.0.0." + std::to_string(slot + 1), 7400};
    truth.identity.life = 1;
    truth.cluster = cluster;
    truth.runs = truth.admitted = true;
    truth.ended = kNever;
    truths_.push_back(truth);
    tables_.emplace_back();
    return slot;
  }
  void know_all() {
    for (std::uint32_t observer = 0; observer < slots(); ++observer)
      for (std::uint32_t subject = 0; subject < slots(); ++subject)
        if (truths_[observer].cluster == truths_[subject].cluster) row(observer, subject).identity = truths_[subject].identity;
  }
  FakeRow& row(std::uint32_t observer, std::uint32_t subject) { return tables_[observer][id(subject)]; }
  MemberId id(std::uint32_t slot) const { return truths_[slot].identity.id; }
  void crash(std::uint32_t slot) {
    truths_[slot].runs = false;
    truths_[slot].ended = now_;
    truths_[slot].calm_since = kNever;
  }
  gossip::Change change(gossip::ChangeKind kind, std::uint32_t subject) const {
    return {kind, id(subject), truths_[subject].identity.name, 1, ""};
  }
  bool broke(std::string_view invariant) const { return violation_ && violation_->invariant == invariant; }

  Instant now() const override { return now_; }
  std::uint32_t slots() const override { return static_cast<std::uint32_t>(truths_.size()); }
  const Truth& truth(std::uint32_t slot) const override { return truths_[slot]; }
  std::vector<std::uint32_t> slots_of(const MemberId& wanted) const override {
    std::vector<std::uint32_t> found;
    for (std::uint32_t slot = 0; slot < slots(); ++slot)
      if (id(slot) == wanted) found.push_back(slot);
    return found;
  }
  bool together(std::uint32_t a, std::uint32_t b) const override { return !apart_.contains({std::min(a, b), std::max(a, b)}); }
  bool lossless() const override { return lossless_; }
  bool network_whole() const override { return whole_; }
  std::optional<gossip::MemberView> seen(std::uint32_t slot, const MemberId& wanted) const override {
    const auto at = tables_[slot].find(wanted);
    if (at == tables_[slot].end()) return std::nullopt;
    return view(at->second);
  }
  void each_seen(std::uint32_t slot, const std::function<void(const gossip::MemberView&)>& visit) const override {
    for (const auto& [wanted, found] : tables_[slot]) visit(view(found));
  }
  std::size_t memory_bytes(std::uint32_t) const override { return memory_; }
  Figures& figures() override { return figures_; }
  void violation(std::string_view invariant, std::string what) override {
    if (!violation_) violation_ = Violation{std::string(invariant), std::move(what), now_};
  }

  Instant now_{};
  std::vector<Truth> truths_;
  std::vector<std::map<MemberId, FakeRow>> tables_;  // by observer
  std::map<std::pair<std::uint32_t, std::uint32_t>, bool> apart_;
  bool whole_ = true, lossless_ = true;
  std::size_t memory_ = 1000;
  Figures figures_;
  std::optional<Violation> violation_;

 private:
  static gossip::MemberView view(const FakeRow& row) {
    gossip::MemberView out;
    out.state = row.state;
    out.incarnation = row.incarnation;
    out.identity = &row.identity;
    for (const auto& [key, fact] : row.facts) out.facts[static_cast<std::size_t>(key)] = &fact;
    return out;
  }
};

}  // namespace dtrain::sim::membership
