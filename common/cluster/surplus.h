// checkpoint.keep: which checkpoints of a job are more than it keeps.
#pragma once

#include <functional>
#include <vector>

#include "common/cluster/state.h"

namespace dtrain::cluster {

// The verified ones after the newest `keep`, and those of which hosts have begun to remove their shares. One that several hosts have
// together counts as one, while all of them may come back. Not among them is the one that tasks may still read from. Nothing counts, and
// nothing is removed, that was left behind, that only hosts have which are gone for good, that lies outside the job's directory, or whose
// name does not say that it is a checkpoint.
std::vector<const CheckpointRecord*> surplus_of(const JobRecord& job, const std::function<bool(const NodeId&)>& is_gone);

}  // namespace dtrain::cluster
