// What people are shown of drained hosts. Pure; of the copy of the ledger that this node has.
#pragma once

#include <optional>
#include <string>

#include "common/node/context.h"
#include "common/wire/view.h"

namespace dtrain::node {

// nullopt: the host is not drained, as far as is known here. `jobs`: also those that still have tasks there.
std::optional<wire::DrainView> drain_view(const Context& c, const NodeId& id, bool jobs);

// "stays on drained host h2: ..."; "": the job has no task on a drained host, or it is about to leave.
std::string stays_on_drained(const Context& c, const cluster::JobRecord& job);

}  // namespace dtrain::node
