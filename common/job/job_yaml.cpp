#include "common/job/job_yaml.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "common/job/json_text.h"
#include "common/job/manifest.h"
#include "common/job/manifest_input.h"
#include "common/job/names.h"
#include "common/job/quantity.h"
#include "common/job/warm.h"

namespace dtrain::job {

namespace {

// Always in double quotes, so that no rule of YAML gives it another meaning. JSON's escapes are valid in YAML, too.
std::string text(std::string_view value) { return json_text(escape_params(value)); }

std::string list(const std::vector<std::string>& values) {
  std::string out = "[";
  for (const auto& value : values) out += (out.size() > 1 ? ", " : "") + text(value);
  return out + "]";
}

// Block style with two spaces for each level.
class Writer {
 public:
  void open(std::string_view key) {
    line(key, "");
    ++level_;
  }
  void close() { --level_; }
  void line(std::string_view key, std::string_view value) {
    out_.append(static_cast<std::size_t>(level_) * 2, ' ');
    out_ += key;
    out_ += ':';
    if (!value.empty()) out_ += ' ';
    out_ += value;
    out_ += '\n';
  }
  template <class E>
  void word(std::string_view key, E value) {
    const std::string_view found = word_for(value);
    line(key, found.empty() ? "\"\"" : found);
  }
  void flag(std::string_view key, bool value) { line(key, value ? "true" : "false"); }
  template <class T>
  void number(std::string_view key, T value) {
    line(key, std::to_string(value));
  }
  void seconds(std::string_view key, Duration value) { number(key, value / 1s); }
  void duration(std::string_view key, Duration value) { line(key, format_duration(value)); }
  void map(std::string_view key, const std::map<std::string, std::string>& values) {
    if (values.empty()) return;
    open(key);
    // Keys are not subject to parameters: only their values are escaped.
    for (const auto& [name, value] : values) line(json_text(name), text(value));
    close();
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
  int level_ = 0;
};

void write_resources(Writer& w, const Resources& resources) {
  w.open("resources");
  w.line("cpus", format_cpus(resources.cpu_millis));
  w.line("memory", format_memory(resources.memory_bytes));
  w.number("gpus", resources.gpus);
  if (!resources.gpu_model.empty()) w.line("gpuModel", text(resources.gpu_model));
  w.close();
}

void write_role(Writer& w, const std::string& name, const RoleSpec& role) {
  w.open(json_text(name));
  w.number("replicas", role.replicas);
  w.number("minReplicas", role.min_replicas);
  w.line("command", list(role.command));
  w.map("env", role.env);
  if (!role.work_dir.empty()) w.line("workDir", text(role.work_dir));
  if (!role.overrides.empty()) {
    w.open("overrides");
    for (const RoleOverride& differs : role.overrides) {
      w.open(json_text(format_range(differs.first, differs.last)));
      if (!differs.command.empty()) w.line("command", list(differs.command));
      w.map("env", differs.env);
      w.close();
    }
    w.close();
  }
  if (!role.image.empty()) w.line("image", text(role.image));
  write_resources(w, role.resources);
  w.map("nodeSelector", role.node_selector);
  w.line("antiAffinity", text(role.anti_affinity));
  w.word("avoidGpuHosts", role.avoid_gpu_hosts);
  w.word("restartPolicy", role.restart_policy);
  std::vector<std::string> codes;
  for (const ExitCodes& some : role.retry_codes) codes.push_back(format_range(some.first, some.last));
  if (!codes.empty()) w.line("retryExitCodes", list(codes));
  // In one line, because it has its default as a whole or not at all.
  std::string after;
  for (const auto& [other, reached] : role.start_after)
    after += (after.empty() ? "" : ", ") + json_text(other) + ": " + std::string(word_for(reached));
  w.line("startAfter", "{" + after + "}");
  if (role.on_disconnect != OnDisconnect::by_class) w.word("onDisconnect", role.on_disconnect);
  w.flag("exclusive", role.exclusive);
  w.flag("notify", role.notify);
  w.duration("watchdog", role.watchdog);
  w.line("stopSignal", format_signal(role.stop_signal));
  w.word("signalTo", role.signal_to);
  w.duration("startTimeout", role.start_timeout);
  if (role.run_timeout > Duration::zero()) w.duration("runTimeout", role.run_timeout);
  if (role.nproc_per_node > 0) w.number("nprocPerNode", role.nproc_per_node);
  if (const std::string first = role.warm.empty() ? "" : role.warm.front(); first == kWarmAuto || first == kWarmNone) w.line("warm", first);
  else if (!first.empty()) w.line("warm", list(role.warm));
  w.close();
}

void write_checkpoint(Writer& w, const CheckpointSpec& checkpoint) {
  w.open("checkpoint");
  w.line("dir", text(checkpoint.dir));
  w.word("format", checkpoint.format);
  if (checkpoint.keep > 0) w.number("keep", checkpoint.keep);
  w.number("replicas", checkpoint.replicas);
  w.line("restore", text(checkpoint.restore));
  w.close();
}

void write_policy(Writer& w, const Policy& policy) {
  w.open("policy");
  if (policy.backoff_limit) w.number("backoffLimit", *policy.backoff_limit);
  w.open("restartBackoff");
  w.duration("first", policy.restart_backoff.first);
  w.duration("initial", policy.restart_backoff.initial);
  w.duration("max", policy.restart_backoff.max);
  w.duration("resetAfter", policy.restart_backoff.reset_after);
  w.flag("jitter", policy.restart_backoff.jitter);
  w.close();
  w.open("failureThreshold");
  w.number("count", policy.failure_threshold.count);
  w.duration("within", policy.failure_threshold.within);
  w.close();
  w.word("onPsFailure", policy.on_ps_failure);
  if (policy.active_deadline) w.seconds("activeDeadlineSeconds", *policy.active_deadline);
  if (policy.ttl_after_finished) w.seconds("ttlSecondsAfterFinished", *policy.ttl_after_finished);
  w.word("cleanPodPolicy", policy.clean_pod_policy);
  w.word("successPolicy", policy.success_policy);
  if (policy.success_percent > 0) w.number("successPercent", policy.success_percent);
  w.word("evaluatorInCluster", policy.evaluator_in_cluster);
  w.flag("enableDynamicWorker", policy.enable_dynamic_worker);
  w.word("placement", policy.placement);
  w.number("priority", policy.priority);
  w.seconds("expectedSeconds", policy.expected);
  w.flag("gang", policy.gang);
  w.flag("collective", policy.collective);
  if (policy.grow_after && *policy.grow_after == Duration::zero()) w.line("growAfter", "never");
  else if (policy.grow_after) w.duration("growAfter", *policy.grow_after);
  w.duration("stopGracePeriod", policy.stop_grace_period);
  if (policy.signal_before_deadline) {
    w.open("signalBeforeDeadline");
    w.line("signal", format_signal(policy.signal_before_deadline->signal));
    w.duration("before", policy.signal_before_deadline->before);
    w.close();
  }
  if (!policy.wait_for.empty()) {
    w.open("waitFor");
    for (const auto& [role, most] : policy.wait_for) w.duration(role, most);
    w.close();
  }
  w.close();
}

// A line of Writer's, and the keys that lead to it.
struct Line {
  std::string path, text;
  std::size_t level = 0;
  bool opens() const { return text.ends_with(':'); }
};

std::vector<Line> lines_of(const std::string& yaml) {
  std::vector<Line> lines;
  std::vector<std::string> keys;
  for (std::size_t start = 0; start < yaml.size();) {
    const std::size_t end = yaml.find('\n', start);
    Line line{"", yaml.substr(start, end - start), 0};
    const std::size_t indent = line.text.find_first_not_of(' ');
    line.level = indent / 2;
    keys.resize(line.level);
    for (const std::string& key : keys) line.path += key + "/";
    keys.push_back(line.text.substr(indent, line.text.find(": ", indent) - indent));
    line.path += keys.back();
    lines.push_back(std::move(line));
    start = end + 1;
  }
  return lines;
}

// Keeps the chosen lines and the lines that enclose them.
template <class Chosen>
std::string text_of(const std::vector<Line>& lines, Chosen chosen) {
  std::string out;
  std::vector<const Line*> above;
  for (const Line& line : lines) {
    above.resize(std::min(above.size(), line.level));
    if (line.opens()) above.resize(line.level, nullptr), above.push_back(&line);
    if (line.opens() || !chosen(line)) continue;
    for (const Line*& opener : above)
      if (opener != nullptr) out += std::exchange(opener, nullptr)->text + "\n";
    out += line.text + "\n";
  }
  return out;
}

// Without these it would be no job file.
bool is_needed(const Line& line) {
  const std::string& path = line.path;
  const bool of_role = path.starts_with("spec:/roles:/") && line.level == 3;
  return line.level == 0 || path == "metadata:/name" || path == "metadata:/generateName" || path == "spec:/framework" ||
         path == "spec:/checkpoint:/dir" || (of_role && (path.ends_with("/replicas") || path.ends_with("/command")));
}

}  // namespace

std::string to_short_yaml(const JobSpec& spec) {
  const std::string whole = to_yaml(spec);
  const std::vector<Line> lines = lines_of(whole);
  const ParsedJob bare = parse_manifest(text_of(lines, is_needed), {});
  if (!bare.errors.empty()) return whole;
  std::set<std::string> defaults;
  for (const Line& line : lines_of(to_yaml(bare.spec))) defaults.insert(line.path + "\n" + line.text);
  return text_of(lines, [&](const Line& line) { return is_needed(line) || !defaults.contains(line.path + "\n" + line.text); });
}

std::string to_yaml(const JobSpec& spec) {
  Writer w;
  w.line("apiVersion", "dtrain/v1");
  w.line("kind", "Job");
  w.open("metadata");
  if (!spec.name.empty()) w.line("name", text(spec.name));
  else w.line("generateName", text(spec.generate_name));
  w.map("labels", spec.labels);
  w.close();
  w.open("spec");
  w.word("framework", spec.framework);
  w.line("workDir", text(spec.work_dir));
  w.map("env", spec.env);
  w.map("options", spec.options);
  std::string required;
  if (!spec.require_paths.empty()) required = "paths: " + list(spec.require_paths);
  if (!spec.make_dirs.empty()) required += (required.empty() ? "" : ", ") + std::string("directories: ") + list(spec.make_dirs);
  if (!required.empty()) w.line("requires", "{" + required + "}");
  w.open("roles");
  for (const auto& [name, role] : spec.roles) write_role(w, name, role);
  w.close();
  if (spec.checkpoint) write_checkpoint(w, *spec.checkpoint);
  write_policy(w, spec.policy);
  if (!spec.notify.command.empty()) w.line("notify", "{command: " + list(spec.notify.command) + ", on: " + list(spec.notify.on) + "}");
  w.flag("suspend", spec.suspend);
  w.close();
  return w.take();
}

}  // namespace dtrain::job
