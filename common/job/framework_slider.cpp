#include "common/job/slider.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "common/base/limits.h"
#include "common/job/framework.h"
#include "common/job/quantity.h"
#include "common/job/start_order.h"

namespace dtrain::job {

namespace {

using Kind = YamlNode::Kind;

constexpr std::string_view kAppMaster = "slider-appmaster", kBoard = "tensorboard", kFirstWorker = "chiefworker", kWorker = "worker";
constexpr std::string_view kLabel = "yarn.label";  // the label of hosts in place of YARN's, which has no value
constexpr std::uint64_t kMebibyte = 1 << 20, kMostMebibytes = std::numeric_limits<std::uint32_t>::max();
constexpr std::int64_t kMostCores = kMostCpuMillis / 1000, kMostDays = 3650;

struct Component {
  std::string role;
  RoleSpec spec;
};

const YamlNode* map_in(const YamlNode& tree, std::string_view key) {
  const YamlNode* found = tree.kind == Kind::mapping ? tree.find(key) : nullptr;
  return found != nullptr && found->kind == Kind::mapping ? found : nullptr;
}

// The most generous of all that the file says. A job has one for all its tasks: so it fails no component that Slider would have spared.
struct Threshold {
  std::optional<std::uint32_t> count;  // 0: no limit
  std::optional<Duration> window;
};

void read_threshold(KubeFields& from, Threshold& most) {
  constexpr std::string_view kCount = "yarn.container.failure.threshold", kWindow = "yarn.container.failure.window.";
  const auto span = [&](std::string_view unit) { return from.number(std::string(kWindow) + std::string(unit), 0, kMostDays); };
  const auto days = span("days"), hours = span("hours"), minutes = span("minutes");
  const Duration window = std::chrono::minutes(minutes.value_or(0)) + std::chrono::hours(hours.value_or(0) + 24 * days.value_or(0));
  if (window > Duration::zero()) most.window = std::min(most.window.value_or(window), window);
  const auto given = from.number(kCount, 0, std::numeric_limits<std::uint32_t>::max());
  if (!given) return;
  const auto count = static_cast<std::uint32_t>(*given);
  most.count = count == 0 || most.count == 0 ? 0 : std::max(most.count.value_or(count), count);
  from.notes().ignore(from.path(kCount), "is counted for each task of the job, not for all of a component together");
}

Component read_component(const std::string& name, KubeFields& from, const std::string& default_label, Threshold& most) {
  Component out;
  std::ranges::transform(name, std::back_inserter(out.role),
                         [](unsigned char c) { return c < 0x80 ? static_cast<char>(std::tolower(c)) : '?'; });
  std::erase_if(out.role, [](char c) { return c == '-' || c == '_'; });
  const auto instances = from.number("yarn.component.instances", 1, limits::kTasksPerJob);
  out.spec.replicas = out.spec.min_replicas = static_cast<std::uint32_t>(instances.value_or(1));
  if (const auto memory = from.number("yarn.memory", 1, kMostMebibytes))
    out.spec.resources.memory_bytes = std::uint64_t(*memory) * kMebibyte;
  if (const auto cores = from.number("yarn.vcores", 1, kMostCores)) out.spec.resources.cpu_millis = std::uint64_t(*cores) * 1000;
  from.skip({"yarn.role.priority"});  // a number that tells components apart
  const std::string label = from.text("yarn.label.expression").value_or(default_label);
  if (!label.empty()) {
    out.spec.node_selector[std::string(kLabel)] = label;
    from.notes().ignore(from.path("yarn.label.expression"),
                        "hosts have it as a label in dtraind.yaml: labels: {" + std::string(kLabel) + ": NAME}");
  }
  constexpr std::int64_t kApart = 4;  // the policy's bit for hosts of their own
  if (const auto placed = from.number("yarn.component.placement.policy", 0, std::numeric_limits<std::int32_t>::max());
      placed && (*placed & kApart))
    out.spec.anti_affinity = "host";
  read_threshold(from, most);
  return out;
}

// The flags that the application of TensorFlow gave to its users' scripts.
std::vector<std::string> command_of(KubeFields& app, bool has_checkpoint) {
  const auto site = [&](std::string_view key) { return app.text("site.global." + std::string(key)).value_or(""); };
  const std::string entry = site("user.scripts.entry"), data = site("user.data.dir");
  if (entry.empty()) {
    app.notes().refuse("missing", app.path("site.global.user.scripts.entry"), "is required: the script that each task runs",
                       "give the appConfig.json of an application that runs scripts of TensorFlow");
    return {"false"};
  }
  std::vector<std::string> out{
      "python3", entry, "--ps_hosts={hosts:ps}", "--worker_hosts={hosts:worker}", "--job_name={task.type}", "--task_index={task.index}"};
  if (!data.empty()) out.push_back("--data_dir=" + data);
  if (has_checkpoint) out.push_back("--ckp_dir={checkpoint.dir}");
  if (data.empty()) out.push_back("--work_dir={package.dir}");
  return out;
}

void read_checkpoint_prefix(KubeFields& app, JobSpec& spec) {
  const std::string key = "site.global.user.checkpoint.prefix", dir = app.text(key).value_or("");
  if (dir.empty()) return;
  if (!dir.starts_with('/'))
    return app.notes().refuse("out-of-range", app.path(key), "must be an absolute path that all hosts share, not " + dir,
                              "write checkpoints to a directory that all hosts mount, or leave it out");
  CheckpointSpec& checkpoint = spec.checkpoint.emplace();
  checkpoint.dir = dir;
  app.notes().ignore(app.path(key), "is taken for a directory of the hosts, not of HDFS");
}

// The chief worker was worker 0 of TensorFlow's cluster.
void join_workers(std::vector<Component>& components, KubeNotes& notes, const std::string& path) {
  const auto first = std::ranges::find(components, kFirstWorker, &Component::role);
  if (first == components.end()) return;
  const auto others = std::ranges::find(components, kWorker, &Component::role);
  if (others == components.end()) {
    first->role = kWorker;
    return;
  }
  Resources &mine = others->spec.resources, &its = first->spec.resources;
  if (mine.cpu_millis != its.cpu_millis || mine.memory_bytes != its.memory_bytes)
    notes.ignore(path, "all workers get what the larger of chiefworker and worker has");
  mine.cpu_millis = std::max(mine.cpu_millis, its.cpu_millis);
  mine.memory_bytes = std::max(mine.memory_bytes, its.memory_bytes);
  others->spec.replicas += first->spec.replicas;
  others->spec.min_replicas = others->spec.replicas;
  components.erase(first);
}

}  // namespace

bool is_slider_resources(const YamlNode& tree) {
  const YamlNode* components = map_in(tree, "components");
  return components != nullptr && tree.find("kind") == nullptr && std::ranges::any_of(components->entries, [](const YamlEntry& entry) {
           return entry.value.kind == Kind::mapping && entry.value.find("yarn.component.instances") != nullptr;
         });
}

bool is_slider_app(const YamlNode& tree) {
  const YamlNode* global = map_in(tree, "global");
  return global != nullptr && tree.find("kind") == nullptr && std::ranges::any_of(global->entries, [](const YamlEntry& entry) {
           return entry.key.starts_with("site.global.") || entry.key == "application.def";
         });
}

void read_slider(const YamlNode& resources, const YamlNode* app, KubeNotes& notes, ParsedJob& out) {
  JobSpec& spec = out.spec;
  spec.generate_name = "slider-";
  spec.framework = Framework::tensorflow;
  KubeFields root(&resources, "", notes);
  root.skip({"schema", "metadata"});
  KubeFields global = root.map("global"), all = root.map("components");
  root.rest();
  Threshold most;
  read_threshold(global, most);
  global.rest();
  KubeFields master = all.map(kAppMaster);
  const std::string label = master.text("yarn.label.expression").value_or("");  // the master itself is not needed here
  std::vector<Component> components;
  for (const YamlEntry* entry : all.entries()) {
    if (entry->key == kAppMaster) continue;
    KubeFields from = all.map(entry->key);
    if (entry->key == kBoard) {
      notes.ignore(from.path(), "trains nothing: start TensorBoard on a host, on the directory of checkpoints");
      continue;
    }
    components.push_back(read_component(entry->key, from, label, most));
    from.rest();
  }
  FailureThreshold& threshold = spec.policy.failure_threshold;
  threshold = {most.count.value_or(threshold.count), most.window.value_or(threshold.within)};
  join_workers(components, notes, all.path());
  if (app == nullptr)
    return notes.refuse("missing", "components", "resources.json alone does not say what runs",
                        "give its appConfig.json, too: --app-config FILE");
  KubeFields app_root(app, "", notes);
  app_root.skip({"schema", "metadata", "components"});
  KubeFields says = app_root.map("global");
  app_root.rest();
  read_checkpoint_prefix(says, spec);
  const std::vector<std::string> command = command_of(says, spec.checkpoint.has_value());
  if (says.take("site.global.docker.image") != nullptr) notes.ignore(says.path("site.global.docker.image"), "tasks run on the host");
  notes.ignore(says.path("application.def"), "is not unpacked: write package: DIRECTORY, with the directory that holds the script");
  // Of YARN, of Hadoop, and ports, which dtrain gives to tasks itself.
  says.skip({"application.def"});
  says.rest();
  for (Component& component : components) {
    RoleSpec& role = spec.roles[component.role] = std::move(component.spec);
    role.command = command;
    const RoleRules& rules = role_rules(spec.framework, component.role);
    role.exclusive = rules.exclusive;
    role.avoid_gpu_hosts = rules.avoid_gpu_hosts;
  }
  for (auto& [name, role] : spec.roles) role.start_after = default_start_after(spec, name);
  notes.errors.add_rules(validate(spec));
}

}  // namespace dtrain::job
