#include "common/job/framework_roles.h"

namespace dtrain::job {

void check_usual_roles(const JobSpec& spec, std::vector<FileError>& errors) {
  if (has_role(spec, "chief") && has_role(spec, "master"))
    errors.push_back(
        {"conflict", "", 0, "spec.roles.master", "a job has a chief or a master, not both", "master is the older name of chief"});
}

}  // namespace dtrain::job
