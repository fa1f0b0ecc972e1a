// What a change of a job's size means for the tasks that run.
#pragma once

#include <string>

#include "common/job/job_spec.h"

namespace dtrain::cluster {

// True where no task's argv or environment depends on how many tasks `role` has, so that tasks of it may come
// and go while the others run on: a sparse TensorFlow cluster (enableDynamicWorker), or a generic job none of
// whose templates names the role.
bool scales_alone(const job::JobSpec& spec, const std::string& role);

// True where tasks need a port of their own: every framework that has a cluster spec, and generic jobs whose
// templates name an address or port.
bool needs_ports(const job::JobSpec& spec);

}  // namespace dtrain::cluster
