// The gate for what a coordinator orders of this host: an older epoch, or within one an older revision, is refused.
// What was admitted is to be stored before it is said to the coordinator; each shim keeps the epoch too, so that an
// agent that lost its store does not let an old order in.
#pragma once

#include <algorithm>

#include "common/base/lease.h"
#include "common/task/lease_rules.h"

namespace dtrain::task {

class OrderFence {
 public:
  OrderFence() = default;  // on a host that never heard a coordinator
  explicit OrderFence(Fence stored, std::string_view broken_rule = {}) : rules_(broken_rule), highest_(stored) {}

  // The same again is admitted: orders are idempotent.
  bool admit(const Fence& order) {
    if (order.epoch < highest_.epoch && rules_.hold(lease::Rule::epoch_fence)) return false;
    if (order.epoch == highest_.epoch && order.revision < highest_.revision && rules_.hold(lease::Rule::revision_fence))
      return false;
    highest_ = std::max(highest_, order);
    return true;
  }
  // Of an answer, which has no revision.
  bool admit_epoch(std::uint64_t epoch) {
    if (epoch < highest_.epoch && rules_.hold(lease::Rule::epoch_fence)) return false;
    remember(epoch);
    return true;
  }
  // A shim remembers a higher epoch than the store does.
  void remember(std::uint64_t epoch) {
    if (epoch > highest_.epoch) highest_ = {epoch, 0};
  }
  Fence highest() const { return highest_; }

 private:
  lease::Rules rules_;
  Fence highest_;
};

}  // namespace dtrain::task
