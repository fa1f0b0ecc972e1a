// The variables of the frameworks that came after PyTorch, by value, as Kubeflow's operators set them (docs/frameworks.md), and the classes
// of their tasks.
#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>

#include <filesystem>

#include "common/job/framework.h"
#include "common/job/framework_roles.h"
#include "common/job/start_order.h"
#include "common/wire/codec.h"
#include "tests/unit/job/support.h"

namespace dtrain::job {
namespace {

using testing::error_lines;
using testing::job_text;
using testing::parse_good;
using testing::view_of;

using Variables = std::map<std::string, std::string>;

JobSpec job_of(const std::string& framework, const std::string& roles, const std::string& rest = "") {
  return parse_good(job_text(roles, rest, framework));
}

Variables variables_of(const JobSpec& spec, const ClusterView& view, const TaskId& task) {
  Variables env;
  rules_of(spec.framework).environment(spec, view, task, env);
  return env;
}
Variables variables_of(const JobSpec& spec, const TaskId& task) { return variables_of(spec, view_of(spec), task); }

// How a death and a success of each task count: "worker-1 recovers", and who decides.
std::string classes_of(const JobSpec& spec) {
  std::string out;
  for (const auto& entry : view_of(spec).tasks)
    out += entry.first.text() + (is_stateful(spec, entry.first) ? " recovers" : " restarts") +
           (is_exclusive(spec, entry.first) ? ", exclusive\n" : "\n");
  const auto decides = deciding_task(spec);
  return out + (decides ? decides->text() + " decides" : "all decide");
}

const std::string kMasterAndTwo = "    master: {command: [a]}\n    worker: {replicas: 2, command: [a]}\n";

TEST(Jax, AsTheOperatorAndASlurmStepTellIt) {
  const JobSpec spec = job_of("jax", "    worker: {replicas: 3, resources: {gpus: 2}, command: [a]}\n");
  ClusterView view = view_of(spec);
  view.job = 41;
  view.generation = 3;
  EXPECT_EQ(variables_of(spec, view, {"worker", 2}), (Variables{{"COORDINATOR_ADDRESS", "10.0.0.1"},
                                                                {"COORDINATOR_PORT", "20000"},
                                                                {"NUM_PROCESSES", "3"},
                                                                {"PROCESS_ID", "2"},
                                                                {"JAX_COORDINATOR_ADDRESS", "10.0.0.1:20000"},
                                                                {"JAX_NUM_PROCESSES", "3"},
                                                                {"JAX_PROCESS_ID", "2"},
                                                                {"JAX_LOCAL_DEVICE_IDS", "0,1"},
                                                                {"SLURM_JOB_ID", "41"},
                                                                {"SLURM_STEP_NODELIST", "10.0.0.1"},
                                                                {"SLURM_NTASKS", "3"},
                                                                {"SLURM_PROCID", "2"},
                                                                {"SLURM_LOCALID", "0"},
                                                                {"SLURM_NODEID", "2"},
                                                                {"SLURM_RESTART_COUNT", "2"}}));
  EXPECT_EQ(classes_of(spec), "worker-0 recovers\nworker-1 recovers\nworker-2 recovers\nall decide");
}

TEST(Jax, ATaskWithoutGpusLeavesTheDevicesToJax) {
  const JobSpec spec = job_of("jax", "    node: {replicas: 2, command: [a]}\n");
  const Variables env = variables_of(spec, {"node", 1});
  EXPECT_EQ(env.at("PROCESS_ID"), "1");
  EXPECT_FALSE(env.contains("JAX_LOCAL_DEVICE_IDS"));
}

// xgboost_test.go of the operator: the master is rank 0, workers come after it.
TEST(Xgboost, WorkersOfOnePortShareIt) {
  for (const char* framework : {"xgboost", "lightgbm"}) {
    const JobSpec spec = job_of(framework, kMasterAndTwo);
    ClusterView view = view_of(spec);
    view.tasks.at({"worker", 0}) = {"10.0.0.2", 9999};
    view.tasks.at({"worker", 1}) = {"10.0.0.3", 9999};
    EXPECT_EQ(variables_of(spec, view, {"worker", 1}), (Variables{{"MASTER_ADDR", "10.0.0.1"},
                                                                  {"MASTER_PORT", "20000"},
                                                                  {"WORLD_SIZE", "3"},
                                                                  {"RANK", "2"},
                                                                  {"WORKER_ADDRS", "10.0.0.2,10.0.0.3"},
                                                                  {"WORKER_PORT", "9999"}}));
    EXPECT_EQ(variables_of(spec, view, {"master", 0}).at("RANK"), "0");
    EXPECT_EQ(classes_of(spec), "master-0 recovers\nworker-0 recovers\nworker-1 recovers\nmaster-0 decides");
  }
}

TEST(Xgboost, WorkersOfSeveralPortsAreListedWithThem) {
  const Variables env = variables_of(job_of("xgboost", kMasterAndTwo), {"master", 0});
  EXPECT_EQ(env.at("WORKER_ADDRS"), "10.0.0.1:20001,10.0.0.1:20002");
  EXPECT_EQ(env.at("WORKER_PORT"), "20001");
}

TEST(Xgboost, AMasterAloneHasNoWorkers) {
  const Variables env = variables_of(job_of("xgboost", "    master: {command: [a]}\n"), {"master", 0});
  EXPECT_EQ(env, (Variables{{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "20000"}, {"WORLD_SIZE", "1"}, {"RANK", "0"}}));
}

// paddlepaddle/envvar_test.go: collective without a master.
TEST(Paddle, WorkersAloneMeetAtTheFirst) {
  const JobSpec spec = job_of("paddle", "    worker: {replicas: 2, command: [a]}\n");
  ClusterView view = view_of(spec);
  view.job_name = "swim";
  EXPECT_EQ(variables_of(spec, view, {"worker", 1}),
            (Variables{{"PADDLE_MASTER", "10.0.0.1:20000"}, {"PADDLE_NNODES", "2"}, {"PADDLE_JOB_ID", "swim"}, {"POD_IP", "10.0.0.1"}}));
  EXPECT_EQ(classes_of(spec), "worker-0 recovers\nworker-1 recovers\nall decide");
}

TEST(Paddle, WithAMasterTheLauncherStartsServersAndTrainers) {
  const JobSpec spec = job_of("paddle", kMasterAndTwo);
  const Variables master = variables_of(spec, {"master", 0}), worker = variables_of(spec, {"worker", 1});
  EXPECT_EQ(master.at("PADDLE_SERVER_NUM"), "1");
  EXPECT_FALSE(master.contains("PADDLE_TRAINER_NUM"));
  EXPECT_EQ(worker.at("PADDLE_TRAINER_NUM"), "1");
  EXPECT_FALSE(worker.contains("PADDLE_SERVER_NUM"));
  EXPECT_EQ(worker.at("PADDLE_MASTER"), "10.0.0.1:20000");
  EXPECT_EQ(worker.at("PADDLE_NNODES"), "3");
  EXPECT_EQ(classes_of(spec), "master-0 recovers\nworker-0 recovers\nworker-1 recovers\nmaster-0 decides");
}

TEST(Paddle, ServersAndTrainersKnowAllAddresses) {
  const JobSpec spec = job_of("paddle", "    ps: {command: [a]}\n    worker: {replicas: 2, command: [a]}\n");
  EXPECT_EQ(variables_of(spec, {"worker", 1}), (Variables{{"PADDLE_TRAINER_ID", "1"},
                                                          {"TRAINING_ROLE", "TRAINER"},
                                                          {"PADDLE_TRAINING_ROLE", "TRAINER"},
                                                          {"POD_IP", "10.0.0.1"},
                                                          {"PADDLE_PORT", "20002"},
                                                          {"PADDLE_TRAINERS_NUM", "2"},
                                                          {"PADDLE_TRAINER_ENDPOINTS", "10.0.0.1:20001,10.0.0.1:20002"},
                                                          {"PADDLE_PSERVERS_IP_PORT_LIST", "10.0.0.1:20000"}}));
  EXPECT_EQ(variables_of(spec, {"ps", 0}).at("TRAINING_ROLE"), "PSERVER");
  EXPECT_EQ(classes_of(spec), "ps-0 recovers\nworker-0 restarts\nworker-1 restarts\nall decide");
  const auto both = error_lines(job_text("    ps: {command: [a]}\n" + kMasterAndTwo, "", "paddle"));
  ASSERT_EQ(both.size(), 1u);
  EXPECT_NE(both[0].find("a master or ps, not both"), std::string::npos) << both[0];
}

const std::string kPsLite = "    scheduler: {command: [a]}\n    server: {replicas: 2, command: [a]}\n    worker: {command: [a]}\n";

// mxnet/mxnet_test.go of release 1.5, with the port of each task in place of the one of all.
TEST(Mxnet, PsLiteAndMxConfig) {
  const JobSpec spec = job_of("mxnet", kPsLite, "  options: {serverLabel: tuned}\n");
  const std::string cluster =
      R"({"cluster":{"scheduler":[{"url":"10.0.0.1","port":20000}],"server":[{"url":"10.0.0.1","port":20001},{"url":"10.0.0.1","port":20002}],)"
      R"("worker":[{"url":"10.0.0.1","port":20003}]},"labels":{"scheduler":"","server":"tuned","worker":""},)";
  EXPECT_EQ(variables_of(spec, {"worker", 0}), (Variables{{"DMLC_PS_ROOT_URI", "10.0.0.1"},
                                                          {"DMLC_PS_ROOT_PORT", "20000"},
                                                          {"DMLC_NODE_HOST", "10.0.0.1"},
                                                          {"DMLC_NUM_SERVER", "2"},
                                                          {"DMLC_NUM_WORKER", "1"},
                                                          {"DMLC_ROLE", "worker"},
                                                          {"DMLC_WORKER_ID", "0"},
                                                          {"MX_CONFIG", cluster + R"("task":{"type":"worker","index":0}})"}}));
  const Variables server = variables_of(spec, {"server", 1});
  EXPECT_EQ(server.at("MX_CONFIG"), cluster + R"("task":{"type":"server","index":1}})");
  EXPECT_FALSE(server.contains("DMLC_WORKER_ID"));
}

TEST(Mxnet, TheSchedulerDecidesUnlessAllWorkersDo) {
  EXPECT_EQ(classes_of(job_of("mxnet", kPsLite)),
            "scheduler-0 recovers, exclusive\nserver-0 recovers\nserver-1 recovers\nworker-0 recovers\nscheduler-0 decides");
  const JobSpec all = job_of("mxnet", kPsLite, "  policy: {successPolicy: AllWorkers}\n");
  EXPECT_FALSE(deciding_task(all));
}

TEST(Mxnet, WantsItsThreeRoles) {
  const auto errors = error_lines(job_text("    worker: {command: [a]}\n", "", "mxnet"));
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_NE(errors[0].find("needs a scheduler; its roles are scheduler, server and worker"), std::string::npos) << errors[0];
}

JobSpec mpi_job(std::map<std::string, std::string> options) {
  JobSpec spec;
  spec.name = "j";
  spec.framework = Framework::mpi;
  spec.options = std::move(options);
  spec.roles["launcher"].command = {"mpirun", "-n", "4", "a"};
  spec.roles["worker"].replicas = 2;
  spec.roles["worker"].nproc_per_node = 2;
  return spec;
}

// mpi_job_controller_test.go of mpi-operator: who is in the hostfile, how often, and how mpirun is told of it.
TEST(Mpi, TheLauncherKnowsTheSlotsOfAllWorkers) {
  const JobSpec spec = mpi_job({});
  const Variables env = variables_of(spec, {"launcher", 0});
  EXPECT_EQ(env.at("DTRAIN_HOSTS"), "worker-0.j slots=2\nworker-1.j slots=2\n");
  EXPECT_EQ(env.at("OMPI_MCA_orte_default_hostfile"), env.at("DTRAIN_HOSTFILE"));
  EXPECT_EQ(env.at("OMPI_MCA_orte_keep_fqdn_hostnames"), "true");
  EXPECT_EQ(env.at("OMPI_MCA_plm_rsh_agent"), "dtrain-rsh");
  EXPECT_TRUE(variables_of(spec, {"worker", 0}).empty());
  EXPECT_EQ(classes_of(spec), "launcher-0 recovers\nworker-0 recovers\nworker-1 recovers\nlauncher-0 decides");
  EXPECT_EQ(default_start_after(spec, "launcher"), (std::map<std::string, StartAfter>{{"worker", StartAfter::running}}));
}

// What stands for the name may have the name in it.
TEST(Mpi, AWorkingDirectoryMayHaveTheHostfilesName) {
  char top[] = "/tmp/dtrain-mpi-XXXXXX";
  ASSERT_NE(::mkdtemp(top), nullptr);
  const std::string directory = std::string(top) + "/etc/mpi/hostfile";
  std::filesystem::create_directories(directory);
  JobSpec spec = mpi_job({});
  spec.roles["launcher"].command = {"echo", "-f=/etc/mpi/hostfile:/etc/mpi/hostfile", "b"};
  TaskView own;
  own.task = {"launcher", 0};
  const auto rendered = render(spec, view_of(spec), own);
  ASSERT_TRUE(rendered);
  std::string line = "cd " + directory + " && DTRAIN_HOSTFILE=hosts DTRAIN_HOSTS=h timeout 10";
  for (const std::string& word : rendered->argv) {
    line += " '";
    for (const char c : word) line += c == '\'' ? "'\\''" : std::string(1, c);
    line += "'";
  }
  std::string said;
  FILE* const program = ::popen(line.c_str(), "r");
  ASSERT_NE(program, nullptr);
  for (int c = ::fgetc(program); c != EOF; c = ::fgetc(program)) said += static_cast<char>(c);
  EXPECT_EQ(::pclose(program), 0) << "it went on for ever";
  EXPECT_EQ(said, "-f=" + directory + "/hosts:" + directory + "/hosts b\n");
  std::filesystem::remove_all(top);
}

TEST(Mpi, HydraWritesSlotsBehindAColonAndTheLauncherMayWork) {
  const JobSpec mpich = mpi_job({{"implementation", "MPICH"}, {"launcherAsWorker", "true"}});
  const Variables env = variables_of(mpich, {"launcher", 0});
  EXPECT_EQ(env.at("DTRAIN_HOSTS"), "launcher-0.j:2\nworker-0.j:2\nworker-1.j:2\n");
  EXPECT_EQ(env.at("HYDRA_LAUNCHER_EXEC"), "dtrain-rsh");
  EXPECT_TRUE(env.contains("HYDRA_HOST_FILE") && !env.contains("OMPI_MCA_plm_rsh_agent"));
  EXPECT_TRUE(variables_of(mpi_job({{"implementation", "Intel"}}), {"launcher", 0}).contains("I_MPI_HYDRA_HOST_FILE"));
}

TEST(Mpi, TheHostfileIsWrittenBeforeTheLaunchersCommand) {
  const JobSpec spec = mpi_job({});
  TaskView own;
  own.task = {"launcher", 0};
  const auto out = render(spec, view_of(spec), own);
  ASSERT_TRUE(out);
  ASSERT_EQ(out->argv.size(), 8u);
  EXPECT_EQ(out->argv[0], "sh");
  EXPECT_EQ((std::vector<std::string>{out->argv.begin() + 4, out->argv.end()}), spec.roles.at("launcher").command);
}

TEST(Mpi, RanksOfTwoTasksOfOneHostShareNoMemory) {
  const JobSpec spec = mpi_job({});
  ClusterView view = view_of(spec);
  view.tasks.at({"worker", 0}).host = view.tasks.at({"launcher", 0}).host = "10.0.0.1";
  view.tasks.at({"worker", 1}).host = "10.0.0.2";
  EXPECT_FALSE(variables_of(spec, view, {"launcher", 0}).contains("OMPI_MCA_btl")) << "the launcher has no ranks";
  EXPECT_EQ(variables_of(mpi_job({{"launcherAsWorker", "true"}}), view, {"launcher", 0}).at("OMPI_MCA_btl"), "^vader");
  view.tasks.at({"worker", 1}).host = "10.0.0.1";
  EXPECT_EQ(variables_of(spec, view, {"launcher", 0}).at("OMPI_MCA_btl"), "^vader");
}

TEST(Mpi, AWorkerNeedsNoCommand) {
  const JobSpec spec = job_of("mpi", "    launcher: {command: [mpirun, a]}\n    worker: {replicas: 2}\n");
  EXPECT_EQ(spec.roles.at("worker").command, (std::vector<std::string>{"sleep", "infinity"}));
  const auto without = error_lines(job_text("    launcher: {replicas: 1}\n    worker: {command: [a]}\n", "", "mpi"));
  ASSERT_EQ(without.size(), 1u);
  EXPECT_NE(without[0].find("spec.roles.launcher.command: is required"), std::string::npos) << without[0];
}

TEST(Mpi, IsRefusedWithoutAWorker) {
  const auto lonely = error_lines(job_text("    launcher: {command: [a]}\n", "", "mpi"));
  ASSERT_EQ(lonely.size(), 1u);
  EXPECT_NE(lonely[0].find("an mpi job needs a worker"), std::string::npos) << lonely[0];
}

TEST(RanksShown, AreThoseOfTheVariables) {
  const std::string roles = "    master: {command: [a]}\n    worker: {replicas: 2, command: [a]}\n";
  const auto first_of = [](const JobSpec& spec) {
    std::map<std::string, std::pair<std::uint32_t, std::uint32_t>> out;
    std::vector<TaskId> tasks;
    for (const auto& entry : view_of(spec).tasks) tasks.push_back(entry.first);
    for (const auto& [task, range] : rank_ranges(spec, tasks)) out[task.text()] = {range.first, range.count};
    return out;
  };
  for (const char* framework : {"xgboost", "lightgbm"}) {
    const JobSpec spec = job_of(framework, roles);
    const auto shown = first_of(spec);
    ASSERT_EQ(shown.size(), 3u) << framework;
    for (const auto& [task, address] : view_of(spec).tasks)
      EXPECT_EQ(std::to_string(shown.at(task.text()).first), variables_of(spec, task).at("RANK")) << framework;
  }
  const JobSpec jax = job_of("jax", "    worker: {replicas: 2, command: [a]}\n");
  EXPECT_EQ(std::to_string(first_of(jax).at("worker-1").first), variables_of(jax, {"worker", 1}).at("JAX_PROCESS_ID"));
  using Shown = std::map<std::string, std::pair<std::uint32_t, std::uint32_t>>;
  EXPECT_EQ(first_of(mpi_job({})), (Shown{{"worker-0", {0, 2}}, {"worker-1", {2, 2}}}));
  EXPECT_EQ(first_of(mpi_job({{"launcherAsWorker", "true"}})), (Shown{{"launcher-0", {0, 2}}, {"worker-0", {2, 2}}, {"worker-1", {4, 2}}}));
  EXPECT_TRUE(first_of(job_of("generic", "    worker: {command: [a]}\n")).empty());
}

// TFRuntime.java and ApplicationMaster.java of TonY.
TEST(Tony, ItsScriptsFindItsVariablesBesideTfConfig) {
  const std::string roles = "    ps: {command: [a]}\n    chief: {command: [a]}\n    worker: {replicas: 2, command: [a]}\n";
  const JobSpec spec = job_of("tensorflow", roles, "  options: {variablesOf: TonY}\n");
  ClusterView view = view_of(spec);
  view.generation = 3;
  Variables env = variables_of(spec, view, {"worker", 1});
  EXPECT_EQ(env.erase("TF_CONFIG"), 1u);
  const Variables expected{
      {"CLUSTER_SPEC", R"({"chief":["10.0.0.1:20000"],"ps":["10.0.0.1:20001"],"worker":["10.0.0.1:20002","10.0.0.1:20003"]})"},
      {"DISTRIBUTED_MODE", "GANG"},
      {"JOB_NAME", "worker"},
      {"TASK_INDEX", "1"},
      {"TASK_NUM", "3"},
      {"SESSION_ID", "2"}};
  EXPECT_EQ(env, expected);
  EXPECT_EQ(variables_of(spec, view, {"chief", 0}).at("IS_CHIEF"), "true");
  EXPECT_FALSE(variables_of(job_of("tensorflow", roles), {"chief", 0}).contains("CLUSTER_SPEC"));
  const auto dynamic = error_lines(job_text(roles, "  options: {variablesOf: TonY}\n  policy: {enableDynamicWorker: true}\n"));
  ASSERT_EQ(dynamic.size(), 1u);
  EXPECT_NE(dynamic[0].find("spec.options.variablesOf: names every task"), std::string::npos) << dynamic[0];
}

TEST(FrameworkOptions, AreThoseOfTheFramework) {
  const auto other = error_lines(job_text(testing::kWorker + "\n", "  options: {serverLabel: a}\n"));
  ASSERT_EQ(other.size(), 1u);
  EXPECT_NE(other[0].find("spec.options.serverLabel: a tensorflow job has no option `serverLabel`; its options are variablesOf"),
            std::string::npos)
      << other[0];
  const auto word = error_lines(job_text(testing::kWorker + "\n", "  options: {rankStarter: me}\n", "pytorch"));
  ASSERT_EQ(word.size(), 1u);
  EXPECT_NE(word[0].find("spec.options.rankStarter: must be command, not `me`"), std::string::npos) << word[0];
}

// The operator tells a replica about a torchrun in its command, whatever the command is: one process a replica, and its nprocPerNode.
TEST(FrameworkOptions, RanksThatTheCommandStarts) {
  const JobSpec spec =
      job_of("pytorch", "    master: {nprocPerNode: 2, command: [sh, -c, x]}\n    worker: {nprocPerNode: 2, command: [sh, -c, x]}\n",
             "  options: {rankStarter: command}\n");
  TaskView own;
  own.task = {"worker", 0};
  const auto out = render(spec, view_of(spec), own);
  ASSERT_TRUE(out);
  EXPECT_TRUE(rank_variables(spec, view_of(spec), own.task).empty());
  for (const auto& [name, value] : Variables{{"RANK", "1"},
                                             {"WORLD_SIZE", "4"},
                                             {"PET_NODE_RANK", "1"},
                                             {"PET_NNODES", "2"},
                                             {"PET_NPROC_PER_NODE", "2"},
                                             {"PET_MASTER_ADDR", "10.0.0.1"},
                                             {"PET_MASTER_PORT", "20000"}})
    EXPECT_EQ(out->env.at(name), value) << name;
  const JobSpec any = job_of("pytorch", "    worker: {command: [x]}\n", "  options: {rankStarter: command}\n");
  EXPECT_EQ(variables_of(any, {"worker", 0}).at("PET_NPROC_PER_NODE"), "auto");
}

TEST(Templates, AVariableOfTheFramework) {
  const JobSpec spec =
      job_of("xgboost", "    worker: {replicas: 2, env: {RANK: mine, A: \"{env:RANK}\"}, command: [\"{env:RANK}\", \"{env:NONE}\"]}\n");
  TaskView own;
  own.task = {"worker", 1};
  const auto out = render(spec, view_of(spec), own);
  ASSERT_TRUE(out);
  EXPECT_EQ(out->argv, (std::vector<std::string>{"1", ""}));
  EXPECT_EQ(out->env.at("A"), "1");
  EXPECT_EQ(out->env.at("RANK"), "mine");
  EXPECT_EQ(wire::needed_version(spec), 3u);
}

TEST(JobSpecs, ARoleMayStartElsewhere) {
  const JobSpec spec = job_of("generic", "    a: {command: [x], workDir: /tmp}\n    b: {command: [x]}\n", "  workDir: sub\n");
  EXPECT_EQ(work_dir_of(spec, "a"), "/tmp");
  EXPECT_EQ(work_dir_of(spec, "b"), "sub");
  const auto out = error_lines(job_text("    a: {command: [x], workDir: ../x}\n", "", "generic"));
  ASSERT_EQ(out.size(), 1u);
  EXPECT_NE(out[0].find("spec.roles.a.workDir: must stay inside the package"), std::string::npos) << out[0];
}

}  // namespace
}  // namespace dtrain::job
