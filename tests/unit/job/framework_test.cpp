// The table of frameworks: that it is whole, and that for every job its rules answer as the literal rules below, in which role names stood
// all over the code before there was a table.
#include "common/job/framework.h"

#include <gtest/gtest.h>

#include <set>

#include "common/job/manifest_fields.h"
#include "common/job/names.h"
#include "common/job/start_order.h"
#include "tests/unit/job/support.h"

namespace dtrain::job {
namespace {

using Roles = std::set<std::string>;

// A framework: its stored number, whether it is built, and when its jobs are collective: "" never, "ranks" with more than one, "no ps" with
// more than one and no ps. Those built after the table have roles of their own: frameworks_test.cpp.
struct Known {
  const char* name;
  unsigned number;
  bool built;
  std::string collective;
  bool later = false;
};
const std::vector<Known> kKnown = {
    {"tensorflow", 0, true, "no ps"},     {"pytorch", 1, true, "ranks"},     {"mpi", 2, true, "ranks", true},
    {"horovod", 3, false, "ranks"},       {"mxnet", 4, true, "ranks", true}, {"xgboost", 5, true, "ranks", true},
    {"paddle", 6, true, "no ps", true},   {"jax", 7, true, "ranks", true},   {"generic", 8, true, ""},
    {"lightgbm", 9, true, "ranks", true},
};
const std::vector<std::string> kRoleNames = {"chief", "evaluator", "master", "ps", "trainer", "worker"};

// What the code said, name by name.
const Roles kRanks = {"chief", "master", "worker"}, kStateful = {"ps", "chief", "master"}, kNeverEnds = {"ps", "evaluator"},
            kExclusiveOfTensorflow = {"ps", "chief", "master", "evaluator"}, kOne = {"chief", "master"};
const std::map<std::string, Roles> kStartsAfter = {{"ps", {}},
                                                   {"chief", {"ps"}},
                                                   {"master", {"ps"}},
                                                   {"worker", {"ps", "chief", "master"}},
                                                   {"evaluator", {"ps", "chief", "master"}},
                                                   {"trainer", {"ps", "chief", "master"}}};
const std::vector<Roles> kRankOrder = {{"chief", "master"}, {"worker"}, {"ps", "trainer"}, {"evaluator"}};

// Every job of these roles, each missing, alone or three times, of every framework.
template <class Check>
void for_each_job(Check check) {
  std::size_t jobs = 1;
  for (std::size_t i = 0; i < kRoleNames.size(); ++i) jobs *= 3;
  for (const Known& known : kKnown)
    for (std::size_t job = 0; job < jobs && !known.later; ++job) {
      JobSpec spec;
      spec.framework = *from_word<Framework>(known.name);
      std::string text = known.name;
      std::size_t left = job;
      for (const std::string& role : kRoleNames) {
        const std::uint32_t replicas = left % 3 == 2 ? 3 : static_cast<std::uint32_t>(left % 3);
        left /= 3;
        if (replicas == 0) continue;
        spec.roles[role].replicas = replicas;
        spec.roles[role].exclusive = is_exclusive_role(spec.framework, role);
        text += " " + role + "=" + std::to_string(replicas);
      }
      SCOPED_TRACE(text);
      check(known, spec);
      if (::testing::Test::HasFailure()) return;  // one job is enough to look at
    }
}

TEST(Frameworks, EveryKnownNameHasItsNumberAndItsRules) {
  ASSERT_GE(kFrameworks.size(), kKnown.size());
  EXPECT_EQ(static_cast<std::size_t>(enum_last(Framework{})) + 1, kFrameworks.size());
  for (const Known& known : kKnown) {
    SCOPED_TRACE(known.name);
    const auto framework = from_word<Framework>(known.name);
    ASSERT_TRUE(framework);
    EXPECT_EQ(static_cast<unsigned>(*framework), known.number);
    EXPECT_EQ(to_string(*framework), known.name);
    EXPECT_EQ(rules_of(*framework).built, known.built);
  }
  for (const FrameworkLine& line : kFrameworks) {
    SCOPED_TRACE(line.name);
    EXPECT_EQ(from_word<Framework>(line.name), line.framework);
    EXPECT_EQ(&rules_of(line.framework), line.rules);
    Roles seen;
    for (const RoleRules& role : line.rules->roles) {
      EXPECT_TRUE(seen.insert(std::string(role.name)).second) << role.name << " is there twice";
      EXPECT_EQ(&role_rules(line.framework, role.name), &role);
    }
  }
}

TEST(Frameworks, ARoleWithoutRulesHasTheRulesOfAnyRole) {
  for (const FrameworkLine& line : kFrameworks)
    for (const char* role : {"trainer", "", "PS", "ps0", "workers"})
      EXPECT_EQ(role_rules(line.framework, role), RoleRules{}) << line.name << role;
  const RoleRules any;
  EXPECT_EQ(any.most, limits::kTasksPerJob);
  EXPECT_TRUE(any.ends);
  EXPECT_FALSE(any.leads || any.stands_in || any.works || any.serves || any.stateful || any.rank || any.exclusive);
}

TEST(Frameworks, WhatIsNotBuiltIsRefusedByName) {
  for (const Known& known : kKnown) {
    if (known.later) continue;  // frameworks_test.cpp
    const auto errors = testing::error_lines(testing::job_text("    worker: {command: [a]}\n", "", known.name));
    if (known.built) {
      EXPECT_TRUE(errors.empty()) << errors.front();
      continue;
    }
    ASSERT_EQ(errors.size(), 1u) << known.name;
    EXPECT_NE(errors[0].find("this version supports tensorflow"), std::string::npos) << errors[0];
    EXPECT_NE(errors[0].find(", not " + std::string(known.name)), std::string::npos) << errors[0];
  }
}

TEST(Frameworks, RolesAnswerAsTheirNamesDid) {
  for (const Known& known : kKnown)
    for (const std::string& name : kRoleNames) {
      if (known.later) continue;
      SCOPED_TRACE(std::string(known.name) + " " + name);
      const Framework framework = *from_word<Framework>(known.name);
      const bool tensorflow = std::string(known.name) == "tensorflow";
      const RoleRules& role = role_rules(framework, name);
      EXPECT_EQ(role.most, kOne.contains(name) ? 1u : limits::kTasksPerJob);
      EXPECT_EQ(role.works, name == "worker");
      EXPECT_EQ(role.serves, name == "ps");
      EXPECT_EQ(role.ends, !kNeverEnds.contains(name));
      EXPECT_EQ(role.exclusive, tensorflow && kExclusiveOfTensorflow.contains(name));
      EXPECT_EQ(is_exclusive_role(framework, name), role.exclusive);
      EXPECT_EQ(role.avoid_gpu_hosts, name == "ps" ? AvoidGpuHosts::prefer : AvoidGpuHosts::no);
    }
}

TEST(Frameworks, JobsAnswerAsTheirNamesDid) {
  for_each_job([](const Known& known, const JobSpec& spec) {
    const bool tensorflow = std::string(known.name) == "tensorflow";
    const bool leader = has_role(spec, "chief") || has_role(spec, "master");
    std::uint32_t ranks = 0;
    for (const auto& [name, role] : spec.roles) ranks += kRanks.contains(name) ? role.replicas : 0;
    const bool collective = ranks > 1 && (known.collective == "ranks" || (known.collective == "no ps" && !has_role(spec, "ps")));
    EXPECT_EQ(is_collective(spec), collective);

    for (const SuccessPolicy policy : {SuccessPolicy::by_framework, SuccessPolicy::all_workers}) {
      JobSpec with = spec;
      with.policy.success_policy = policy;
      std::string decides = has_role(spec, "chief") ? "chief-0" : has_role(spec, "master") ? "master-0" : "";
      if (decides.empty() && tensorflow && policy == SuccessPolicy::by_framework && has_role(spec, "worker")) decides = "worker-0";
      const auto task = deciding_task(with);
      EXPECT_EQ(task ? task->text() : "", decides);
    }

    for (const std::string& name : kRoleNames) {
      for (const std::uint32_t index : {0u, 1u}) {
        EXPECT_EQ(is_stateful(spec, {name, index}), kStateful.contains(name) || (collective && kRanks.contains(name))) << name;
        const bool exclusive = tensorflow && (kExclusiveOfTensorflow.contains(name) || (name == "worker" && index == 0 && !leader));
        EXPECT_EQ(is_exclusive(spec, {name, index}), has_role(spec, name) && exclusive) << name << index;
      }
      std::map<std::string, StartAfter> after;
      // The ranks of pytorch, built later, wait for each other by themselves.
      const bool waits = std::string(known.name) != "pytorch";
      for (const std::string& other : kStartsAfter.at(name))
        if (has_role(spec, other) && (waits || other == "ps")) after[other] = StartAfter::running;
      EXPECT_EQ(default_start_after(spec, name), after) << name;
    }

    const ClusterView view = testing::view_of(spec);
    std::uint32_t rank = 0;
    for (const Roles& group : kRankOrder)
      for (const auto& entry : view.tasks)
        if (group.contains(entry.first.role)) {
          EXPECT_EQ(rank_of(spec, view, entry.first), rank++) << entry.first.text();
        }
  });
}

TEST(Frameworks, PortsAndScaleAndEnvironmentAsBefore) {
  for_each_job([](const Known& known, const JobSpec& spec) {
    const FrameworkRules& rules = rules_of(spec.framework);
    const bool tensorflow = std::string(known.name) == "tensorflow", generic = std::string(known.name) == "generic";
    EXPECT_EQ(rules.needs_ports(spec), !generic);
    JobSpec told = spec;
    told.env["H"] = "--all={hosts:worker}";
    EXPECT_TRUE(rules.needs_ports(told));
    JobSpec dynamic = spec;
    dynamic.policy.enable_dynamic_worker = true;
    for (const std::string& role : kRoleNames) {
      EXPECT_EQ(rules.scales_alone(spec, role), generic) << role;
      EXPECT_EQ(rules.scales_alone(told, role), generic && role != "worker") << role;
      EXPECT_EQ(rules.scales_alone(dynamic, role), generic || (tensorflow && role == "worker")) << role;
    }
    if (std::string(known.name) == "pytorch") return;  // pytorch_test.cpp
    const ClusterView view = testing::view_of(spec);
    for (const auto& entry : view.tasks) {
      std::map<std::string, std::string> env;
      rules.environment(spec, view, entry.first, env);
      const auto config = tensorflow ? tf_config(spec, view, entry.first) : std::nullopt;
      EXPECT_EQ(env.size(), config ? 1u : 0u);
      EXPECT_EQ(config ? env["TF_CONFIG"] : "", config.value_or(""));
    }
  });
}

}  // namespace
}  // namespace dtrain::job
