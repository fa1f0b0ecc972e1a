// The roles of distributed TensorFlow, whose names and rules other frameworks and many scripts use, too.
#pragma once

#include <array>
#include <vector>

#include "common/job/framework.h"

namespace dtrain::job {

inline constexpr RoleRules kChief{.name = "chief", .most = 1, .leads = true, .stateful = true, .rank = true, .start = 1, .order = 0};

inline constexpr std::array kUsualRoles{
    RoleRules{.name = "ps", .serves = true, .ends = false, .stateful = true, .start = 0, .avoid_gpu_hosts = AvoidGpuHosts::prefer},
    kChief,
    [] {
      auto older = kChief;
      older.name = "master";
      return older;
    }(),
    RoleRules{.name = "worker", .works = true, .rank = true, .order = 1},
    RoleRules{.name = "evaluator", .ends = false, .order = 3},
};

// FrameworkRules::check for frameworks that have these roles and nothing else to check.
void check_usual_roles(const JobSpec& spec, std::vector<FileError>& errors);

}  // namespace dtrain::job
