// For when a majority of the voters is lost: what this node knows about it, and whether recover-quorum may begin a
// new history here (docs/consensus.md, rule 14). Pure.
#pragma once

#include <string>

#include "common/base/result.h"
#include "common/node/context.h"
#include "common/wire/view.h"

namespace dtrain::node {

// Describes what recover-quorum would do here, or why it may not. `force`: permit it even if the log of another
// survivor reaches further, or is not known.
Result<wire::RecoveryView> recovery_view(const Context& c, bool force);

// What the operator of a cluster without a majority, or with two histories, should know and do next; "": nothing.
std::string quorum_advice(const Context& c);

}  // namespace dtrain::node
