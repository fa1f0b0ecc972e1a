#include "common/cluster/cluster_change.h"

#include "common/job/framework.h"

namespace dtrain::cluster {

bool scales_alone(const job::JobSpec& spec, const std::string& role) { return job::rules_of(spec.framework).scales_alone(spec, role); }

bool needs_ports(const job::JobSpec& spec) { return job::rules_of(spec.framework).needs_ports(spec); }

}  // namespace dtrain::cluster
