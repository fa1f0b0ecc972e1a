// XGBoost: a master, which runs the tracker, and workers. All of them are ranks of one allreduce.
#include "common/job/framework_roles.h"

namespace dtrain::job {

const FrameworkRules kXgboost{
    .roles = kMasterAndWorkers, .collective = Collective::always, .environment = add_tracker, .ranks = ranks_of_rank_role};

}  // namespace dtrain::job
