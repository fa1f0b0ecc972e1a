#include <algorithm>
#include <limits>

#include "common/job/manifest_fields.h"
#include "common/job/quantity.h"

namespace dtrain::job {

namespace {

using Kind = YamlNode::Kind;
constexpr std::int64_t kMostRestarts = 1'000'000;  // of backoffLimit and failureThreshold: more would be no limit

void read_backoff(const YamlNode& node, const std::string& path, FileErrors& report, RestartBackoff& out) {
  if (node.kind == Kind::scalar) {
    const auto every = parse_duration(node.text);
    if (!every) return report.add("wrong-type", path, every.error().message);
    out.first = out.initial = out.max = *every;
    out.jitter = false;
    return;
  }
  MapReader map(node, path, report);
  map.duration("first", out.first);
  const bool has_initial = map.duration("initial", out.initial);
  const bool has_max = map.duration("max", out.max);
  map.duration("resetAfter", out.reset_after);
  map.boolean("jitter", out.jitter);
  map.done();
  // A default yields to what the user wrote.
  if (has_max && !map.has("initial")) out.initial = std::min(out.initial, out.max);
  if (!map.has("max")) out.max = std::max(out.max, has_initial ? std::max(out.initial, out.first) : out.first);
}

void read_threshold(const YamlNode& node, const std::string& path, FileErrors& report, FailureThreshold& out) {
  if (node.kind == Kind::mapping) {
    MapReader map(node, path, report);
    map.number("count", out.count, 0, kMostRestarts);
    map.duration("within", out.within);
    return map.done();
  }
  std::int64_t count = 0;  // one number stands for {count: N}
  if (read_whole_number(node, path, 0, kMostRestarts, report, count)) out.count = static_cast<std::uint32_t>(count);
}

void read_signal_before(const YamlNode& node, const std::string& path, FileErrors& report, SignalBeforeDeadline& out) {
  MapReader map(node, path, report);
  for (const char* key : {"signal", "before"})
    if (!map.has(key)) report.add("missing", map.path(key), "is required: {signal: SIGUSR1, before: 120s}");
  map.signal("signal", out.signal);
  map.duration("before", out.before);
  map.done();
}

// A duration for each role. A single name, or a list, means kWaitForUnlessSaid for each.
void read_wait_for(const YamlNode& node, const std::string& path, FileErrors& report, std::map<std::string, Duration>& out) {
  const auto role = [&](const YamlNode& name, const std::string& at) {
    if (name.kind == Kind::scalar) out[name.text] = kWaitForUnlessSaid;
    else report.add("wrong-type", at, "must be the name of a role");
  };
  if (node.kind == Kind::scalar) return role(node, path);
  if (node.kind == Kind::sequence) {
    for (std::size_t i = 0; i < node.items.size(); ++i) role(node.items[i], item_path(path, i));
    return;
  }
  MapReader map(node, path, report);
  for (const YamlEntry& entry : node.entries) map.duration(entry.key.c_str(), out[entry.key]);
  map.done();
}

// A duration, or never.
void read_grow_after(MapReader& map, FileErrors& report, std::optional<Duration>& out) {
  const YamlNode* found = map.scalar("growAfter");
  if (found == nullptr) return;
  Duration after{0};
  if (found->text != "never" && !map.duration("growAfter", after)) return;
  if (found->text != "never" && after == Duration::zero())
    return report.add("out-of-range", map.path("growAfter"), "must be above 0", "growAfter: never switches it off");
  out = after;
}

}  // namespace

void read_policy(const YamlNode& node, const std::string& path, FileErrors& report, Policy& out) {
  MapReader map(node, path, report);
  std::uint32_t backoff_limit = 0;
  if (map.number("backoffLimit", backoff_limit, 0, kMostRestarts)) out.backoff_limit = backoff_limit;
  if (const YamlNode* backoff = map.node("restartBackoff")) read_backoff(*backoff, map.path("restartBackoff"), report, out.restart_backoff);
  if (const YamlNode* threshold = map.node("failureThreshold"))
    read_threshold(*threshold, map.path("failureThreshold"), report, out.failure_threshold);
  map.word("onPsFailure", out.on_ps_failure);
  Duration seconds{0};
  if (map.seconds("activeDeadlineSeconds", seconds, 1)) out.active_deadline = seconds;
  if (map.seconds("ttlSecondsAfterFinished", seconds, 0)) out.ttl_after_finished = seconds;
  map.word("cleanPodPolicy", out.clean_pod_policy);
  map.word("successPolicy", out.success_policy);
  map.number("successPercent", out.success_percent, 1, kAllPercent);
  map.word("evaluatorInCluster", out.evaluator_in_cluster);
  map.boolean("enableDynamicWorker", out.enable_dynamic_worker);
  map.word("placement", out.placement);
  map.number("priority", out.priority, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max());
  map.seconds("expectedSeconds", out.expected, 0);
  map.boolean("gang", out.gang);
  map.boolean("collective", out.collective);
  read_grow_after(map, report, out.grow_after);
  map.duration("stopGracePeriod", out.stop_grace_period);
  if (const YamlNode* signal = map.node("signalBeforeDeadline"))
    read_signal_before(*signal, map.path("signalBeforeDeadline"), report, out.signal_before_deadline.emplace());
  if (const YamlNode* wait = map.node("waitFor")) read_wait_for(*wait, map.path("waitFor"), report, out.wait_for);
  map.done();
}

void read_checkpoint(const YamlNode& node, const std::string& path, FileErrors& report, CheckpointSpec& out) {
  constexpr std::int64_t kMostKept = 1'000'000, kMostReplicas = 100;
  MapReader map(node, path, report);
  if (!map.has("dir")) report.add("missing", map.path("dir"), "is required: the absolute path of the directory that holds the checkpoints");
  map.text("dir", out.dir);
  map.word("format", out.format);
  map.number("keep", out.keep, 1, kMostKept);
  map.number("replicas", out.replicas, 1, kMostReplicas);
  map.text("restore", out.restore);
  map.done();
}

}  // namespace dtrain::job
