// What a host should be like by its configuration, for `dtrainctl doctor`, which asks the agent, or looks itself
// where no agent answers.
#pragma once

#include "agent/dtraind/config.h"
#include "common/node/examination.h"

namespace dtrain::daemon {

// Without what only an agent knows: its addresses, its GPUs, and its directories if --dev chose them.
node::ExamTerms exam_terms(const Config& config);

}  // namespace dtrain::daemon
