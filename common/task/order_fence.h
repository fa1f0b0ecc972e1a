// The gate for what a coordinator orders of this host: an older epoch, or within one an older revision, is refused.
// What was admitted is to be stored before it is said to the coordinator. The record of each shim keeps the newest
// fence that the shim was told of, too, and a new life of the agent remembers those before it admits anything: an agent
// that lost its store does not let an old order in, which might not know of the shim yet, and end it.
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
    remember({epoch, 0});
    return true;
  }
  // As the record of a shim says.
  void remember(const Fence& fence) { highest_ = std::max(highest_, fence); }
  Fence highest() const { return highest_; }

 private:
  lease::Rules rules_;
  Fence highest_;
};

}  // namespace dtrain::task
