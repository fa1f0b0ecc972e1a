// Frameworks that are known by name only: a job of one is refused. What is written here is how their jobs would count.
#include "common/job/framework_roles.h"

namespace dtrain::job {

const FrameworkRules kPlannedOfRanks{
    .built = false, .roles = kUsualRoles, .collective = Collective::always, .check = check_usual_roles};

const FrameworkRules kPlannedOfServers{.built = false, .roles = kUsualRoles, .check = check_usual_roles};

}  // namespace dtrain::job
