// TF_CONFIG of random jobs, judged by its readers as TensorFlow has them: ClusterSpec (python/training/server_lib.py),
// TFConfigClusterResolver, multi_worker_util (python/distribute) and Estimator's RunConfig (run_config.py). They are written again here, as
// plainly as they are there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "tests/unit/job/support.h"

namespace dtrain::job {
namespace {

using testing::view_of;
using Json = nlohmann::json;

// ---------------------------------------------------------------- the readers

// A job's tasks by their index: given as a list, or as a map.
using ClusterSpec = std::map<std::string, std::map<std::uint32_t, std::string>>;

struct Resolver {
  ClusterSpec cluster;
  std::string task_type;
  std::uint32_t task_id = 0;
  Json config = Json::object();

  explicit Resolver(const std::optional<std::string>& variable) {
    if (variable) config = Json::parse(*variable);
    const Json jobs = config.value("cluster", Json::object());
    for (const auto& [job, tasks] : jobs.items())
      for (const auto& [index, address] : tasks.items())  // of a list, too
        cluster[job][static_cast<std::uint32_t>(std::stoul(index))] = address.get<std::string>();
    if (!config.contains("task")) return;
    task_type = config["task"]["type"].get<std::string>();
    task_id = config["task"]["index"].get<std::uint32_t>();
  }
  bool has_one_task() const { return cluster.size() == 1 && cluster.begin()->second.size() == 1; }
  std::string task_address() const { return cluster.at(task_type).at(task_id); }
  std::string master() const {
    if (config.contains("session_master")) return config["session_master"];
    if (cluster.empty() || has_one_task()) return "";
    const std::string layer = config.value("rpc_layer", "");
    return (layer.empty() ? "" : layer + "://") + task_address();
  }
  std::size_t count(const std::string& job) const { return cluster.contains(job) ? cluster.at(job).size() : 0; }
};

void require(bool holds, const char* otherwise) {
  if (!holds) throw std::runtime_error(otherwise);
}

// multi_worker_util
void validate_cluster_spec(const Resolver& r) {
  const std::set<std::string> types{"chief", "worker", "evaluator", "ps"};
  require(types.contains(r.task_type), "unrecognized task_type");
  require(r.cluster.contains(r.task_type), "task_type not found in cluster_spec");
  require(r.count("chief") <= 1, "at most one chief");
  require(r.count("evaluator") <= 1, "at most one evaluator");
  require(r.task_id < r.count(r.task_type), "task_id exceeds the maximum");
}
bool is_chief(const Resolver& r) {
  validate_cluster_spec(r);
  if (r.task_type == "chief" || r.task_type == "evaluator") return true;
  return r.count("chief") == 0 && r.task_type == "worker" && r.task_id == 0;
}
std::string collective_leader(const Resolver& r) {
  validate_cluster_spec(r);
  if (r.task_type == "evaluator") return "";
  if (r.count("chief") > 0) return "chief-0";
  require(r.count("worker") > 0, "no worker");
  return "worker-0";
}
std::size_t worker_count(const Resolver& r) {
  validate_cluster_spec(r);
  return r.task_type == "evaluator" ? r.count("evaluator") : r.count("chief") + r.count("worker");
}
std::size_t id_in_cluster(const Resolver& r) {
  validate_cluster_spec(r);
  return r.task_type == "worker" ? r.task_id + r.count("chief") : r.task_id;
}

struct RunConfig {
  bool is_chief = false, in_cluster = false;
  std::string master;
  std::size_t ps = 0, workers = 0, global_id = 0;

  explicit RunConfig(const Resolver& r) {
    const std::string chief = r.cluster.contains("master") ? "master" : "chief";
    require(r.count(chief) > 0, "it must have one chief node");
    require(r.count(chief) == 1, "it must have only one chief node");
    require(!r.task_type.empty(), "task type must be set");
    is_chief = r.task_type == chief;
    require(r.task_type != "evaluator" || chief != "master", "evaluator beside a master is not supported");
    if (r.task_type == "evaluator") return;
    require(r.task_id < r.count(r.task_type), "not a valid task_id");
    in_cluster = true;
    master = r.has_one_task() ? "" : "grpc://" + r.task_address();
    ps = r.count("ps");
    workers = r.count("worker") + r.count(chief);
    std::vector<std::string> order{chief};
    for (const auto& entry : r.cluster)
      if (entry.first != chief && entry.first != "ps") order.push_back(entry.first);
    order.emplace_back("ps");
    for (std::size_t i = 0; order.at(i) != r.task_type; ++i) global_id += r.count(order.at(i));
    global_id += r.task_id;
  }
};

// ---------------------------------------------------------------- random jobs

JobSpec random_job(bool dynamic) {
  const auto below = [](std::uint32_t bound) { return *rc::gen::inRange<std::uint32_t>(0, bound); };
  JobSpec spec;
  spec.framework = Framework::tensorflow;
  const auto add = [&](const char* role, std::uint32_t replicas) {
    if (replicas == 0) return;
    spec.roles[role].replicas = replicas;
    spec.roles[role].command = {"a"};
  };
  const char* leader = std::vector<const char*>{"", "chief", "master"}[below(3)];
  if (*leader != '\0') add(leader, 1);
  add("ps", below(4));
  add("worker", *leader == '\0' ? 1 + below(4) : below(5));
  if (std::string(leader) != "master") add("evaluator", below(3));
  spec.policy.evaluator_in_cluster = std::vector{EvaluatorInCluster::self, EvaluatorInCluster::never, EvaluatorInCluster::always}[below(3)];
  spec.policy.enable_dynamic_worker = dynamic;
  return spec;
}

ClusterView random_places(const JobSpec& spec) {
  ClusterView view = view_of(spec);
  for (auto& [task, address] : view.tasks)
    if (*rc::gen::inRange(0, 4) == 0) address.host = "fd00::" + std::to_string(address.port % 10);
  return view;
}

bool has_two_evaluators(const Resolver& r) { return r.count("evaluator") > 1; }

// Every entry is a task of the job, at its index and address; all tasks are there but evaluators, as the policy says.
void check_whole_cluster(const JobSpec& spec, const ClusterView& view, const Resolver& r) {
  std::size_t entries = 0;
  for (const auto& [job, tasks] : r.cluster)
    for (const auto& [index, address] : tasks) {
      RC_ASSERT(view.tasks.contains({job, index}));
      RC_ASSERT(view.tasks.at({job, index}).text() == address);
      ++entries;
    }
  const auto sees = spec.policy.evaluator_in_cluster;
  const bool evaluators = sees == EvaluatorInCluster::always || (sees == EvaluatorInCluster::self && r.task_type == "evaluator");
  std::size_t wanted = 0;
  for (const auto& entry : view.tasks) wanted += entry.first.role != "evaluator" || evaluators ? 1 : 0;
  RC_ASSERT(entries == wanted);
}

RC_GTEST_PROP(TfConfigReaders, UnderstandEveryTaskOfEveryJob, ()) {
  const JobSpec spec = random_job(false);
  const ClusterView view = random_places(spec);
  const std::string leader = spec.roles.contains("master") ? "master" : spec.roles.contains("chief") ? "chief" : "";
  std::set<std::size_t> global_ids, ids;
  std::size_t chiefs = 0, trainers = 0, others = 0;
  for (const auto& [task, address] : view.tasks) {
    const Resolver r(tf_config(spec, view, task));
    if (view.tasks.size() == 1) {
      RC_ASSERT(r.config.empty());
      RC_ASSERT(r.master() == "");
      return;
    }
    RC_ASSERT(r.task_type == task.role);
    RC_ASSERT(r.task_id == task.index);
    RC_ASSERT(r.config.at("environment") == "cloud");
    RC_ASSERT(!r.config.contains("rpc_layer") && !r.config.contains("session_master"));
    check_whole_cluster(spec, view, r);
    const bool evaluates = task.role == "evaluator";
    if (!evaluates || r.count("evaluator") > 0) {
      RC_ASSERT(r.task_address() == address.text());
      RC_ASSERT(r.master() == (r.has_one_task() ? "" : address.text()));
    }
    if (!leader.empty()) {
      const RunConfig config(r);
      RC_ASSERT(config.is_chief == (task.role == leader));
      RC_ASSERT(config.in_cluster == !evaluates);
      if (evaluates) continue;
      ++others;
      RC_ASSERT(config.ps == (spec.roles.contains("ps") ? spec.roles.at("ps").replicas : 0u));
      RC_ASSERT(config.workers == (spec.roles.contains("worker") ? spec.roles.at("worker").replicas : 0u) + 1);
      RC_ASSERT(config.master == (r.has_one_task() ? "" : "grpc://" + address.text()));
      RC_ASSERT((config.global_id == 0) == config.is_chief);
      global_ids.insert(config.global_id);
    }
    // The strategies of TensorFlow 2 know no master, and one evaluator.
    if (leader == "master" || has_two_evaluators(r) || (evaluates && r.count("evaluator") == 0)) continue;
    chiefs += is_chief(r) && !evaluates ? 1 : 0;
    if (evaluates) {
      RC_ASSERT(collective_leader(r).empty());
      RC_ASSERT(worker_count(r) == 1u);
      continue;
    }
    RC_ASSERT(collective_leader(r) == deciding_task(spec)->text());
    if (task.role == "ps") continue;
    ++trainers;
    ids.insert(id_in_cluster(r));
    RC_ASSERT(id_in_cluster(r) < worker_count(r));
  }
  RC_ASSERT(global_ids.size() == others);
  RC_ASSERT(ids.size() == trainers);
  if (trainers > 0) RC_ASSERT(chiefs == 1u);
}

RC_GTEST_PROP(TfConfigReaders, AWorkerThatComesAndGoesIsToldOfItselfAndAllServers, ()) {
  const JobSpec spec = random_job(true);
  const ClusterView view = random_places(spec);
  for (const auto& [task, address] : view.tasks) {
    const auto variable = tf_config(spec, view, task);
    RC_ASSERT(variable.has_value() == (view.tasks.size() > 1u));
    if (!variable) return;
    const Resolver r(variable);
    RC_ASSERT(r.task_type == task.role);
    RC_ASSERT(r.task_id == task.index);
    if (task.role != "worker" && task.role != "ps") {
      check_whole_cluster(spec, view, r);
      continue;
    }
    RC_ASSERT(r.task_address() == address.text());
    ClusterSpec wanted;
    wanted[task.role][task.index] = address.text();
    for (const auto& [other, of_other] : view.tasks)
      if (task.role == "worker" && other.role == "ps") wanted["ps"][other.index] = of_other.text();
    if (task.role == "worker") wanted.try_emplace("ps");
    ClusterSpec seen = r.cluster;
    if (task.role == "worker") seen.try_emplace("ps");  // a list without entries is no job
    RC_ASSERT(seen == wanted);
    ClusterView more = view;
    more.tasks[{"worker", 100}] = {"10.0.0.9", 9};
    RC_ASSERT(tf_config(spec, more, task) == variable);
  }
}

TEST(TfConfigReaders, TwoEvaluatorsAreWarnedOf) {
  const auto warnings_of = [](const std::string& replicas, const std::string& policy) {
    return testing::parse(testing::job_text("    chief: {command: [a]}\n    evaluator: {replicas: " + replicas + ", command: [a]}\n",
                                            "  policy: {" + policy + "}"))
        .warnings;
  };
  EXPECT_THAT(warnings_of("2", ""), ::testing::ElementsAre(::testing::HasSubstr("spec.roles.evaluator: TensorFlow's strategies take one")));
  EXPECT_THAT(warnings_of("1", ""), ::testing::IsEmpty());
  EXPECT_THAT(warnings_of("2", "evaluatorInCluster: never"), ::testing::IsEmpty());
}

}  // namespace
}  // namespace dtrain::job
