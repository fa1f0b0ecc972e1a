// What a change of a job's size means for its running tasks.
#pragma once

#include <string>

#include "common/job/job_spec.h"

namespace dtrain::cluster {

// True if no task's argv or environment depends on the number of tasks of `role`, so that its tasks may come and go
// while the others run: a sparse TensorFlow cluster (enableDynamicWorker), or a generic job whose templates do not
// name the role.
bool scales_alone(const job::JobSpec& spec, const std::string& role);

// True if each task needs its own port: with every framework that has a cluster spec, and in generic jobs whose
// templates name an address or port.
bool needs_ports(const job::JobSpec& spec);

}  // namespace dtrain::cluster
