// The replica specs of a manifest as roles: a map by name, or the list of the first versions.
#include <algorithm>
#include <limits>

#include "common/base/limits.h"
#include "common/job/framework.h"
#include "common/job/kube_job.h"
#include "common/job/manifest_fields.h"
#include "common/job/names.h"
#include "common/job/start_order.h"
#include "common/job/text.h"

namespace dtrain::job {

namespace {

constexpr auto kGraceUnlessSaid = std::chrono::seconds(30);  // of Kubernetes, and of dtrain

bool same_word(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

const KindRole* known_role(const ManifestKind& kind, const std::string& word, const std::string& path, KubeNotes& notes) {
  const auto found = std::ranges::find_if(kind.roles, [&](const KindRole& role) { return same_word(role.spelled, word); });
  if (found != kind.roles.end()) return &*found;
  std::vector<std::string> known;
  for (const KindRole& role : kind.roles) known.emplace_back(role.spelled);
  notes.refuse("out-of-range", path, "a " + std::string(kind.kind) + " has no role " + in_quotes(word),
               "its roles are " + one_of(known, "and"));
  return nullptr;
}

void read_replica(KubeFields replica, const ManifestKind& kind, const KindRole& rules, KubeJob& job) {
  const std::string name(rules.role);
  if (job.spec.roles.contains(name))
    return job.notes.refuse("conflict", replica.path(), "role " + name + " is given twice", "remove one of them");
  const auto replicas = replica.number("replicas", 0, limits::kTasksPerJob).value_or(1);
  const auto restart = replica.text("restartPolicy");
  if (replicas == 0) return;  // as in Kubernetes: the role has no tasks
  RoleSpec& role = job.spec.roles[name];
  job.roles[name].path = replica.path();
  if (rules.idle) job.idle.insert(name);
  role.replicas = role.min_replicas = static_cast<std::uint32_t>(replicas);
  role.restart_policy = job.pod_restarts && !kind.replica_specs.empty() ? RestartPolicy::on_failure : rules.restart;
  role.avoid_gpu_hosts = role_rules(kind.framework, name).avoid_gpu_hosts;
  role.exclusive = is_exclusive_role(kind.framework, name);
  if (restart && !restart->empty()) {
    if (const auto policy = from_word<RestartPolicy>(*restart)) role.restart_policy = *policy;
    else
      job.notes.refuse("out-of-range", replica.path("restartPolicy"),
                       "must be " + one_of(all_words<RestartPolicy>()) + ", not " + in_quotes(*restart), "choose one of them");
  }
  kind.own_of_role(replica, name, job);
  read_pod_template(replica.take("template"), replica.path("template"), name, job);
  replica.rest();
}

// v1alpha1 of Kubeflow's and of TensorFlow's own group: a list, with the type in each item.
void read_list(KubeFields& spec, const ManifestKind& kind, KubeJob& job) {
  job.pod_restarts = true;
  const auto items = spec.list("replicaSpecs");
  for (std::size_t i = 0; i < items.size(); ++i) {
    KubeFields replica(items[i], item_path(spec.path("replicaSpecs"), i), job.notes);
    replica.skip({"tfPort", "IsDefaultPS"});
    std::string type = "MASTER";
    for (const std::string_view key : {"tfReplicaType", "replicaType", "ReplicaType"}) type = replica.text(key).value_or(type);
    if (const KindRole* rules = known_role(kind, type, replica.path("tfReplicaType"), job.notes)) read_replica(replica, kind, *rules, job);
  }
  spec.skip({"RuntimeId", "tfImage"});  // an id of that operator's; the image of its own parameter server
  KubeFields chief = spec.map("terminationPolicy").map("chief");
  const std::string name = chief.text("replicaName").value_or(""), index = chief.text("replicaIndex").value_or("0");
  const auto decides = deciding_task(job.spec);
  if (!name.empty() && (!decides || !same_word(decides->role, name) || index != std::to_string(decides->index)))
    job.notes.ignore(chief.path(), "the end of " + (decides ? decides->text() : "all tasks") + " decides");
}

}  // namespace

void read_replica_job(KubeFields& spec, const ManifestKind& kind, KubeJob& job) {
  job.spec.framework = kind.framework;
  job.spec.policy.clean_pod_policy = CleanPodPolicy::none;
  job.else_first = kind.else_first;
  if (const YamlNode* main = spec.take("mainContainer")) job.container_name = main->text;  // KubeDL's
  if (kind.older(spec, job)) {
    // It has read all roles.
  } else if (kind.replica_specs.empty()) {
    job.pod_restarts = true;
    for (const KindRole& rules : kind.roles)
      if (spec.take(rules.spelled) != nullptr) read_replica(spec.map(rules.spelled), kind, rules, job);
  } else if (spec.take("replicaSpecs") != nullptr) {
    read_list(spec, kind, job);
  } else {
    KubeFields replicas = spec.map(kind.replica_specs);
    for (const YamlEntry* entry : replicas.entries()) {
      const std::string at = replicas.path(entry->key);
      if (const KindRole* rules = known_role(kind, entry->key, at, job.notes))
        read_replica(KubeFields(&entry->value, at, job.notes), kind, *rules, job);
    }
    if (replicas.entries().empty())
      job.notes.refuse("missing", replicas.path(), "is required: the roles of a " + std::string(kind.kind),
                       "give at least one, with a template");
  }
  kind.own(spec, job);
}

void add_waiting_role(const std::string& main, const std::string& other, KubeJob& job) {
  job.spec.roles[other] = job.spec.roles[main];
  KubeRole& waits = job.roles[other] = job.roles[main];
  waits.words.clear();
  for (const std::string& word : waiting_command()) waits.words.push_back({"", "", word});
}

void finish_roles(KubeJob& job) {
  for (auto& [name, role] : job.spec.roles) role.start_after = default_start_after(job.spec, name);
  Duration longest{0};
  const auto grace_of = [&](const std::string& role) {
    const auto found = job.graces.find(role);
    return found == job.graces.end() ? Duration(kGraceUnlessSaid) : found->second.first;
  };
  for (const auto& entry : job.spec.roles) longest = std::max(longest, grace_of(entry.first));
  if (!job.spec.roles.empty()) job.spec.policy.stop_grace_period = longest;
  for (const auto& [role, grace] : job.graces)
    if (grace.first != longest)
      job.notes.ignore(grace.second, "all tasks of a job have the same time to end: the longest, " + std::to_string(longest / 1s) + " s");
  // The manifest's own limit counts, which other programs know no other beside.
  if (job.spec.policy.backoff_limit) job.spec.policy.failure_threshold.count = 0;
}

}  // namespace dtrain::job
