// When a majority of the voters is lost: what this node can say of it, and whether recover-quorum may begin a new history
// here (docs/consensus.md, rule 14). Pure.
#pragma once

#include <string>

#include "common/base/result.h"
#include "common/node/context.h"
#include "common/wire/view.h"

namespace dtrain::node {

// What recover-quorum would do here; an error: why it may not. `force`: also where another survivor's log reaches further,
// or is not known.
Result<wire::RecoveryView> recovery_view(const Context& c, bool force);

// What the operator of a cluster without a majority, or with two histories, should know and do next; "": nothing.
std::string quorum_advice(const Context& c);

}  // namespace dtrain::node
