// What the tests of common/job share.
#pragma once

#include <string>
#include <vector>

#include "common/job/cluster_spec.h"
#include "common/job/manifest.h"

namespace dtrain::job::testing {

inline const std::string kWorker = "    worker: {command: [\"true\"]}";  // `roles` of one

// A job file around the given lines: `roles` below spec.roles (4 spaces), `rest` below spec (2 spaces).
std::string job_text(const std::string& roles, const std::string& rest = "", const std::string& framework = "tensorflow");

ParsedJob parse(const std::string& text);
JobSpec parse_good(const std::string& text);  // fails the test on errors
std::vector<std::string> error_lines(const std::string& text);

// Every task of the spec at 10.0.0.1 with ports 20000, 20001, ... in the order of TaskId.
ClusterView view_of(const JobSpec& spec);

}  // namespace dtrain::job::testing
