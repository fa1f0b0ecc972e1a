// What the tests of Kubeflow's training operator, release 1.9, expect in the environment of a pod, case by case: the same manifest is read,
// and its task is rendered. Names of services are addresses here, and all tasks of a test are on one host with a port each. Where dtrain
// differs, it does so by a rule, and a case that agrees after all fails. docs/frameworks.md has the counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/unit/job/kube_support.h"
#include "tests/unit/job/support.h"

namespace dtrain::job {
namespace {

using namespace testing;  // NOLINT: the helpers of kube_support.h

using Expected = std::map<std::string, std::string>;
constexpr const char* kUnset = "(unset)";

struct Golden {
  std::string kind, name;     // of the test in pkg/controller.v1
  std::string specs, policy;  // replica specs with their replicas ("PS: 1, Worker: 2"), and fields of spec
  TaskId task;
  Expected expected;
  std::string differs = {};  // why; "": it agrees
};

std::string specs_field(const std::string& kind) {
  const std::map<std::string, std::string> fields{{"TFJob", "tfReplicaSpecs"},         {"PyTorchJob", "pytorchReplicaSpecs"},
                                                  {"PaddleJob", "paddleReplicaSpecs"}, {"JAXJob", "jaxReplicaSpecs"},
                                                  {"XGBoostJob", "xgbReplicaSpecs"},   {"MPIJob", "mpiReplicaSpecs"}};
  return fields.at(kind);
}

std::string manifest_of(const Golden& golden) {
  std::string text = "apiVersion: kubeflow.org/v1\nkind: " + golden.kind + "\nmetadata: {name: j}\nspec:\n";
  if (!golden.policy.empty()) text += "  " + golden.policy + "\n";
  text += "  " + specs_field(golden.kind) + ":\n";
  std::istringstream roles(golden.specs);
  for (std::string role, replicas; roles >> role >> replicas;) {
    std::string env;
    if (const auto at = replicas.find('+'); at != std::string::npos) {  // variables that the manifest sets: 1+NAME=VALUE
      std::istringstream variables(replicas.substr(at + 1));
      for (std::string one; std::getline(variables, one, '+');)
        env += (env.empty() ? "" : ", ") + ("{name: " + one.substr(0, one.find('=')) + ", value: " + one.substr(one.find('=') + 1) + "}");
      replicas.resize(at);
    }
    text +=
        "    " + role + " {replicas: " + replicas + ", template: {spec: {containers: [{name: c, command: [a], env: [" + env + "]}]}}}\n";
  }
  return text;
}

const std::string kEvaluators = "evaluators see themselves, the others do not see them: the strategies of TensorFlow 2 would wait for them";
const std::string kNoMistake = "no such mistake is possible";
const std::string kRsh = "in place of kubectl exec there is dtrain-rsh, which stands for ssh";

std::vector<Golden> goldens() {
  const std::string ps = R"({"cluster":{"ps":["10.0.0.1:20000"],"worker":["10.0.0.1:20001"]},"task":{"type":"worker","index":0},)"
                         R"("environment":"cloud"})";
  const std::string evaluator = R"({"cluster":{"evaluator":["10.0.0.1:20000"],"ps":["10.0.0.1:20001"],"worker":["10.0.0.1:20002"]},)"
                                R"("task":{"type":"worker","index":0},"environment":"cloud"})";
  const std::string elastic = "elasticPolicy: {rdzvBackend: c10d, minReplicas: 1, maxReplicas: 3, maxRestarts: 3";
  const TaskId worker{"worker", 0}, master{"master", 0}, launcher{"launcher", 0};
  const std::string intel = "mpiImplementation: Intel", exec = "/etc/mpi/kubexec.sh";
  return {
      // tensorflow/pod_test.go
      {"TFJob", "cluster spec, one worker", "Worker: 1", "", worker, {{"TF_CONFIG", kUnset}}},
      {"TFJob", "cluster spec, one worker, a domain", "Worker: 1", "", worker, {{"TF_CONFIG", kUnset}}},
      {"TFJob", "cluster spec, a worker and a ps", "Worker: 1 PS: 1", "", worker, {{"TF_CONFIG", ps}}},
      {"TFJob",
       "cluster spec, an evaluator, a domain",
       "Worker: 1 PS: 1 Evaluator: 1",
       "",
       worker,
       {{"TF_CONFIG", evaluator}},
       kEvaluators},
      {"TFJob", "cluster spec, an evaluator", "Worker: 1 PS: 1 Evaluator: 1", "", worker, {{"TF_CONFIG", evaluator}}, kEvaluators},
      {"TFJob", "distributed, one worker", "Worker: 1", "", worker, {{"TF_CONFIG", kUnset}}},
      {"TFJob", "distributed, a worker and a ps", "Worker: 1 PS: 1", "", worker, {{"TF_CONFIG", "*"}}},
      {"TFJob",
       "distributed, one ps",
       "PS: 1",
       "",
       {"ps", 0},
       {{"TF_CONFIG", kUnset}},
       "a job of servers alone never ends, and is refused"},
      {"TFJob", "distributed, a chief and a worker", "Chief: 1 Worker: 1", "", worker, {{"TF_CONFIG", "*"}}},
      // tensorflow/tensorflow_test.go
      {"TFJob",
       "sparse, a worker",
       "PS: 2 Worker: 2",
       "enableDynamicWorker: true",
       worker,
       {{"TF_CONFIG", R"({"cluster":{"ps":["10.0.0.1:20000","10.0.0.1:20001"],"worker":{"0":"10.0.0.1:20002"}},)"
                      R"("task":{"type":"worker","index":0}})"}}},
      {"TFJob",
       "sparse, a ps",
       "PS: 2 Worker: 2",
       "enableDynamicWorker: true",
       {"ps", 0},
       {{"TF_CONFIG", R"({"cluster":{"ps":["10.0.0.1:20000"],"worker":{}},"task":{"type":"ps","index":0}})"}},
       "a job of workers without a task is left out: TensorFlow reads the same from both"},
      // pytorch/pytorchjob_controller_test.go, elastic_test.go
      {"PyTorchJob",
       "master and workers",
       "Master: 1 Worker: 2",
       "",
       master,
       {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "20000"}, {"PET_NPROC_PER_NODE", "auto"}}},
      {"PyTorchJob",
       "elastic job",
       "Worker: 1",
       elastic + "}",
       worker,
       {{"PET_RDZV_BACKEND", "c10d"}, {"PET_NNODES", "1:3"}, {"PET_RDZV_ENDPOINT", "10.0.0.1:20000"}, {"PET_MAX_RESTARTS", "3"}}},
      {"PyTorchJob",
       "without elastic policy",
       "Worker: 1",
       "",
       worker,
       {{"PET_RDZV_BACKEND", kUnset}, {"PET_RDZV_ENDPOINT", kUnset}, {"PET_RDZV_ID", kUnset}, {"PET_MAX_RESTARTS", kUnset}}},
      {"PyTorchJob",
       "with elastic policy",
       "Worker: 1",
       elastic + ", rdzvHost: localhost, rdzvPort: 1234, rdzvId: rdzv-id, rdzvConf: [{key: a, value: b}, {key: c, value: d}]}",
       worker,
       {{"PET_MAX_RESTARTS", "3"},
        {"PET_RDZV_BACKEND", "c10d"},
        {"PET_RDZV_ENDPOINT", "localhost:1234"},
        {"PET_RDZV_ID", "rdzv-id"},
        {"PET_RDZV_CONF", "a=b,c=d"},
        {"PET_NNODES", "1:3"}}},
      // paddlepaddle/paddlepaddle_controller_test.go
      {"PaddleJob", "master and workers", "Master: 1 Worker: 2", "", master, {{"PADDLE_MASTER", "10.0.0.1:20000"}}},
      // jax/envvar_test.go
      {"JAXJob",
       "variables",
       "Worker: 1",
       "",
       worker,
       {{"PYTHONUNBUFFERED", "1"},
        {"COORDINATOR_PORT", "20000"},
        {"COORDINATOR_ADDRESS", "10.0.0.1"},
        {"NUM_PROCESSES", "1"},
        {"PROCESS_ID", "0"}}},
      {"JAXJob", "an index that is no number", "Worker: 1", "", worker, {{"PROCESS_ID", "an error"}}, kNoMistake},
      {"JAXJob", "no container port", "Worker: 1", "", worker, {{"COORDINATOR_PORT", "an error"}}, kNoMistake},
      // mpi/mpijob_controller_test.go
      {"MPIJob",
       "Intel MPI",
       "Launcher: 1+X_MPI_HYDRA_BOOTSTRAP=foo Worker: 1",
       intel,
       launcher,
       {{"I_MPI_HYDRA_BOOTSTRAP", "rsh"}, {"I_MPI_HYDRA_BOOTSTRAP_EXEC", exec}},
       kRsh},
      {"MPIJob",
       "Intel MPI, a bootstrap",
       "Launcher: 1+I_MPI_HYDRA_BOOTSTRAP=RSH Worker: 1",
       intel,
       launcher,
       {{"I_MPI_HYDRA_BOOTSTRAP", "RSH"}, {"I_MPI_HYDRA_BOOTSTRAP_EXEC", exec}},
       kRsh},
      {"MPIJob",
       "Intel MPI, a program",
       "Launcher: 1+I_MPI_HYDRA_BOOTSTRAP_EXEC=/script.sh Worker: 1",
       intel,
       launcher,
       {{"I_MPI_HYDRA_BOOTSTRAP", "rsh"}, {"I_MPI_HYDRA_BOOTSTRAP_EXEC", "/script.sh"}},
       kRsh},
      {"MPIJob",
       "Intel MPI, both",
       "Launcher: 1+I_MPI_HYDRA_BOOTSTRAP=RSH+I_MPI_HYDRA_BOOTSTRAP_EXEC=/script.sh Worker: 1",
       intel,
       launcher,
       {{"I_MPI_HYDRA_BOOTSTRAP", "RSH"}, {"I_MPI_HYDRA_BOOTSTRAP_EXEC", "/script.sh"}}},
  };
}

// What is not as expected; "": all is.
std::string difference(const Golden& golden) {
  const JobFile file = read_file(manifest_of(golden));
  if (!file.errors.empty()) return file.errors.front().text();
  const Rendered task = rendered(file.jobs.at(0).spec, golden.task);
  for (const auto& [name, value] : golden.expected) {
    const auto found = task.env.find(name);
    const std::string ours = found == task.env.end() ? kUnset : found->second;
    if (value == "*" ? found == task.env.end() : ours != value) return name + "=" + ours + ", not " + value;
  }
  return "";
}

TEST(OperatorGoldens, AgreeOrDifferByARule) {
  for (const Golden& golden : goldens())
    EXPECT_EQ(difference(golden).empty(), golden.differs.empty()) << golden.kind << ", " << golden.name << ": " << difference(golden);
}

TEST(OperatorGoldens, AreCountedInTheDocumentation) {
  std::ifstream file(std::string(DTRAIN_SOURCE_DIR) + "/docs/frameworks.md");
  std::ostringstream text;
  text << file.rdbuf();
  for (const char* kind : {"TFJob", "PyTorchJob", "PaddleJob", "JAXJob", "MPIJob", "XGBoostJob"}) {
    std::size_t all = 0, agree = 0;
    std::vector<std::string> reasons;
    for (const Golden& golden : goldens()) {
      if (golden.kind != kind) continue;
      ++all;
      if (golden.differs.empty()) ++agree;
      else if (std::ranges::find(reasons, golden.differs) == reasons.end()) reasons.push_back(golden.differs);
    }
    std::string row = "| " + std::string(kind) + " | " + std::to_string(all) + " | " + std::to_string(agree) + " | ";
    for (const std::string& reason : reasons) row += (reason == reasons.front() ? "" : "; ") + reason;
    EXPECT_THAT(text.str(), ::testing::HasSubstr(row + (reasons.empty() ? "|\n" : " |\n")));
  }
}

}  // namespace
}  // namespace dtrain::job
