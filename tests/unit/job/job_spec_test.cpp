// The questions others ask about a spec, role by role.
#include <gtest/gtest.h>

#include "tests/unit/job/support.h"

namespace dtrain::job {
namespace {

using testing::job_text;
using testing::parse_good;

JobSpec spec_of(const std::vector<std::pair<std::string, int>>& roles, const std::string& framework = "tensorflow",
                const std::string& rest = "") {
  std::string lines;
  for (const auto& [role, replicas] : roles) lines += "    " + role + ": {replicas: " + std::to_string(replicas) + ", command: [a]}\n";
  return parse_good(job_text(lines, rest, framework));
}

struct Expected {
  std::vector<std::pair<std::string, int>> roles;
  std::string framework;
  bool collective;
  std::string deciding;   // "" all
  std::string stateful;   // tasks, blank separated
  std::string exclusive;  // likewise
};

TEST(JobSpec, ClassesOfTasks) {
  const std::vector<Expected> table = {
      {{{"ps", 2}, {"chief", 1}, {"worker", 2}}, "tensorflow", false, "chief-0", "chief-0 ps-0 ps-1", "chief-0 ps-0 ps-1"},
      {{{"ps", 1}, {"worker", 2}}, "tensorflow", false, "worker-0", "ps-0", "ps-0 worker-0"},
      {{{"ps", 1}, {"master", 1}, {"worker", 1}}, "tensorflow", false, "master-0", "master-0 ps-0", "master-0 ps-0"},
      {{{"worker", 2}}, "tensorflow", true, "worker-0", "worker-0 worker-1", "worker-0"},
      {{{"worker", 1}}, "tensorflow", false, "worker-0", "", "worker-0"},
      {{{"worker", 1}, {"evaluator", 1}}, "tensorflow", false, "worker-0", "", "evaluator-0 worker-0"},
      {{{"chief", 1}, {"worker", 1}, {"evaluator", 1}}, "tensorflow", true, "chief-0", "chief-0 worker-0", "chief-0 evaluator-0"},
      {{{"ps", 1}, {"chief", 1}, {"worker", 1}}, "generic", false, "chief-0", "chief-0 ps-0", ""},
      {{{"worker", 2}}, "generic", false, "", "", ""},
      {{{"trainer", 2}}, "tensorflow", false, "", "", ""},
  };
  for (const auto& row : table) {
    const JobSpec spec = spec_of(row.roles, row.framework);
    SCOPED_TRACE(row.framework + " with " + row.roles[0].first + ", " + std::to_string(row.roles.size()) + " roles");
    EXPECT_EQ(is_collective(spec), row.collective);
    const auto deciding = deciding_task(spec);
    EXPECT_EQ(deciding ? deciding->text() : "", row.deciding);
    std::string stateful, exclusive;
    for (const auto& entry : testing::view_of(spec).tasks) {
      if (is_stateful(spec, entry.first)) stateful += (stateful.empty() ? "" : " ") + entry.first.text();
      if (is_exclusive(spec, entry.first)) exclusive += (exclusive.empty() ? "" : " ") + entry.first.text();
    }
    EXPECT_EQ(stateful, row.stateful);
    EXPECT_EQ(exclusive, row.exclusive);
  }
}

TEST(JobSpec, WhatMayRunTwiceWhileItsHostIsCutOff) {
  JobSpec spec = spec_of({{"ps", 1}, {"chief", 1}, {"worker", 2}}, "generic");  // ps and chief are stateful
  const TaskId worker{"worker", 1}, chief{"chief", 0};
  const auto set = [&](OnDisconnect when) {
    for (auto& [name, role] : spec.roles) role.on_disconnect = when;
  };
  EXPECT_FALSE(must_not_run_twice(spec, worker));
  EXPECT_TRUE(must_not_run_twice(spec, chief) && wants_lease(spec, chief));
  set(OnDisconnect::freeze);
  EXPECT_TRUE(must_not_run_twice(spec, worker) && wants_lease(spec, worker));
  set(OnDisconnect::replace);
  EXPECT_FALSE(must_not_run_twice(spec, chief) || wants_lease(spec, chief));
  set(OnDisconnect::keep);
  EXPECT_TRUE(must_not_run_twice(spec, chief));
  EXPECT_FALSE(wants_lease(spec, chief)) << "its user waits, or says that the host is gone";
  set(OnDisconnect::replace);
  spec.roles["chief"].exclusive = true;
  EXPECT_TRUE(must_not_run_twice(spec, chief) && wants_lease(spec, chief));
}

TEST(JobSpec, AllWorkersDecideOnlyWithoutAChief) {
  const std::string all = "  policy: {successPolicy: AllWorkers}";
  EXPECT_FALSE(deciding_task(spec_of({{"worker", 2}}, "tensorflow", all)));
  EXPECT_TRUE(deciding_task(spec_of({{"worker", 2}, {"chief", 1}}, "tensorflow", all)));
}

TEST(JobSpec, Counts) {
  const JobSpec spec = spec_of({{"ps", 2}, {"worker", 3}});
  EXPECT_EQ(total_replicas(spec), 5u);
  EXPECT_TRUE(has_role(spec, "ps"));
  EXPECT_FALSE(has_role(spec, "chief"));
  EXPECT_FALSE(is_exclusive(spec, {"nobody", 0}));
  EXPECT_EQ(to_string(Framework::xgboost), "xgboost");
}

TEST(JobSpec, FrameworksOfRanksAreCollective) {
  JobSpec spec = spec_of({{"worker", 2}}, "generic");
  for (const Framework f : {Framework::pytorch, Framework::mpi, Framework::horovod, Framework::xgboost, Framework::paddle, Framework::jax,
                            Framework::mxnet, Framework::lightgbm}) {
    spec.framework = f;
    EXPECT_TRUE(is_collective(spec)) << to_string(f);
  }
  spec.framework = Framework::generic;
  EXPECT_FALSE(is_collective(spec));
}

}  // namespace
}  // namespace dtrain::job
