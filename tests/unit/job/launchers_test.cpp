// What DeepSpeed, Accelerate and Lightning find in a rank of a PyTorch job, and their launchers in their arguments (docs/launchers.md).
// None of them is there to be asked: the names and rules are those of deepspeed/comm/comm.py and launcher/launch.py (0.16),
// accelerate/state.py and commands/launch.py (July 2026), and fabric/plugins/environments of Lightning 2.6.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/job/support.h"

namespace dtrain::job {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::job_text;
using ::testing::Not;
using testing::parse;
using testing::parse_good;
using testing::view_of;

using Variables = std::map<std::string, std::string>;

Rendered task_of(const JobSpec& spec, const TaskId& task) {
  TaskView own;
  own.task = task;
  const auto out = render(spec, view_of(spec), own);
  EXPECT_TRUE(out) << (out ? "" : out.error().text());
  return out ? *out : Rendered{};
}

Variables rank_of_task(const JobSpec& spec, const TaskId& task, std::size_t rank) {
  Variables env = task_of(spec, task).env;
  const auto ranks = rank_variables(spec, view_of(spec), task);
  if (rank < ranks.size())
    for (const auto& [name, value] : ranks[rank]) env[name] = value;
  return env;
}

JobSpec launcher_job(const std::string& role) { return parse_good(job_text("    worker: {" + role + "}\n", "", "pytorch")); }
JobSpec gang_of_six() { return launcher_job("replicas: 3, nprocPerNode: 2, command: [python3, train.py]"); }

std::string warnings_of(const std::string& role) {
  std::string all;
  for (const std::string& line : parse(job_text("    worker: {" + role + "}\n", "", "pytorch")).warnings) all += line + "\n";
  return all;
}

TEST(Launchers, DeepspeedFindsAllThatItRequires) {
  const Variables env = rank_of_task(gang_of_six(), {"worker", 1}, 1);
  const Variables required = {
      {"RANK", "3"}, {"WORLD_SIZE", "6"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "20000"}, {"LOCAL_RANK", "1"}};
  for (const auto& [name, value] : required) EXPECT_EQ(env.at(name), value) << name;
  for (const char* mpi : {"OMPI_COMM_WORLD_LOCAL_RANK", "AZUREML_EXPERIMENT_ID", "SM_TRAINING_ENV", "DLTS_JOB_ID"})
    EXPECT_FALSE(env.contains(mpi)) << mpi << " would make it look elsewhere";
}

TEST(Launchers, TheNamesOfDeepspeedsOwnLauncher) {
  const JobSpec spec = launcher_job(
      "replicas: 3, nprocPerNode: 2, command: [python3, train.py], env: {CROSS_RANK: '{env:GROUP_RANK}', CROSS_SIZE: "
      "'{env:GROUP_WORLD_SIZE}', LOCAL_SIZE: '{env:LOCAL_WORLD_SIZE}'}");
  const Variables env = rank_of_task(spec, {"worker", 2}, 0);
  EXPECT_EQ(env.at("CROSS_RANK") + " " + env.at("CROSS_SIZE") + " " + env.at("LOCAL_SIZE"), "2 3 2");
}

TEST(Launchers, AccelerateSeesADistributedRun) {
  const JobSpec spec = launcher_job("replicas: 3, nprocPerNode: 2, command: [python3, train.py], env: {ACCELERATE_MIXED_PRECISION: bf16}");
  const Variables env = rank_of_task(spec, {"worker", 2}, 1);
  const Variables read = {{"LOCAL_RANK", "1"},         {"RANK", "5"},
                          {"WORLD_SIZE", "6"},         {"LOCAL_WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "20000"},
                          {"OMP_NUM_THREADS", "1"},    {"ACCELERATE_MIXED_PRECISION", "bf16"}};
  for (const auto& [name, value] : read) EXPECT_EQ(env.at(name), value) << name;
  for (const char* other : {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "ACCELERATE_USE_CPU", "FORK_LAUNCHED"})
    EXPECT_FALSE(env.contains(other)) << other;
}

TEST(Launchers, AccelerateInTheCommandIsToldOfTheOthers) {
  const JobSpec spec = launcher_job(
      "replicas: 4, resources: {gpus: 8}, command: [accelerate, launch, '--num_machines={count:worker}', '--machine_rank={task.rank}', "
      "'--main_process_ip={env:MASTER_ADDR}', '--main_process_port={env:MASTER_PORT}', --num_processes=32, train.py]");
  EXPECT_THAT(task_of(spec, {"worker", 2}).argv,
              ::testing::ElementsAre("accelerate", "launch", "--num_machines=4", "--machine_rank=2", "--main_process_ip=10.0.0.1",
                                     "--main_process_port=20000", "--num_processes=32", "train.py"));
  EXPECT_TRUE(rank_variables(spec, view_of(spec), {"worker", 2}).empty()) << "it starts the ranks";
}

TEST(Launchers, LightningTakesARankForAChildOfTorchrun) {
  const JobSpec spec = gang_of_six();
  for (const std::uint32_t index : {0u, 1u, 2u})
    for (const std::size_t local : {0u, 1u}) {
      const Variables env = rank_of_task(spec, {"worker", index}, local);
      EXPECT_TRUE(env.contains("TORCHELASTIC_RUN_ID")) << "is_torchelastic_launched()";
      EXPECT_FALSE(env.contains("SLURM_NTASKS")) << "Slurm's environment would come first";
      EXPECT_EQ(env.at("RANK"), std::to_string(2 * index + local));
      EXPECT_EQ(env.at("LOCAL_RANK"), std::to_string(local));
      EXPECT_EQ(env.at("GROUP_RANK"), std::to_string(index)) << "node_rank()";
      EXPECT_EQ(env.at("MASTER_ADDR") + ":" + env.at("MASTER_PORT"), "10.0.0.1:20000");
      // validate_settings(): devices * num_nodes, as the page says to write them
      EXPECT_EQ(std::stoi(env.at("LOCAL_WORLD_SIZE")) * std::stoi(env.at("GROUP_WORLD_SIZE")), std::stoi(env.at("WORLD_SIZE")));
    }
}

TEST(Launchers, OneThatIsNotToldOfTheOtherTasksIsWarnedOf) {
  EXPECT_THAT(warnings_of("replicas: 4, command: [deepspeed, train.py]"), HasSubstr("spec.roles.worker.command: deepspeed"));
  EXPECT_THAT(warnings_of("replicas: 4, command: [accelerate, launch, train.py]"), HasSubstr("--num_machines"));
  for (const char* told :
       {"replicas: 1, command: [deepspeed, train.py]", "replicas: 1, command: [accelerate, launch, train.py]",
        "replicas: 4, command: [deepspeed, --hostfile, hosts, train.py]", "replicas: 4, command: [deepspeed, -H, hosts, t.py]",
        "replicas: 4, command: [accelerate, launch, --num_machines=4, train.py]",
        "replicas: 4, command: [accelerate, launch, --config_file, c.yaml, train.py]", "replicas: 4, command: [torchrun, train.py]",
        "replicas: 4, command: [python3, deepspeed]"})
    EXPECT_THAT(warnings_of(told), Not(HasSubstr("launchers.md"))) << told;
}

}  // namespace
}  // namespace dtrain::job
