// From the ledger's record of a job to the orders for one host. Pure.
#pragma once

#include <map>
#include <memory>

#include "common/cluster/ledger.h"
#include "common/node/event.h"
#include "common/task/order.h"

namespace dtrain::node {

// One generation's shared context, made once and kept while the generation lasts.
std::shared_ptr<const task::JobContext> make_context(const cluster::JobRecord& job);

// Is it still that of the job?
bool is_current(const task::JobContext& context, const cluster::JobRecord& job);

// May this task start now? All of the generation are staged (the barrier), and every role it starts after has
// reached what it must.
bool may_start(const cluster::JobRecord& job, const TaskId& task);
// Has that task come so far that who waits for it by startAfter may start?
bool has_reached(const cluster::JobRecord& job, const TaskId& id, const cluster::TaskRecord& t, job::StartAfter need);

// Was it left running when its job ended (cleanPodPolicy: None), and has not died since?
bool runs_on(const cluster::TaskRecord& task);

struct OrderClock {
  Instant now{};
  Duration elapsed{0};
};
task::JobOrder make_orders(const cluster::JobRecord& job, const NodeFacts& facts,
                           std::shared_ptr<const task::JobContext> context, OrderClock clock,
                           const BrokenRule& broken_rule);

}  // namespace dtrain::node
