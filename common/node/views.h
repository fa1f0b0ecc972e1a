// What people are shown, built from the ledger and this host's facts. Pure.
#pragma once

#include <string>
#include <vector>

#include "common/node/context.h"
#include "common/wire/view.h"

namespace dtrain::node {

wire::JobView job_view(const Context& c, const cluster::JobRecord& job);
std::vector<wire::TaskView> task_views(const Context& c, const cluster::JobRecord& job);
wire::EventView event_view(const cluster::LedgerEvent& e);
// For what it waits, as `coordinator` says where this node coordinates, or the ledger and this host do; "" it does not wait.
std::string waiting_for(const Context& c, const cluster::JobRecord& job, std::string coordinator);
// Not `owned`, for others than its user: who knows a package's digest may have the package.
wire::JobDescription description(const Context& c, const cluster::JobRecord& job, std::string coordinator, bool owned);
std::vector<wire::CheckpointView> checkpoint_views(const cluster::JobRecord& job);
// What each task of this placement is or would be given. `only`: one task's name, or "" for all.
Result<std::vector<wire::TaskSpecView>> task_spec_views(const Context& c, const cluster::JobRecord& job,
                                                        const std::string& only);
// "Running" from "running"
std::string title(std::string_view state);
// Every task of it reached a final state.
bool is_over(const cluster::JobRecord& job);

}  // namespace dtrain::node
