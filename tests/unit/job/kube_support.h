// What the tests of manifests share.
#pragma once

#include <string>
#include <vector>

#include "common/job/cluster_spec.h"
#include "common/job/job_file.h"

namespace dtrain::job::testing {

JobFile read_file(const std::string& text, const wire::ManifestSettings& settings = {});
// The only job of the text; fails the test on errors.
ParsedJob one_job(const std::string& text, const wire::ManifestSettings& settings = {});
std::vector<std::string> errors_of(const std::string& text, const wire::ManifestSettings& settings = {});
// A TFJob with these replica specs (from 4 spaces on).
std::string tf_job(const std::string& replica_specs, const std::string& rest = "");
// As the task is started, everything at 10.0.0.1 with ports from 20000.
Rendered rendered(const JobSpec& spec, const TaskId& task);

}  // namespace dtrain::job::testing
