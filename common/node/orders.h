// Makes the orders for one host from the ledger's record of a job. Pure.
#pragma once

#include <map>
#include <memory>

#include "common/cluster/ledger.h"
#include "common/node/event.h"
#include "common/task/order.h"

namespace dtrain::node {

// The context that all tasks of a generation share; made once and kept while the generation lasts.
std::shared_ptr<const task::JobContext> make_context(const cluster::JobRecord& job);

// True if the context is still that of the job's present generation and size.
bool is_current(const task::JobContext& context, const cluster::JobRecord& job);

// True if the task may start now: all of the generation are staged (the barrier), and every role that this task
// starts after has reached the state that it must.
bool may_start(const cluster::JobRecord& job, const TaskId& task);
// True if that task has reached the state that startAfter requires of it.
bool has_reached(const cluster::JobRecord& job, const TaskId& id, const cluster::TaskRecord& t, job::StartAfter need);

// True if the task was left running when its job ended (cleanPodPolicy: None) and has not ended since.
bool runs_on(const cluster::TaskRecord& task);

struct OrderClock {
  Instant now{};
  Duration elapsed{0};
};
task::JobOrder make_orders(const cluster::JobRecord& job, const NodeFacts& facts, std::shared_ptr<const task::JobContext> context,
                           OrderClock clock, const BrokenRule& broken_rule);

}  // namespace dtrain::node
