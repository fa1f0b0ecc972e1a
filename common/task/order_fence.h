// Refuses a coordinator's orders for this host if their epoch, or within one epoch their revision, is lower than one
// seen before. An admitted fence must be stored before the coordinator is told of it. Each shim's record also keeps
// the newest fence that the shim saw, and a new life of the agent remembers those before it admits anything: so an
// agent that lost its store admits no old order, which might not know of the shim and end it.
#pragma once

#include <algorithm>

#include "common/base/lease.h"
#include "common/task/lease_rules.h"

namespace dtrain::task {

class OrderFence {
 public:
  OrderFence() = default;  // for a host that never heard a coordinator
  explicit OrderFence(Fence stored, std::string_view broken_rule = {}) : rules_(broken_rule), highest_(stored) {}

  // The same order again is admitted: orders are idempotent.
  bool admit(const Fence& order) {
    if (order.epoch < highest_.epoch && rules_.hold(lease::Rule::epoch_fence)) return false;
    if (order.epoch == highest_.epoch && order.revision < highest_.revision && rules_.hold(lease::Rule::revision_fence))
      return false;
    highest_ = std::max(highest_, order);
    return true;
  }
  // For an answer, which has no revision.
  bool admit_epoch(std::uint64_t epoch) {
    if (epoch < highest_.epoch && rules_.hold(lease::Rule::epoch_fence)) return false;
    remember({epoch, 0});
    return true;
  }
  // Takes the fence in a shim's record.
  void remember(const Fence& fence) { highest_ = std::max(highest_, fence); }
  Fence highest() const { return highest_; }

 private:
  lease::Rules rules_;
  Fence highest_;
};

}  // namespace dtrain::task
