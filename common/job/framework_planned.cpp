// Frameworks that are known only by name, and whose jobs are refused. The rules here say how such jobs would be classified.
#include "common/job/framework_roles.h"

namespace dtrain::job {

const FrameworkRules kPlannedOfRanks{.built = false, .roles = kUsualRoles, .collective = Collective::always, .check = check_usual_roles};

}  // namespace dtrain::job
