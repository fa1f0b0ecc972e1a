// What people are shown of drained hosts, from this node's copy of the ledger. Pure.
#pragma once

#include <optional>
#include <string>

#include "common/node/context.h"
#include "common/wire/view.h"

namespace dtrain::node {

// nullopt: the host is not drained, as far as this node knows. `jobs`: list the jobs that still have tasks there.
std::optional<wire::DrainView> drain_view(const Context& c, const NodeId& id, bool jobs);

// "stays on drained host h2: ..."; "": the job has no task on a drained host, or is about to leave it.
std::string stays_on_drained(const Context& c, const cluster::JobRecord& job);

}  // namespace dtrain::node
