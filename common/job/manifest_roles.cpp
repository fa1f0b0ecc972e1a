#include "common/base/limits.h"
#include "common/job/framework.h"
#include "common/job/manifest_fields.h"
#include "common/job/quantity.h"

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

}  // namespace

bool is_exclusive_role(Framework framework, std::string_view role) { return role_rules(framework, role).exclusive; }

void read_role(const YamlNode& node, const std::string& path, const std::string& name, Framework framework, FileErrors& report,
               RoleSpec& out, bool& has_start_after) {
  MapReader map(node, path, report);
  map.number("replicas", out.replicas, 1, limits::kTasksPerJob);
  out.min_replicas = out.replicas;
  map.number("minReplicas", out.min_replicas, 1, limits::kTasksPerJob);
  map.texts("command", out.command);
  map.text_map("env", out.env);
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
  map.done();
}

}  // namespace dtrain::job
