// LightGBM: every machine has the list of all machines. The variables are those that scripts for Kubeflow's XGBoostJob read, from which
// they make `machines` or a machine list file.
#include "common/job/framework_roles.h"

namespace dtrain::job {

const FrameworkRules kLightgbm{
    .roles = kMasterAndWorkers, .collective = Collective::always, .environment = add_tracker, .ranks = ranks_of_rank_role};

}  // namespace dtrain::job
