#include "common/cluster/restore.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace dtrain::cluster {

using Kind = RestoreChoice::Step::Kind;

RestoreChoice::RestoreChoice(const JobRecord& job, bool trust_unverified)
    : spec_(*job.spec.checkpoint),
      committed_once_(job.committed_once),
      from_scratch_(job.from_scratch),
      trust_unverified_(trust_unverified),
      first_(job.generation == 0),
      skip_newest_(job.fruitless_restores >= kFruitlessRestores && job.restored.has_value()) {
  if (skip_newest_) skip_from_step_ = job.restored->step;
}

bool RestoreChoice::pinned() const {
  return spec_.restore != "auto" && spec_.restore != "never" && !committed_once_;
}

void RestoreChoice::scanned(std::vector<transfer::CheckpointInfo> found) {
  CHECK(step_.kind == Kind::scan || step_.kind == Kind::scan_parent);
  if (pinned()) {
    // The path may be a checkpoint directory itself, or a prefix: then it is found in its parent directory.
    std::erase_if(found, [&](const auto& info) { return info.path != spec_.restore; });
    if (found.empty() && !parent_scanned_) {
      parent_scanned_ = true;
      step_ = {Kind::scan_parent, {}, "", false};
      return;
    }
  }
  candidates_ = std::move(found);
  next_ = 0;
  if (from_scratch_) {
    stale_ = candidates_;
    decision_ = Step{Kind::nothing, {}, "from scratch, as asked", false};
    return quarantined();
  }
  next_candidate();
}

void RestoreChoice::next_candidate() {
  for (; next_ < candidates_.size(); ++next_) {
    const auto& info = candidates_[next_];
    if (skip_newest_ && info.step == skip_from_step_) {
      stale_.push_back(info);
      continue;
    }
    if (!info.complete) {
      step_ = {Kind::quarantine, info, info.defect, true};
      return;
    }
    if (trust_unverified_) return verified({});
    step_ = {Kind::verify, info, "", false};
    return;
  }
  nothing_left();
}

void RestoreChoice::verified(const Status& result) {
  const auto info = candidates_[next_];
  if (!result) {
    step_ = {Kind::quarantine, info, result.error().text(), true};
    return;
  }
  std::string why = "newest that verifies";
  if (skip_newest_ && info.step < skip_from_step_)
    why = "two failures in a row without progress from step " + std::to_string(skip_from_step_) +
          ": the one before";
  if (pinned()) why = "as the job asks";
  decision_ = Step{Kind::chosen, info, why, false};
  quarantined();
}

// One quarantine is done (or was tried: a name that could not be moved is passed over, and the choice
// stands).
void RestoreChoice::quarantined() {
  if (!decision_) {  // it was a damaged candidate
    ++next_;
    return next_candidate();
  }
  if (stale_.empty()) {
    step_ = *decision_;
    return;
  }
  step_ = {Kind::quarantine, stale_.back(), "written beyond the point where its successor starts", false};
  stale_.pop_back();
}

void RestoreChoice::nothing_left() {
  if (pinned()) {
    step_ = {Kind::blocked, {}, "no checkpoint that verifies at " + spec_.restore, false};
    return;
  }
  if (skip_newest_ && !stale_.empty()) {
    // Nothing older is left: the same one once more is better than losing it all.
    skip_newest_ = false;
    candidates_ = std::exchange(stale_, {});
    next_ = 0;
    return next_candidate();
  }
  if (committed_once_ && !first_) {
    step_ = {Kind::blocked, {}, "a checkpoint was committed once, none that verifies is left", false};
    return;
  }
  decision_ = Step{Kind::nothing, {}, "no checkpoint yet: from scratch", false};
  step_ = *decision_;
}

}  // namespace dtrain::cluster
