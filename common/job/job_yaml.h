// Writes a spec as the job file that means it, with every field, defaults too.
#pragma once

#include <string>

#include "common/job/job_spec.h"

namespace dtrain::job {

// parse_manifest() of the result gives back an equal spec, for every spec that validate() accepts, but for
// package_digest (a package's path is not part of a spec) and for generate_name once the job has its name.
std::string to_yaml(const JobSpec& spec);

// The same without defaults: about as a user would write it.
std::string to_short_yaml(const JobSpec& spec);

}  // namespace dtrain::job
