// A job spec in the words of a job file: what `describe` shows can be compared with, and pasted into, a file.
#include <csignal>
#include <cstring>

#include "agent/dtrainctl/json_view.h"
#include "agent/dtrainctl/words.h"

namespace dtrain::ctl {
namespace {

const char* word(job::RestartPolicy p) {
  switch (p) {
    case job::RestartPolicy::on_failure: return "OnFailure";
    case job::RestartPolicy::never: return "Never";
    case job::RestartPolicy::always: return "Always";
    case job::RestartPolicy::exit_code: return "ExitCode";
  }
  return "";
}
const char* word(job::OnDisconnect d) {
  switch (d) {
    case job::OnDisconnect::by_class: return "";
    case job::OnDisconnect::replace: return "replace";
    case job::OnDisconnect::freeze: return "freeze";
    case job::OnDisconnect::keep: return "keep";
  }
  return "";
}
const char* word(job::AvoidGpuHosts a) {
  switch (a) {
    case job::AvoidGpuHosts::no: return "no";
    case job::AvoidGpuHosts::prefer: return "prefer";
    case job::AvoidGpuHosts::require: return "require";
  }
  return "";
}
const char* word(job::CleanPodPolicy p) {
  switch (p) {
    case job::CleanPodPolicy::running: return "Running";
    case job::CleanPodPolicy::all: return "All";
    case job::CleanPodPolicy::none: return "None";
  }
  return "";
}
const char* word(job::OnPsFailure p) { return p == job::OnPsFailure::halt ? "halt" : "freeze"; }
const char* word(job::SuccessPolicy p) { return p == job::SuccessPolicy::all_workers ? "AllWorkers" : ""; }
const char* word(job::EvaluatorInCluster e) {
  switch (e) {
    case job::EvaluatorInCluster::self: return "self";
    case job::EvaluatorInCluster::never: return "never";
    case job::EvaluatorInCluster::always: return "always";
  }
  return "";
}
const char* word(job::Placement p) { return p == job::Placement::pack ? "pack" : "spread"; }
const char* word(job::StartAfter s) {
  switch (s) {
    case job::StartAfter::running: return "Running";
    case job::StartAfter::ready: return "Ready";
    case job::StartAfter::succeeded: return "Succeeded";
  }
  return "";
}
const char* word(job::CheckpointFormat f) {
  switch (f) {
    case job::CheckpointFormat::automatic: return "auto";
    case job::CheckpointFormat::manifest: return "manifest";
    case job::CheckpointFormat::tensorflow: return "tensorflow";
  }
  return "";
}

std::int64_t seconds(Duration d) { return std::chrono::duration_cast<std::chrono::seconds>(d).count(); }

Json resources_json(const job::Resources& r) {
  Json object = Json::object();
  if (r.cpu_millis != 0) object["cpus"] = cpus_text(r.cpu_millis);
  if (r.memory_bytes != 0) object["memory"] = r.memory_bytes;
  object["gpus"] = r.gpus;
  if (!r.gpu_model.empty()) object["gpuModel"] = r.gpu_model;
  return object;
}

Json role_json(const job::RoleSpec& r) {
  Json object{{"replicas", r.replicas}, {"minReplicas", r.min_replicas}, {"command", r.command}};
  if (!r.env.empty()) object["env"] = json_of(r.env);
  object["resources"] = resources_json(r.resources);
  if (!r.node_selector.empty()) object["nodeSelector"] = json_of(r.node_selector);
  object["antiAffinity"] = r.anti_affinity;
  object["avoidGpuHosts"] = word(r.avoid_gpu_hosts);
  object["restartPolicy"] = word(r.restart_policy);
  Json after = Json::object();
  for (const auto& [role, state] : r.start_after) after[role] = word(state);
  object["startAfter"] = after;
  if (r.on_disconnect != job::OnDisconnect::by_class) object["onDisconnect"] = word(r.on_disconnect);
  object["exclusive"] = r.exclusive;
  object["notify"] = r.notify;
  object["watchdog"] = duration_text(r.watchdog);
  object["stopSignal"] = signal_text(r.stop_signal);
  return object;
}

Json policy_json(const job::Policy& p) {
  Json object = Json::object();
  if (p.backoff_limit) object["backoffLimit"] = *p.backoff_limit;
  const job::RestartBackoff& b = p.restart_backoff;
  if (!b.jitter && b.first == b.initial && b.initial == b.max)
    object["restartBackoff"] = duration_text(b.max);
  else
    object["restartBackoff"] = Json{{"first", duration_text(b.first)}, {"initial", duration_text(b.initial)},
                                    {"max", duration_text(b.max)}, {"resetAfter", duration_text(b.reset_after)}};
  if (p.failure_threshold.count == 0)
    object["failureThreshold"] = 0;
  else
    object["failureThreshold"] =
        Json{{"count", p.failure_threshold.count}, {"within", duration_text(p.failure_threshold.within)}};
  object["onPsFailure"] = word(p.on_ps_failure);
  if (p.active_deadline) object["activeDeadlineSeconds"] = seconds(*p.active_deadline);
  if (p.ttl_after_finished) object["ttlSecondsAfterFinished"] = seconds(*p.ttl_after_finished);
  object["cleanPodPolicy"] = word(p.clean_pod_policy);
  object["successPolicy"] = word(p.success_policy);
  object["evaluatorInCluster"] = word(p.evaluator_in_cluster);
  object["enableDynamicWorker"] = p.enable_dynamic_worker;
  object["placement"] = word(p.placement);
  object["priority"] = p.priority;
  object["expectedSeconds"] = seconds(p.expected);
  object["gang"] = p.gang;
  object["stopGracePeriod"] = duration_text(p.stop_grace_period);
  if (p.signal_before_deadline)
    object["signalBeforeDeadline"] = Json{{"signal", signal_text(p.signal_before_deadline->signal)},
                                          {"before", duration_text(p.signal_before_deadline->before)}};
  return object;
}

}  // namespace

Json spec_json(const job::JobSpec& spec) {
  Json object{{"framework", std::string(job::to_string(spec.framework))}};
  if (!spec.package_digest.empty()) object["packageDigest"] = spec.package_digest;
  object["workDir"] = spec.work_dir;
  object["env"] = json_of(spec.env);
  if (!spec.require_paths.empty()) object["requires"] = Json{{"paths", spec.require_paths}};
  Json roles = Json::object();
  for (const auto& [name, role] : spec.roles) roles[name] = role_json(role);
  object["roles"] = roles;
  if (spec.checkpoint) {
    const job::CheckpointSpec& c = *spec.checkpoint;
    Json checkpoint{{"dir", c.dir}, {"format", word(c.format)}};
    if (c.keep != 0) checkpoint["keep"] = c.keep;
    checkpoint["replicas"] = c.replicas;
    checkpoint["restore"] = c.restore;
    object["checkpoint"] = checkpoint;
  }
  object["policy"] = policy_json(spec.policy);
  if (!spec.notify.command.empty()) object["notify"] = Json{{"command", spec.notify.command}, {"on", spec.notify.on}};
  object["suspend"] = spec.suspend;
  return object;
}

}  // namespace dtrain::ctl
