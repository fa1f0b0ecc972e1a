#include <algorithm>

#include "common/base/limits.h"
#include "common/job/framework.h"
#include "common/job/manifest_fields.h"
#include "common/job/quantity.h"
#include "common/job/text.h"
#include "common/job/warm.h"

namespace dtrain::job {

namespace {

using Kind = YamlNode::Kind;
constexpr std::int64_t kMostGpus = 1024;  // of one task

void read_resources(const YamlNode& node, const std::string& path, FileErrors& report, Resources& out) {
  MapReader map(node, path, report);
  map.parsed("cpus", out.cpu_millis, parse_cpus);
  map.parsed("memory", out.memory_bytes, parse_memory);
  map.number("gpus", out.gpus, 0, kMostGpus);
  map.text("gpuModel", out.gpu_model);
  map.done();
}

void read_start_after(MapReader& role, const YamlNode& node, std::map<std::string, StartAfter>& out, FileErrors& report) {
  const std::string path = role.path("startAfter");
  if (node.kind != Kind::mapping) {
    report.add("wrong-type", path, "must be a map such as {chief: Ready}, not " + std::string(kind_name(node)));
    return;
  }
  for (const auto& entry : node.entries) {
    const std::string at = join_path(path, entry.key);
    StartAfter reached{};
    if (role.is_text(entry.value, at) && role.word_of(entry.value, at, reached)) out[entry.key] = reached;
  }
}

// A number of ranks, or one for each GPU or CPU of the task. auto: for each GPU, on a task without GPUs for each CPU, else one.
void read_nproc(MapReader& role, const YamlNode& node, const Resources& resources, FileErrors& report, std::uint32_t& out) {
  constexpr std::string_view kGpu = "gpu", kCpu = "cpu", kAuto = "auto";
  constexpr std::uint64_t kWholeCpu = 1000;
  const std::string path = role.path("nprocPerNode");
  const auto cpus = static_cast<std::uint32_t>(std::min<std::uint64_t>(resources.cpu_millis / kWholeCpu, limits::kRanksPerTask));
  const bool word = node.kind == Kind::scalar && (node.text == kGpu || node.text == kCpu || node.text == kAuto);
  if (!word) {
    std::int64_t count = 0;
    if (node.kind != Kind::scalar || node.text.find_first_not_of("0123456789") != std::string::npos || node.text.empty())
      return report.add("wrong-type", path, "must be the number of ranks of each task, or gpu, cpu or auto",
                        "gpu means one rank for each of the task's GPUs (resources.gpus)");
    if (read_whole_number(node, path, 1, limits::kRanksPerTask, report, count)) out = static_cast<std::uint32_t>(count);
    return;
  }
  if (node.text == kGpu && resources.gpus == 0)
    return report.add("conflict", path, "asks for one rank for each GPU, but the task has none", "set resources.gpus");
  if (node.text == kCpu && cpus == 0)
    return report.add("conflict", path, "asks for one rank for each CPU, but the task has no whole one of its own", "set resources.cpus");
  const std::uint32_t of_gpus = node.text == kCpu ? 0 : resources.gpus;
  out = std::max(of_gpus > 0 ? of_gpus : cpus, 1u);
}

// auto, none, or the modules that a standby imports.
void read_warm(MapReader& role, const YamlNode& node, FileErrors& report, std::vector<std::string>& out) {
  const std::string path = role.path("warm");
  if (node.kind == Kind::sequence) {
    role.texts("warm", out);
    if (out.empty()) report.add("out-of-range", path, "must name a module", "use none for no standby");
    if (out.size() > limits::kWarmModules)
      report.add("limit", path, "must have at most " + std::to_string(limits::kWarmModules) + " modules");
    for (std::size_t i = 0; i < out.size(); ++i)
      if (!is_module_name(out[i]) || out[i] == kWarmAuto || out[i] == kWarmNone)
        report.add("out-of-range", item_path(path, i), "must be the name of a Python module, not " + in_quotes(out[i]),
                   "auto and none stand alone: warm: auto");
    return;
  }
  if (node.kind != Kind::scalar || (node.text != kWarmAuto && node.text != kWarmNone))
    return report.add("wrong-type", path, "must be auto, none, or a list of modules such as [torch, numpy]");
  out = {node.text};
}

void read_retry_codes(MapReader& role, FileErrors& report, std::vector<ExitCodes>& out) {
  std::vector<std::string> texts;
  role.texts("retryExitCodes", texts);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto codes = parse_range(texts[i]);
    if (codes) out.push_back({codes->first, codes->second});
    else report.add("wrong-type", item_path(role.path("retryExitCodes"), i), codes.error().message);
  }
}

// By index or range of indices: what these tasks have of their own.
void read_overrides(const YamlNode& node, const std::string& path, std::uint32_t replicas, FileErrors& report,
                    std::vector<RoleOverride>& out) {
  if (node.kind != Kind::mapping)
    return report.add("wrong-type", path,
                      "must be a map such as {0: {env: {A: b}}, 2-5: {command: [...]}}, not " + std::string(kind_name(node)));
  for (const YamlEntry& entry : node.entries) {
    const std::string at = join_path(path, entry.key);
    const auto indices = parse_range(entry.key);
    if (!indices) {
      report.add("wrong-type", at, indices.error().message, "the key is the index of a task, or a range of them");
      continue;
    }
    // A job that is scaled down may keep those of tasks that it has no more.
    if (indices->second >= replicas)
      report.add("out-of-range", at, "names a task that the role does not have: its indices are 0 to " + std::to_string(replicas - 1));
    RoleOverride& differs = out.emplace_back(RoleOverride{indices->first, indices->second, {}, {}});
    MapReader map(entry.value, at, report);
    map.texts("command", differs.command);
    map.text_map("env", differs.env);
    map.done();
  }
}

}  // namespace

bool is_exclusive_role(Framework framework, std::string_view role) { return role_rules(framework, role).exclusive; }

void read_role(const YamlNode& node, const std::string& path, const std::string& name, Framework framework, FileErrors& report,
               RoleSpec& out, bool& has_start_after) {
  MapReader map(node, path, report);
  map.number("replicas", out.replicas, 1, limits::kTasksPerJob);
  out.min_replicas = out.replicas;
  map.number("minReplicas", out.min_replicas, 1, limits::kTasksPerJob);
  map.texts("command", out.command);
  if (out.command.empty() && role_rules(framework, name).waits) out.command = waiting_command();
  map.text_map("env", out.env);
  map.text("workDir", out.work_dir);
  map.text("image", out.image);
  if (const YamlNode* resources = map.node("resources")) read_resources(*resources, map.path("resources"), report, out.resources);
  map.text_map("nodeSelector", out.node_selector);
  map.text("antiAffinity", out.anti_affinity);
  out.avoid_gpu_hosts = role_rules(framework, name).avoid_gpu_hosts;
  map.word("avoidGpuHosts", out.avoid_gpu_hosts);
  map.word("restartPolicy", out.restart_policy);
  const YamlNode* start_after = map.node("startAfter");
  has_start_after = start_after != nullptr;
  if (start_after) read_start_after(map, *start_after, out.start_after, report);
  map.word("onDisconnect", out.on_disconnect);
  out.exclusive = is_exclusive_role(framework, name);
  map.boolean("exclusive", out.exclusive);
  map.boolean("notify", out.notify);
  map.duration("watchdog", out.watchdog);
  map.signal("stopSignal", out.stop_signal);
  map.word("signalTo", out.signal_to);
  map.duration("startTimeout", out.start_timeout);
  map.duration("runTimeout", out.run_timeout);
  read_retry_codes(map, report, out.retry_codes);
  if (const YamlNode* overrides = map.node("overrides"))
    read_overrides(*overrides, map.path("overrides"), out.replicas, report, out.overrides);
  if (const YamlNode* nproc = map.node("nprocPerNode")) read_nproc(map, *nproc, out.resources, report, out.nproc_per_node);
  if (const YamlNode* warm = map.node("warm")) read_warm(map, *warm, report, out.warm);
  map.done();
}

}  // namespace dtrain::job
