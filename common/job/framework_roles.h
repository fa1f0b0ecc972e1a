// The roles of distributed TensorFlow, whose names and rules other frameworks and many scripts use, too.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
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

// Roles of ranks that wait for each other by themselves, so that none needs to start before another.
template <std::size_t N>
constexpr std::array<RoleRules, N> ranks_start_together(std::array<RoleRules, N> roles) {
  for (RoleRules& role : roles)
    if (role.rank) role.start = RoleRules{}.start;
  return roles;
}

inline constexpr std::string_view kNodeRole = "node";
// The roles, and `node`, which has the rules of a worker: what Kubeflow's trainer calls the tasks of a TrainJob.
template <std::size_t N>
constexpr std::array<RoleRules, N + 1> with_node(const std::array<RoleRules, N>& roles) {
  std::array<RoleRules, N + 1> out;
  for (std::size_t i = 0; i < N; ++i) {
    out[i] = roles[i];
    if (roles[i].works) out[N] = roles[i];
  }
  out[N].name = kNodeRole;
  return out;
}

// A master that has rank 0 and decides, and workers.
inline constexpr auto kMasterAndWorkers = ranks_start_together(std::array{
    RoleRules{.name = "master", .most = 1, .leads = true, .stateful = true, .rank = true, .order = 0},
    RoleRules{.name = "worker", .works = true, .rank = true, .order = 1, .one_port = true},
});

// How the job's processes are numbered, from where one task stands.
struct World {
  TaskId first;                               // with rank 0
  std::uint32_t size = 0, before = 0;         // ranks of all tasks, and of those before this one
  std::uint32_t nodes = 0, nodes_before = 0;  // tasks, likewise
};

World world_of(const JobSpec& spec, const ClusterView& cluster, const TaskId& task);

// Whether a task has a lower number than another, by RoleRules::order and index.
bool comes_before(const JobSpec& spec, const TaskId& one, const TaskId& other);

// RANK of a task's first process, and how many it has.
struct RankRange {
  std::uint32_t first = 0, count = 0;
};
// Of those of these tasks, all of one generation, that have ranks (FrameworkRules::ranks).
std::map<TaskId, RankRange> rank_ranges(const JobSpec& spec, std::vector<TaskId> tasks);

// FrameworkRules::ranks for frameworks that number them as world_of() does.
std::uint32_t ranks_of_rank_role(const JobSpec& spec, const TaskId& task);

// FrameworkRules::environment for frameworks whose tasks meet at a tracker (XGBoost's, LightGBM's): who is first, and all workers.
void add_tracker(const JobSpec& spec, const ClusterView& cluster, const TaskId& task, std::map<std::string, std::string>& env);

// FrameworkRules::check for frameworks that have these roles and nothing else to check.
void check_usual_roles(const JobSpec& spec, std::vector<FileError>& errors);

}  // namespace dtrain::job
