// The variables of PyTorch jobs: what Kubeflow's operator and torchrun set (docs/frameworks.md), and for random jobs the rules of env://
// by a naive numbering of all processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>

#include "common/job/framework_roles.h"
#include "common/wire/codec.h"
#include "tests/unit/job/support.h"

namespace dtrain::job {
namespace {

using testing::error_lines;
using ::testing::HasSubstr;
using testing::job_text;
using testing::parse;
using testing::parse_good;
using testing::view_of;

using Env = std::map<std::string, std::string>;

JobSpec pytorch_job(const std::string& roles, const std::string& rest = "") { return parse_good(job_text(roles, rest, "pytorch")); }

struct Started : Rendered {
  std::vector<Env> ranks;
};

Started rendered(const JobSpec& spec, const ClusterView& view, const TaskId& task) {
  TaskView own;
  own.task = task;
  auto out = render(spec, view, own);
  EXPECT_TRUE(out) << (out ? "" : out.error().text());
  return out ? Started{*out, rank_variables(spec, view, task)} : Started{};
}

Started rendered(const JobSpec& spec, const TaskId& task) { return rendered(spec, view_of(spec), task); }

// As the process of that rank within its task finds it.
Env env_of(const Started& task, std::size_t rank) {
  Env env = task.env;
  if (rank < task.ranks.size())
    for (const auto& [name, value] : task.ranks[rank]) env[name] = value;
  return env;
}

// Those variables of `env`, in order, as one text; "-" is not set.
std::string values(const Env& env, const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : " ") + (env.contains(name) ? env.at(name) : "-");
  return out;
}

const std::vector<std::string> kEnvUrl = {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK"};

// pytorchjob_controller_test.go, envvar_test cases: master with two workers, one process each.
TEST(Pytorch, MasterAndWorkersAsTheOperatorNumbersThem) {
  const JobSpec spec = pytorch_job("    master: {command: [a]}\n    worker: {replicas: 2, command: [a]}\n");
  EXPECT_EQ(values(rendered(spec, {"master", 0}).env, kEnvUrl), "10.0.0.1 20000 3 0 0");
  EXPECT_EQ(values(rendered(spec, {"worker", 0}).env, kEnvUrl), "10.0.0.1 20000 3 1 0");
  EXPECT_EQ(values(rendered(spec, {"worker", 1}).env, kEnvUrl), "10.0.0.1 20000 3 2 0");
  EXPECT_EQ(rendered(spec, {"worker", 1}).env.at("PYTHONUNBUFFERED"), "1");
  EXPECT_TRUE(rendered(spec, {"worker", 1}).ranks.empty());
  EXPECT_EQ(deciding_task(spec)->text(), "master-0");
}

TEST(Pytorch, WorkersAlone) {
  const JobSpec spec = pytorch_job("    worker: {replicas: 2, command: [a]}\n");
  EXPECT_EQ(values(rendered(spec, {"worker", 1}).env, kEnvUrl), "10.0.0.1 20000 2 1 0");
  EXPECT_FALSE(deciding_task(spec)) << "all workers have to succeed";
  EXPECT_TRUE(is_collective(spec) && is_stateful(spec, {"worker", 1}));
}

TEST(Pytorch, ATaskAloneStillInitializesItsGroup) {
  const JobSpec spec = pytorch_job("    worker: {command: [a]}\n");
  EXPECT_EQ(values(rendered(spec, {"worker", 0}).env, kEnvUrl), "10.0.0.1 20000 1 0 0");
  EXPECT_FALSE(is_collective(spec) || is_stateful(spec, {"worker", 0}));
}

TEST(Pytorch, OneTaskWithRanksOrWithCheckpointsRecovers) {
  const JobSpec ranks = pytorch_job("    worker: {nprocPerNode: 2, command: [a]}\n");
  EXPECT_TRUE(is_collective(ranks) && is_stateful(ranks, {"worker", 0}));
  const JobSpec alone = pytorch_job("    worker: {command: [a]}\n", "  checkpoint: {dir: /c}\n");
  EXPECT_TRUE(is_stateful(alone, {"worker", 0})) << "in place it would be told of the checkpoint of its first attempt";
}

// local_elastic_agent.py, start_workers(): the environment of each child.
TEST(Pytorch, RanksOfATaskFindWhatTorchrunsChildrenFind) {
  const JobSpec spec = pytorch_job("    worker: {replicas: 2, nprocPerNode: 2, command: [a]}\n", "  policy: {backoffLimit: 7}\n");
  ClusterView view = view_of(spec);
  view.generation = 3;
  const Started task = rendered(spec, view, {"worker", 1});
  ASSERT_EQ(task.ranks.size(), 2u);
  const Env env = env_of(task, 1);
  const std::map<std::string, std::string> expected = {
      {"LOCAL_RANK", "1"},
      {"RANK", "3"},
      {"GROUP_RANK", "1"},
      {"ROLE_RANK", "3"},
      {"ROLE_NAME", "default"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"WORLD_SIZE", "4"},
      {"GROUP_WORLD_SIZE", "2"},
      {"ROLE_WORLD_SIZE", "4"},
      {"MASTER_ADDR", "10.0.0.1"},
      {"MASTER_PORT", "20000"},
      {"TORCHELASTIC_RESTART_COUNT", "2"},
      {"TORCHELASTIC_MAX_RESTARTS", "7"},
      {"TORCHELASTIC_RUN_ID", "j"},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
      {"NCCL_ASYNC_ERROR_HANDLING", "1"},
      {"OMP_NUM_THREADS", "1"},
  };
  for (const auto& [name, value] : expected)
    EXPECT_EQ(env.contains(name) ? env.at(name) : "-", name == "TORCHELASTIC_RUN_ID" ? view.job_name : value) << name;
  EXPECT_FALSE(env.contains("PET_NNODES")) << "only torchrun reads it";
}

TEST(Pytorch, TheUsersThreadsStay) {
  const JobSpec spec = pytorch_job("    worker: {nprocPerNode: 2, env: {OMP_NUM_THREADS: 4}, command: [a]}\n");
  EXPECT_EQ(env_of(rendered(spec, {"worker", 0}), 1).at("OMP_NUM_THREADS"), "4");
}

// envvar.go and elastic.go: a replica whose command is torchrun.
TEST(Pytorch, TorchrunReadsItsOptionsFromTheEnvironment) {
  const std::vector<std::string> names = {"PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE", "PET_MASTER_ADDR", "PET_MASTER_PORT"};
  for (const char* command : {"torchrun, train.py", "/usr/bin/torchrun, train.py", "python3, -m, torch.distributed.run, train.py"}) {
    const std::string text = std::string("command: [") + command + "]}\n";
    const JobSpec spec = pytorch_job("    master: {nprocPerNode: 2, " + text + "    worker: {replicas: 2, nprocPerNode: 2, " + text);
    const Started task = rendered(spec, {"worker", 1});
    EXPECT_EQ(values(task.env, names), "3 2 2 10.0.0.1 20000") << command;
    EXPECT_EQ(values(task.env, {"WORLD_SIZE", "GROUP_RANK"}), "6 2");
    EXPECT_TRUE(task.ranks.empty()) << "torchrun starts the ranks";
  }
  const JobSpec other = pytorch_job("    worker: {nprocPerNode: 2, command: [python3, train.py, -m, torch.distributed.run]}\n");
  EXPECT_EQ(rendered(other, {"worker", 0}).ranks.size(), 2u) << "the words are arguments of the script";
}

TEST(Pytorch, ElasticTorchrunMeetsAtRankZero) {
  const JobSpec spec =
      pytorch_job("    worker: {replicas: 3, minReplicas: 1, command: [torchrun, train.py]}\n", "  policy: {backoffLimit: 3}\n");
  const std::vector<std::string> names = {"PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_NNODES", "PET_MAX_RESTARTS", "PET_NODE_RANK"};
  EXPECT_EQ(values(rendered(spec, {"worker", 2}).env, names), "c10d 10.0.0.1:20000 1:3 3 -");
}

TEST(Pytorch, AShrunkGenerationIsNumberedAnew) {
  const JobSpec spec = pytorch_job("    worker: {replicas: 4, minReplicas: 2, nprocPerNode: 2, command: [a]}\n");
  ClusterView view = view_of(spec);
  view.tasks.erase({"worker", 3});
  EXPECT_EQ(values(env_of(rendered(spec, view, {"worker", 2}), 1), kEnvUrl), "10.0.0.1 20000 6 5 1");
}

TEST(Pytorch, WordsForTheNumberOfRanks) {
  const auto ranks = [](const std::string& role) {
    return pytorch_job("    worker: {command: [a], " + role + "}\n").roles.at("worker").nproc_per_node;
  };
  EXPECT_EQ(ranks("nprocPerNode: 3"), 3u);
  EXPECT_EQ(ranks("nprocPerNode: gpu, resources: {gpus: 4}"), 4u);
  EXPECT_EQ(ranks("nprocPerNode: cpu, resources: {cpus: 2500m, gpus: 2}"), 2u);
  EXPECT_EQ(ranks("nprocPerNode: auto, resources: {cpus: 2, gpus: 4}"), 4u);
  EXPECT_EQ(ranks("nprocPerNode: auto, resources: {cpus: 2}"), 2u);
  EXPECT_EQ(ranks("nprocPerNode: auto"), 1u);
}

TEST(Pytorch, MistakesAreNamed) {
  const auto only_error = [](const std::string& roles, const std::string& framework = "pytorch") {
    const auto lines = error_lines(job_text(roles, "", framework));
    EXPECT_EQ(lines.size(), 1u) << roles;
    return lines.empty() ? "" : lines.front();
  };
  EXPECT_THAT(only_error("    worker: {command: [a], nprocPerNode: gpu}\n"), HasSubstr("the task has none"));
  EXPECT_THAT(only_error("    worker: {command: [a], nprocPerNode: cpu}\n"), HasSubstr("set resources.cpus"));
  EXPECT_THAT(only_error("    worker: {command: [a], nprocPerNode: many}\n"), HasSubstr("the number of ranks of each task"));
  EXPECT_THAT(only_error("    worker: {command: [a], nprocPerNode: -1}\n"), HasSubstr("nprocPerNode"));
  EXPECT_THAT(only_error("    worker: {command: [a], nprocPerNode: 257}\n"), HasSubstr("256"));
  EXPECT_THAT(only_error("    worker: {command: [a], nprocPerNode: 2, resources: {gpus: 1}}\n"), HasSubstr("two ranks would share one"));
  EXPECT_THAT(only_error("    worker: {command: [a], nprocPerNode: 2}\n", "tensorflow"), HasSubstr("has no meaning for a tensorflow job"));
  EXPECT_THAT(only_error("    master: {replicas: 2, command: [a]}\n"), HasSubstr("at most one master"));
  EXPECT_THAT(only_error("    worker: {replicas: 2, minReplicas: 3, command: [a]}\n"), HasSubstr("minReplicas"));
  EXPECT_THAT(only_error("    worker: {command: [a], nprocPerNode: 2, env: {LOCAL_RANK: 1}}\n"),
              HasSubstr("env.LOCAL_RANK: is different for each"));
  EXPECT_THAT(only_error("    ps: {command: [a]}\n    worker: {command: [a]}\n"), HasSubstr("a pytorch job has no ps"));
}

// It is rendered on the agent's one thread: of a host's tasks at each start, of all tasks for a plan.
TEST(Pytorch, ManyRanksCostNoMoreThanManyTasks) {
  const JobSpec spec = pytorch_job("    worker: {replicas: 1000, nprocPerNode: 256, command: [a]}\n");
  const ClusterView view = view_of(spec);
  const auto begun = std::chrono::steady_clock::now();
  for (std::uint32_t index = 0; index < 20; ++index) EXPECT_EQ(rendered(spec, view, {"worker", index}).ranks.size(), 256u);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 5s) << "counting all tasks for each rank took 27 s for a thousand of them";
}

TEST(Pytorch, WhatIsProbablyNotMeantIsAWarning) {
  const auto warnings = [](const std::string& roles) {
    std::string all;
    for (const std::string& line : parse(job_text(roles, "", "pytorch")).warnings) all += line + "\n";
    return all;
  };
  EXPECT_EQ(warnings("    worker: {command: [a], nprocPerNode: 2, resources: {cpus: 2}}\n"), "");
  EXPECT_THAT(warnings("    worker: {command: [a], nprocPerNode: 3, resources: {cpus: 2}}\n"), HasSubstr("share fewer CPUs"));
  EXPECT_THAT(warnings("    worker: {command: [a], resources: {gpus: 2}}\n"), HasSubstr("nprocPerNode: gpu"));
  EXPECT_THAT(warnings("    worker: {command: [a]}\n    board: {command: [a]}\n"), HasSubstr("get neither RANK nor MASTER_ADDR"));
}

TEST(Pytorch, NeedsVersionThreeOfTheLedger) {
  EXPECT_EQ(wire::needed_version(pytorch_job("    worker: {command: [a]}\n")), 3u);
  const auto generic = [](const std::string& argument, const std::string& rest = "") {
    return wire::needed_version(parse_good(job_text("    worker: {command: [a, \"" + argument + "\"]}\n", rest, "generic")));
  };
  EXPECT_EQ(generic("{host:worker:0}"), 1u);
  EXPECT_EQ(generic("{ip:worker:0}"), 3u);
  EXPECT_EQ(generic("{count}"), 3u);
  EXPECT_EQ(generic("{{count}}"), 1u);
  EXPECT_EQ(generic("x", "  policy: {collective: true}\n"), 3u);
}

TEST(Generic, TemplatesOfAddressAndOfAllTasks) {
  const JobSpec spec = parse_good(job_text(
      "    ps: {command: [a]}\n    worker: {replicas: 2, command: [a, \"{ip:ps:0}\", \"{count}\", \"{{count}}\"]}\n", "", "generic"));
  EXPECT_EQ(rendered(spec, {"worker", 1}).argv, (std::vector<std::string>{"a", "10.0.0.1", "3", "{count}"}));
  EXPECT_TRUE(rules_of(spec.framework).needs_ports(spec));
}

TEST(Generic, CollectiveByPolicyMakesEveryEndingRoleARank) {
  const std::string roles = "    trainer: {replicas: 2, command: [a]}\n    evaluator: {command: [a]}\n";
  const JobSpec spec = parse_good(job_text(roles, "  policy: {collective: true}\n", "generic"));
  EXPECT_TRUE(is_collective(spec) && is_stateful(spec, {"trainer", 1}));
  EXPECT_FALSE(is_stateful(spec, {"evaluator", 0}));
  EXPECT_FALSE(is_collective(parse_good(job_text(roles, "", "generic"))));
}

TEST(Generic, TwoWritersOfACheckpointAreWarnedOf) {
  const auto warned = [](const std::string& role, const std::string& policy = "") {
    const ParsedJob job = parse(job_text("    trainer: {command: [a]" + role + "}\n", "  checkpoint: {dir: /c}\n" + policy, "generic"));
    EXPECT_TRUE(job.errors.empty());
    return !job.warnings.empty() && job.warnings.front().find("exclusive: true") != std::string::npos;
  };
  EXPECT_TRUE(warned(""));
  EXPECT_TRUE(warned(", replicas: 2"));
  EXPECT_FALSE(warned(", exclusive: true"));
  EXPECT_FALSE(warned(", replicas: 2", "  policy: {collective: true}\n"));
}

struct Process {
  TaskId task;
  std::uint32_t local = 0;
};

// Every process in the order of its rank: the master's, then the workers' by index.
std::vector<Process> numbered(const JobSpec& spec, const ClusterView& view) {
  std::vector<Process> all;
  for (const char* role : {"chief", "master", "worker"})
    for (std::uint32_t index = 0; index < 100; ++index) {
      const TaskId task{role, index};
      if (!view.tasks.contains(task)) continue;
      const std::uint32_t ranks = std::max(spec.roles.at(role).nproc_per_node, 1u);
      for (std::uint32_t local = 0; local < ranks; ++local) all.push_back({task, local});
    }
  return all;
}

RC_GTEST_PROP(Pytorch, EveryRankIsThereOnceAndAllMeetAtOneAddress, ()) {
  JobSpec spec;
  spec.name = "j";
  spec.framework = Framework::pytorch;
  const auto add = [&](const char* name, std::uint32_t replicas) {
    RoleSpec& role = spec.roles[name];
    role.replicas = role.min_replicas = replicas;
    role.command = {"a"};
    role.nproc_per_node = *rc::gen::inRange<std::uint32_t>(0, 9);
  };
  if (*rc::gen::arbitrary<bool>()) add(*rc::gen::element("chief", "master"), 1);
  if (spec.roles.empty() || *rc::gen::arbitrary<bool>()) add("worker", *rc::gen::inRange<std::uint32_t>(1, 30));
  if (*rc::gen::arbitrary<bool>()) add("evaluator", 1);
  ClusterView view = view_of(spec);
  std::uint8_t host = 0;
  for (auto& [task, address] : view.tasks) address.host = "10.0.0." + std::to_string(++host);
  // A generation may have lost some.
  std::erase_if(view.tasks, [](const auto& entry) { return entry.first.index > 0 && *rc::gen::inRange(0, 4) == 0; });

  const std::vector<Process> all = numbered(spec, view);
  const TaskAddress& first = view.tasks.at(all.front().task);
  std::vector<TaskId> tasks;
  for (const auto& entry : view.tasks) tasks.push_back(entry.first);
  const auto ranges = rank_ranges(spec, tasks);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const Started task = rendered(spec, view, all[rank].task);
    RC_ASSERT(task.ranks.empty() == (spec.roles.at(all[rank].task.role).nproc_per_node == 0));
    const Env env = env_of(task, all[rank].local);
    RC_ASSERT(env.at("RANK") == std::to_string(rank));
    RC_ASSERT(ranges.at(all[rank].task).first + all[rank].local == rank);
    RC_ASSERT(ranges.at(all[rank].task).count == std::max<std::size_t>(task.ranks.size(), 1));
    RC_ASSERT(env.at("WORLD_SIZE") == std::to_string(all.size()));
    RC_ASSERT(env.at("LOCAL_RANK") == std::to_string(all[rank].local));
    RC_ASSERT(env.at("LOCAL_WORLD_SIZE") == std::to_string(std::max<std::size_t>(task.ranks.size(), 1)));
    RC_ASSERT(env.at("MASTER_ADDR") == first.host);
    RC_ASSERT(env.at("MASTER_PORT") == std::to_string(first.port));
  }
  for (const auto& entry : view.tasks)
    if (entry.first.role == "evaluator")
      RC_ASSERT(!rendered(spec, view, entry.first).env.contains("RANK") && !ranges.contains(entry.first));
}

}  // namespace
}  // namespace dtrain::job
