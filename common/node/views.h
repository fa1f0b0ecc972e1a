// What people are shown, built from the ledger and this host's facts. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/node/context.h"
#include "common/wire/view.h"

namespace dtrain::node {

wire::JobView job_view(const Context& c, const cluster::JobRecord& job);
std::vector<wire::TaskView> task_views(const Context& c, const cluster::JobRecord& job);
std::optional<wire::RestoredView> restored_view(const cluster::JobRecord& job);  // with what its generation began
wire::EventView event_view(const cluster::LedgerEvent& e);
// What the job waits for: `coordinator` where this node coordinates, else what the ledger and this host say; "": it
// does not wait.
std::string waiting_for(const Context& c, const cluster::JobRecord& job, std::string coordinator);
// Unless `owned` (the caller is the job's user), secrets and the error output of the first fault are hidden. The
// package's digest is among the secrets: who knows it may have the package.
wire::JobDescription description(const Context& c, const cluster::JobRecord& job, std::string coordinator, bool owned);
std::vector<wire::CheckpointView> checkpoint_views(const Context& c, const cluster::JobRecord& job);
// The specification that each task of this placement has or would get. `only`: one task's name, or "" for all.
Result<std::vector<wire::TaskSpecView>> task_spec_views(const Context& c, const cluster::JobRecord& job, const std::string& only);
// "Running" from "running"
std::string title(std::string_view state);
// True if every task of the job reached a final state.
bool is_over(const cluster::JobRecord& job);

}  // namespace dtrain::node
