// Random specs that validate() accepts, and hostile text.
#pragma once

#include <rapidcheck.h>

#include "common/job/job_spec.h"

namespace dtrain::job::testing {

// Printable and awkward: quotes, braces, templates, parameters, control characters, words YAML likes, UTF-8.
rc::Gen<std::string> awkward_text();

rc::Gen<JobSpec> valid_spec();

}  // namespace dtrain::job::testing
