// The pod templates of a manifest: of several containers one is the task, and the others are named.
#include <algorithm>
#include <array>
#include <limits>

#include "common/job/container_engine.h"
#include "common/job/framework.h"
#include "common/job/kube_job.h"
#include "common/job/manifest.h"
#include "common/job/names.h"
#include "common/job/quantity.h"
#include "common/job/text.h"

namespace dtrain::job {

namespace {

constexpr std::int64_t kMostGpusOfTask = 1024;  // of one task
constexpr std::array<std::string_view, 2> kGpuNames{"nvidia.com/gpu", "amd.com/gpu"};

// What fieldRef and metadata.labels of Kubeflow's operators stand for.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kFieldPaths{{
    {"status.podIP", "{task.host}"},
    {"status.podIPs", "{task.host}"},
    {"status.hostIP", "{task.host}"},
    {"status.hostIPs", "{task.host}"},
    {"spec.nodeName", "{env:DTRAIN_NODE}"},
    {"metadata.name", "{job.name}-{task.type}-{task.index}"},
}};
// Labels and annotations that operators give to pods, by their ends: what stands before them differs among versions.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kLabelEnds{{
    {"job-name']", "{job.name}"},
    {"replica-type']", "{task.type}"},
    {"replica-index']", "{task.index}"},
    {"job-completion-index']", "{task.index}"},
}};

// A template, or "": it has no meaning here.
std::string_view meaning_of(std::string_view field_path) {
  const auto known = std::ranges::find(kFieldPaths, field_path, [](const auto& entry) { return entry.first; });
  if (known != kFieldPaths.end()) return known->second;
  if (!field_path.starts_with("metadata.labels['") && !field_path.starts_with("metadata.annotations['")) return {};
  const auto label = std::ranges::find_if(kLabelEnds, [&](const auto& entry) { return field_path.ends_with(entry.first); });
  return label == kLabelEnds.end() ? std::string_view() : label->second;
}

// A quantity of the container's own resources, as Kubernetes rounds it: up, to a multiple of the divisor.
void read_resource(KubeFields from, KubeFields container, KubeText variable, KubeRole& role, KubeJob& job) {
  const std::string wanted = from.text("resource").value_or(""), divisor = from.text("divisor").value_or("0");
  const std::string of = from.text("containerName").value_or("");
  const std::size_t dot = wanted.find('.');
  const std::string word = wanted.substr(dot == std::string::npos ? wanted.size() : dot + 1);
  const auto parse = word == "cpu" ? parse_cpus : word == "memory" ? parse_memory : nullptr;
  std::optional<std::uint64_t> amount;
  if (parse != nullptr && (of.empty() || of == container.text("name").value_or(""))) {
    KubeFields resources = container.map("resources");
    auto text = resources.map(wanted.substr(0, dot)).text(word);
    if (!text && wanted.starts_with("requests.")) text = resources.map("limits").text(word);
    const auto whole = parse(text.value_or(""));
    const auto part = parse(divisor == "0" ? "1" : divisor);
    if (whole && part && *part > 0) amount = *whole / *part + (*whole % *part > 0 ? 1 : 0);
  }
  from.rest();
  if (!amount)
    return job.notes.refuse("unsupported", from.path("resource"), in_quotes(wanted) + " is no amount that the container gives",
                            "write limits.cpu or another amount of its resources, or the value");
  variable.text = std::to_string(*amount);
  role.variables.push_back(std::move(variable));
}

void read_value_from(KubeFields from, const KubeFields& container, const KubeText& variable, KubeRole& role, KubeJob& job) {
  if (KubeFields field = from.map("fieldRef"); const auto field_path = field.text("fieldPath")) {
    field.skip({"apiVersion"});
    KubeText out = variable;
    if (const auto own = role.of_pod.find(*field_path); own != role.of_pod.end()) out.text = own->second;
    else if (const std::string_view known = meaning_of(*field_path); !known.empty()) out.template_text = known;
    else if (*field_path == "metadata.namespace") out.text = job.name_space;
    else
      return job.notes.refuse("unsupported", field.path("fieldPath"), in_quotes(*field_path) + " has no meaning here",
                              "write the value, or one of status.podIP, spec.nodeName, metadata.name and metadata.namespace");
    role.variables.push_back(std::move(out));
    return field.rest();
  }
  for (const auto& [key, word] : {std::pair("secretKeyRef", "secret"), std::pair("configMapKeyRef", "configMap")})
    if (from.take(key) != nullptr) return read_key(from.map(key), word, variable, role, job);
  if (from.take("resourceFieldRef") != nullptr) return read_resource(from.map("resourceFieldRef"), container, variable, role, job);
  job.notes.refuse("unsupported", from.path(),
                   "this version takes values from fieldRef, resourceFieldRef, secretKeyRef and configMapKeyRef only", "write it as value");
}

std::optional<std::uint64_t> amount(KubeFields& fields, std::string_view key, Result<std::uint64_t> (*parse)(std::string_view)) {
  const auto text = fields.text(key);
  if (!text) return std::nullopt;
  const auto value = parse(*text);
  if (value) return *value;
  fields.notes().refuse("wrong-type", fields.path(key), value.error().message, "write a quantity of Kubernetes");
  return std::nullopt;
}

void read_gpus(KubeFields& limits, KubeFields& requests, RoleSpec& role) {
  role.resources.gpus = 0;
  for (const std::string_view name : kGpuNames) {
    const auto of_limits = limits.number(name, 0, kMostGpusOfTask), of_requests = requests.number(name, 0, kMostGpusOfTask);
    role.resources.gpus += static_cast<std::uint32_t>(of_limits.value_or(of_requests.value_or(0)));
  }
}

// Resources that only Kubernetes can give, once for both of their places.
void name_other_resources(const KubeFields& first, const KubeFields& second, KubeNotes& notes) {
  std::set<std::string> named;
  for (const KubeFields* fields : {&first, &second})
    for (const YamlEntry* entry : fields->entries()) {
      const bool known = entry->key == "cpu" || entry->key == "memory" || std::ranges::count(kGpuNames, entry->key) > 0;
      if (!known && named.insert(entry->key).second)
        notes.ignore(fields->path(entry->key),
                     "dtrain reserves cpu, memory, nvidia.com/gpu and amd.com/gpu: tasks share this with all others");
    }
}

const YamlNode* task_container(KubeFields& pod, KubeJob& job, std::string& path) {
  const auto containers = pod.list("containers");
  const std::string at = pod.path("containers");
  std::size_t chosen = 0;
  if (containers.empty()) {
    job.notes.refuse("missing", at, "is required: what the task runs", "give one container with a command");
    return nullptr;
  }
  if (containers.size() > 1) {
    const auto named = [&](const YamlNode* node) {
      const YamlNode* name = node->find("name");
      return name != nullptr && name->text == job.container_name;
    };
    const auto found = std::ranges::find_if(containers, named);
    if (found == containers.end() && !job.else_first) {
      job.notes.refuse("conflict", at, "has several containers, and none is called " + std::string(job.container_name),
                       "call the one that trains " + std::string(job.container_name));
      return nullptr;
    }
    if (found != containers.end()) chosen = static_cast<std::size_t>(found - containers.begin());
  }
  for (std::size_t i = 0; i < containers.size(); ++i)
    if (i != chosen)
      job.notes.ignore(item_path(at, i), "is not started: each task runs one command; a role of its own can do what it does");
  path = item_path(at, chosen);
  return containers[chosen];
}

// The two agree where the operator would write the pod's itself.
void compare_restart_policies(KubeFields& pod, RoleSpec& role, const KubeJob& job) {
  const auto of_pod = pod.text("restartPolicy");
  if (!of_pod) return;
  const auto policy = from_word<RestartPolicy>(*of_pod);
  if (!policy)
    return job.notes.refuse("out-of-range", pod.path("restartPolicy"),
                            "must be " + one_of(all_words<RestartPolicy>()) + ", not " + in_quotes(*of_pod), "choose one of them");
  if (job.pod_restarts) role.restart_policy = *policy;
  else if (*policy != role.restart_policy && !(role.restart_policy == RestartPolicy::exit_code && *policy == RestartPolicy::never))
    job.notes.ignore(pod.path("restartPolicy"), "the role's restartPolicy decides, which is " + std::string(word_for(role.restart_policy)));
}

}  // namespace

void add_once(std::vector<std::string>& paths, const std::string& path) {
  if (std::ranges::find(paths, path) == paths.end()) paths.push_back(path);
}

void read_kube_resources(KubeFields resources, RoleSpec& role, KubeNotes& notes) {
  KubeFields requests = resources.map("requests"), limits = resources.map("limits");
  resources.rest();
  const auto wanted = amount(requests, "cpu", parse_cpus), most = amount(limits, "cpu", parse_cpus);
  role.resources.cpu_millis = wanted.value_or(most.value_or(0));
  const auto reserved = amount(requests, "memory", parse_memory), limit = amount(limits, "memory", parse_memory);
  role.resources.memory_bytes = limit.value_or(0);
  if (reserved && !limit)
    notes.ignore(requests.path("memory"), "is not reserved: memory of a dtrain job is a limit too, and the manifest sets none");
  read_gpus(limits, requests, role);
  name_other_resources(limits, requests, notes);
}

void read_variables(KubeFields& fields, KubeRole& out, KubeJob& job) {
  const auto variables = fields.list("env");
  for (std::size_t i = 0; i < variables.size(); ++i) {
    KubeFields variable(variables[i], item_path(fields.path("env"), i), job.notes);
    const auto name = variable.text("name");
    if (!name || name->empty()) {
      job.notes.refuse("missing", variable.path("name"), "is required: the name of the variable", "give name and value");
      continue;
    }
    KubeText text{variable.path("value"), *name, variable.text("value").value_or("")};
    if (variable.take("valueFrom") != nullptr) read_value_from(variable.map("valueFrom"), fields, text, out, job);
    else out.variables.push_back(std::move(text));
    variable.rest();
  }
  read_env_from(fields, out, job);
}

void read_words(KubeFields& fields, KubeRole& out, bool idle, KubeJob& job) {
  for (const std::string_view key : {"command", "args"}) {
    const auto words = fields.list(key);
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::string at = item_path(fields.path(key), i);
      if (words[i]->kind != YamlNode::Kind::scalar)
        job.notes.refuse("wrong-type", at, "must be text", "write \"\" for empty text, and quotes around a number");
      out.words.push_back({at, "", words[i]->text});
    }
    if (key != "command" || !words.empty() || idle) continue;
    job.notes.refuse("missing", fields.path(), "has no command, and the entry point of an image is not known on a host",
                     "write the program and its arguments as command");
  }
}

void read_command(KubeFields& fields, const std::string& role, KubeJob& job) {
  KubeRole& out = job.roles[role];
  read_words(fields, out, job.idle.contains(role), job);
  // Nothing has to be started there for the others: dtrain-rsh stands for the SSH server.
  if (job.idle.contains(role) && !out.words.empty() && out.words.front().text.ends_with("sshd")) out.words.clear();
  if (job.idle.contains(role) && out.words.empty())
    for (const std::string& word : waiting_command()) out.words.push_back({"", "", word});
  if (const auto directory = fields.text("workingDir")) job.spec.roles[role].work_dir = *directory;
  if (const auto image = fields.text("image"); image && !image->empty()) {
    job.spec.roles[role].image = *image;
    if (job.settings.image_fallback)
      job.notes.ignore(fields.path("image"), "on a host without " + engine_names() +
                                                 " the command runs on the host itself, which must have what " + in_quotes(*image) +
                                                 " holds");
  }
  fields.skip({"imagePullPolicy"});
  read_variables(fields, out, job);
}

void read_pod_fields(KubeFields& pod, const std::string& role, KubeJob& job) {
  RoleSpec& out = job.spec.roles[role];
  pod.skip({"hostNetwork", "dnsPolicy", "imagePullSecrets"});
  read_places(pod, out, job.notes);
  if (const auto name = pod.text("priorityClassName")) read_priority_class(pod.path("priorityClassName"), *name, job);
  constexpr std::int64_t kMostSeconds = std::numeric_limits<std::int32_t>::max();
  if (const auto grace = pod.number("terminationGracePeriodSeconds", 0, kMostSeconds))
    job.graces[role] = {std::chrono::seconds(*grace), pod.path("terminationGracePeriodSeconds")};
  if (const auto seconds = pod.number("activeDeadlineSeconds", 1, kMostSeconds)) out.run_timeout = std::chrono::seconds(*seconds);
  read_init_containers(pod, role, job);
}

void read_pod_template(const YamlNode* node, const std::string& path, const std::string& role, KubeJob& job) {
  KubeFields pod_template(node, path, job.notes);
  pod_template.skip({"apiVersion", "kind"});
  KubeFields metadata = pod_template.map("metadata");
  for (const std::string_view key : {"labels", "annotations"}) {
    KubeFields named = metadata.map(key);
    for (const YamlEntry* entry : named.entries())
      if (entry->value.kind == YamlNode::Kind::scalar)
        job.roles[role].of_pod["metadata." + std::string(key) + "['" + entry->key + "']"] = entry->value.text;
  }
  KubeFields pod = pod_template.map("spec");
  pod_template.rest();
  if (node == nullptr || pod_template.take("spec") == nullptr)
    return job.notes.refuse("missing", path, "is required: what the tasks of this role run",
                            "give template.spec.containers with a command");
  compare_restart_policies(pod, job.spec.roles[role], job);
  read_pod_fields(pod, role, job);
  std::string at;
  const YamlNode* container = task_container(pod, job, at);
  if (container != nullptr) {
    KubeFields fields(container, at, job.notes);
    job.roles[role].container = at;
    fields.skip({"name", "ports"});
    read_command(fields, role, job);
    const bool own = fields.take("resources") != nullptr && !asks_for_nothing(*fields.take("resources"));
    read_kube_resources(own ? fields.map("resources") : pod.map("resources"), job.spec.roles[role], job.notes);
    read_mounts(&fields, pod, job);
    fields.rest();
  }
  pod.skip({"volumes"});
  pod.rest();
}

}  // namespace dtrain::job
