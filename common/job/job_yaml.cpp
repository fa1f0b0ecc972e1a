#include "common/job/job_yaml.h"

#include "common/job/json_text.h"
#include "common/job/manifest_input.h"
#include "common/job/names.h"
#include "common/job/quantity.h"

namespace dtrain::job {

namespace {

// In double quotes whatever it is: no rule of YAML can make anything else of it. JSON's escapes are YAML's,
// too.
std::string text(std::string_view value) {
  return json_text(escape_params(value));
}

std::string list(const std::vector<std::string>& values) {
  std::string out = "[";
  for (const auto& value : values) out += (out.size() > 1 ? ", " : "") + text(value);
  return out + "]";
}

// Block style with two spaces a level.
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
  write_resources(w, role.resources);
  w.map("nodeSelector", role.node_selector);
  w.line("antiAffinity", text(role.anti_affinity));
  w.word("avoidGpuHosts", role.avoid_gpu_hosts);
  w.word("restartPolicy", role.restart_policy);
  if (role.start_after.empty()) {
    w.line("startAfter", "{}");
  } else {
    w.open("startAfter");
    for (const auto& [other, reached] : role.start_after) w.word(json_text(other), reached);
    w.close();
  }
  if (role.on_disconnect != OnDisconnect::by_class) w.word("onDisconnect", role.on_disconnect);
  w.flag("exclusive", role.exclusive);
  w.flag("notify", role.notify);
  w.duration("watchdog", role.watchdog);
  w.line("stopSignal", format_signal(role.stop_signal));
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
  w.word("evaluatorInCluster", policy.evaluator_in_cluster);
  w.flag("enableDynamicWorker", policy.enable_dynamic_worker);
  w.word("placement", policy.placement);
  w.number("priority", policy.priority);
  w.seconds("expectedSeconds", policy.expected);
  w.flag("gang", policy.gang);
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

}  // namespace

std::string to_yaml(const JobSpec& spec) {
  Writer w;
  w.line("apiVersion", "dtrain/v1");
  w.line("kind", "Job");
  w.open("metadata");
  if (!spec.name.empty())
    w.line("name", text(spec.name));
  else
    w.line("generateName", text(spec.generate_name));
  w.map("labels", spec.labels);
  w.close();
  w.open("spec");
  w.word("framework", spec.framework);
  w.line("workDir", text(spec.work_dir));
  w.map("env", spec.env);
  if (!spec.require_paths.empty()) w.line("requires", "{paths: " + list(spec.require_paths) + "}");
  w.open("roles");
  for (const auto& [name, role] : spec.roles) write_role(w, name, role);
  w.close();
  if (spec.checkpoint) write_checkpoint(w, *spec.checkpoint);
  write_policy(w, spec.policy);
  if (!spec.notify.command.empty())
    w.line("notify", "{command: " + list(spec.notify.command) + ", on: " + list(spec.notify.on) + "}");
  w.flag("suspend", spec.suspend);
  w.close();
  return w.take();
}

}  // namespace dtrain::job
