#include "tests/sim/job_factory.h"

#include "common/job/names.h"
#include "tests/sim/job_book.h"
#include "tests/sim/script.h"

namespace dtrain::sim {
namespace {

using job::RoleSpec;

Duration random_duration(Duration low, Duration high, Rng& rng) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(high - low).count();
  return low + std::chrono::milliseconds(static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(ms) + 1)));
}

Script random_script(std::uint64_t tag, Rng& rng) {
  Script s;
  s.tag = tag;
  s.run_min = random_duration(500ms, 15s, rng);
  s.run_max = s.run_min + random_duration(0ms, 30s, rng);
  s.ok = rng.chance(1, 3) ? 100 : static_cast<std::uint32_t>(30 + rng.below(60));
  if (rng.chance(1, 3)) s.signal = rng.chance(1, 2) ? 11 : 9;
  else s.code = rng.chance(1, 3) ? 137 : static_cast<std::int32_t>(1 + rng.below(5));
  s.term = random_duration(1ms, 3s, rng);
  if (rng.chance(1, 3)) s.term_code = rng.chance(1, 2) ? 0 : 143;
  s.ignore_term = rng.chance(1, 10);
  if (rng.chance(1, 4)) s.status = random_duration(4s, 15s, rng);
  return s;
}

RoleSpec random_role(std::uint32_t replicas, Script script, Rng& rng) {
  RoleSpec role;
  role.replicas = role.min_replicas = replicas;
  if (rng.chance(1, 4)) {
    role.notify = true;
    script.ready = random_duration(1ms, 2s, rng);
  }
  if (rng.chance(1, 6)) {
    role.watchdog = random_duration(8s, 16s, rng);
    script.watchdog = role.watchdog / 3;
    if (!script.forever) script.hang = 20;
  }
  role.command = script.argv();
  role.command.push_back("--task_index={task.index}");
  role.resources.cpu_millis = 100 + 100 * rng.below(6);
  role.resources.memory_bytes = (64 + rng.below(256)) << 20;
  if (rng.chance(1, 8)) role.resources.gpus = 1;
  const std::uint64_t policy = rng.below(10);
  role.restart_policy = policy < 6   ? job::RestartPolicy::on_failure
                        : policy < 8 ? job::RestartPolicy::exit_code
                        : policy < 9 ? job::RestartPolicy::never
                                     : job::RestartPolicy::always;
  return role;
}

// Some jobs may go on with fewer workers, and of some of these it is said when they grow again. Drawn from what was drawn already, so that
// all else of a seed stays as it is.
void make_elastic(job::JobSpec& spec) {
  Rng rng(static_cast<std::uint64_t>(spec.policy.stop_grace_period.count()) + spec.roles.size());
  const auto worker = spec.roles.find("worker");
  if (worker == spec.roles.end() || !rng.chance(1, 2)) return;
  worker->second.min_replicas = 1 + static_cast<std::uint32_t>(rng.below(worker->second.replicas));
  if (rng.chance(2, 3)) spec.policy.grow_after = std::chrono::seconds(rng.below(4));  // 0: never
}

// Of some jobs the tasks begin one by one, and of some roles it is said what becomes of them on a host that is cut off. Drawn likewise.
void make_particular(job::JobSpec& spec, std::uint64_t tag) {
  Rng rng(tag * 7919 + 3);
  if (spec.framework == job::Framework::generic && rng.chance(1, 3)) spec.policy.gang = false;
  for (auto& [name, role] : spec.roles)
    if (!role.exclusive && rng.chance(1, 8)) role.on_disconnect = rng.chance(1, 2) ? job::OnDisconnect::freeze : job::OnDisconnect::replace;
}

void add_checkpoints(job::JobSpec& spec, Script& writer, Rng& rng) {
  job::CheckpointSpec checkpoint;
  checkpoint.dir = "/ckpt/" + spec.labels[kTagLabel];
  checkpoint.format = *job::from_word<job::CheckpointFormat>("manifest");
  if (rng.chance(1, 8)) checkpoint.restore = "never";
  spec.checkpoint = checkpoint;
  writer.checkpoint = random_duration(1s, 8s, rng);
  if (rng.chance(1, 3)) writer.torn = 20;
  if (rng.chance(1, 3)) writer.rotten = 30;
}

// The parser's default order: ps, chief or master, worker, each at Running.
void order_start(job::JobSpec& spec) {
  const auto after = [&](const std::string& role, std::initializer_list<const char*> firsts) {
    const auto it = spec.roles.find(role);
    if (it == spec.roles.end()) return;
    for (const char* first : firsts)
      if (spec.roles.contains(first)) it->second.start_after.try_emplace(first, job::StartAfter::running);
  };
  after("chief", {"ps"});
  after("worker", {"ps", "chief"});
  after("evaluator", {"ps", "chief"});
}

void tensorflow_with_ps(job::JobSpec& spec, std::uint64_t tag, Rng& rng) {
  Script ps = random_script(tag, rng);
  ps.forever = true;
  ps.hang = 0;
  spec.roles["ps"] = random_role(1 + static_cast<std::uint32_t>(rng.below(2)), ps, rng);
  spec.roles["ps"].restart_policy = job::RestartPolicy::on_failure;
  spec.roles["ps"].exclusive = true;
  Script worker = random_script(tag, rng), chief = random_script(tag, rng);
  const bool with_chief = rng.chance(1, 2);
  if (rng.chance(3, 4)) add_checkpoints(spec, with_chief ? chief : worker, rng);
  if (with_chief) {
    spec.roles["chief"] = random_role(1, chief, rng);
    spec.roles["chief"].exclusive = true;
    if (spec.roles["chief"].restart_policy == job::RestartPolicy::always)
      spec.roles["chief"].restart_policy = job::RestartPolicy::on_failure;
  }
  RoleSpec workers = random_role(1 + static_cast<std::uint32_t>(rng.below(3)), worker, rng);
  workers.command.push_back("--ps_hosts={hosts:ps}");
  if (with_chief && spec.roles["chief"].notify && rng.chance(1, 2)) workers.start_after["chief"] = job::StartAfter::ready;
  spec.roles["worker"] = workers;
  if (with_chief && rng.chance(1, 5)) {
    spec.roles["evaluator"] = random_role(1, random_script(tag, rng), rng);
    spec.roles["evaluator"].exclusive = true;
  }
  spec.policy.enable_dynamic_worker = rng.chance(1, 8);
  if (rng.chance(1, 4)) spec.policy.on_ps_failure = job::OnPsFailure::freeze;
}

void tensorflow_collective(job::JobSpec& spec, std::uint64_t tag, Rng& rng) {
  Script worker = random_script(tag, rng);
  if (rng.chance(3, 4)) add_checkpoints(spec, worker, rng);
  spec.roles["worker"] = random_role(1 + static_cast<std::uint32_t>(rng.below(3)), worker, rng);
}

void generic(job::JobSpec& spec, std::uint64_t tag, Rng& rng) {
  Script worker = random_script(tag, rng);
  if (rng.chance(1, 3)) add_checkpoints(spec, worker, rng);
  spec.roles["worker"] = random_role(1 + static_cast<std::uint32_t>(rng.below(4)), worker, rng);
  if (rng.chance(1, 3)) {
    spec.roles["setup"] = random_role(1, random_script(tag, rng), rng);
    if (spec.roles["setup"].restart_policy == job::RestartPolicy::always)
      spec.roles["setup"].restart_policy = job::RestartPolicy::on_failure;
    spec.roles["worker"].start_after["setup"] = rng.chance(1, 2) ? job::StartAfter::succeeded : job::StartAfter::running;
  }
}

void random_policy(job::Policy& policy, Rng& rng) {
  if (rng.chance(1, 2)) policy.backoff_limit = static_cast<std::uint32_t>(rng.below(6));
  policy.failure_threshold.count = static_cast<std::uint32_t>(rng.below(6));  // 0: off
  policy.restart_backoff.initial = random_duration(50ms, 500ms, rng);
  policy.restart_backoff.max = random_duration(500ms, 4s, rng);
  policy.restart_backoff.reset_after = random_duration(5s, 10min, rng);
  policy.restart_backoff.jitter = rng.chance(1, 2);
  if (rng.chance(1, 10)) policy.active_deadline = std::chrono::seconds(10 + rng.below(80));
  if (rng.chance(1, 10)) policy.ttl_after_finished = std::chrono::seconds(5 + rng.below(35));
  const std::uint64_t clean = rng.below(4);
  policy.clean_pod_policy = clean < 2 ? job::CleanPodPolicy::running : clean < 3 ? job::CleanPodPolicy::all : job::CleanPodPolicy::none;
  if (rng.chance(1, 5)) policy.success_policy = job::SuccessPolicy::all_workers;
  policy.stop_grace_period = random_duration(500ms, 8s, rng);
  policy.priority = static_cast<std::int32_t>(rng.below(3));
  if (policy.active_deadline && rng.chance(1, 2)) policy.signal_before_deadline = job::SignalBeforeDeadline{10, 5s};
}

}  // namespace

job::JobSpec random_job(const std::string& name, std::uint64_t tag, Rng& rng) {
  job::JobSpec spec;
  spec.name = name;
  spec.labels[kTagLabel] = std::to_string(tag);
  random_policy(spec.policy, rng);
  const std::uint64_t kind = rng.below(10);
  spec.framework = kind < 7 ? job::Framework::tensorflow : job::Framework::generic;
  if (kind < 5) tensorflow_with_ps(spec, tag, rng);
  else if (kind < 7) tensorflow_collective(spec, tag, rng);
  else generic(spec, tag, rng);
  order_start(spec);
  make_elastic(spec);
  make_particular(spec, tag);
  if (tag % 4 != 0) spec.policy.placement = job::Placement::spread;
  if (tag % 3 == 1) {
    const std::string digits = std::to_string(tag);
    spec.package_digest = std::string(64 - digits.size(), 'a') + digits;
  }
  // At most what the host has: such a job can always run once others made room.
  std::uint32_t gpus = 0;
  for (auto& [role, r] : spec.roles) {
    if (gpus + r.replicas * r.resources.gpus > kHostGpus) r.resources.gpus = 0;
    gpus += r.replicas * r.resources.gpus;
  }
  if (rng.chance(1, 20)) spec.suspend = true;
  if (rng.chance(1, 12)) spec.notify = job::NotifyHook{{"/bin/page"}, {"Failed", "Recovering", "Succeeded"}};
  return spec;
}

void make_hungry(job::JobSpec& spec, std::uint32_t hosts) {
  constexpr std::uint32_t kMostTasks = 8, kOnEachHost = 2;
  if (RoleSpec& worker = spec.roles["worker"]; !spec.checkpoint && spec.roles.size() == 1 && worker.resources.gpus == 0) {
    worker.replicas = worker.min_replicas = kOnEachHost * hosts;
    worker.resources.cpu_millis = kHostCpuMillis / kOnEachHost;
    make_elastic(spec);
    // With fewer it can have more only if it begins again; and it runs for long enough to see others leave.
    if (spec.policy.gang && spec.policy.priority != 1)
      worker.command.insert(worker.command.end(), {"--workers={hosts:worker}", "run=20000..60000", "ok=100", "hang=0"});
    return;
  }
  for (auto& [name, role] : spec.roles) role.resources.cpu_millis = kHostCpuMillis / kMostTasks;
}

// Its only role takes most CPUs of all hosts, and has more tasks than before only if all of them begin again.
void make_shrinking(job::JobSpec& spec, std::uint32_t hosts, std::uint64_t tag) {
  constexpr std::uint32_t kOnEachHost = 2;
  const auto worker = spec.roles.find("worker");
  if (worker == spec.roles.end()) return;
  RoleSpec role = worker->second;
  role.replicas = kOnEachHost * hosts;
  role.min_replicas = 1 + static_cast<std::uint32_t>(tag / 2 % 3);
  role.resources.cpu_millis = kHostCpuMillis * 3 / 8;
  role.resources.gpus = 0;
  role.start_after.clear();
  std::erase_if(role.command, [](const std::string& word) { return word.find("{hosts:") != std::string::npos; });
  role.restart_policy = job::RestartPolicy::on_failure;
  role.command.insert(role.command.end(), {"--workers={hosts:worker}", "run=40000..90000", "ok=100", "hang=0"});
  if (spec.checkpoint) role.command.push_back("checkpoint=" + std::to_string(3000 + tag * 397 % 4000));
  spec.roles = {{"worker", role}};
  spec.framework = job::Framework::generic;
  spec.policy.gang = true;
  spec.policy.grow_after = std::chrono::seconds(1 + tag / 2 % 4);
  spec.policy.priority = 2;
  spec.policy.active_deadline.reset();
  spec.policy.signal_before_deadline.reset();
}

void make_dynamic(job::JobSpec& spec) {
  if (spec.roles.contains("ps")) spec.policy.enable_dynamic_worker = true;
}

void make_keeping(job::JobSpec& spec) {
  const auto ps = spec.roles.find("ps");
  if (ps == spec.roles.end() || ps->second.replicas % 2 == 0) return;
  for (auto& [name, role] : spec.roles) role.on_disconnect = job::OnDisconnect::keep;
}

// Of one half of the jobs: what a task dies of is as a rule the end of the one that it watches, and little is allowed to be its own fault.
void make_leaving(job::JobSpec& spec, std::uint64_t tag) {
  if (tag % 2 == 0) return;
  const std::string watched = spec.roles.contains("ps") ? "ps-0" : spec.roles.contains("chief") ? "chief-0" : "worker-0";
  for (auto& [name, role] : spec.roles) {
    // The last word of a kind holds.
    role.command.insert(role.command.end(),
                        {"watches=" + watched, "leaves=" + std::to_string(100 + tag * 397 % 1900), "run=20000..60000", "ok=100", "hang=0"});
    if (role.restart_policy == job::RestartPolicy::never || role.restart_policy == job::RestartPolicy::always)
      role.restart_policy = job::RestartPolicy::on_failure;
  }
  spec.policy.backoff_limit = tag / 2 % 3;
  spec.policy.active_deadline.reset();
  spec.policy.signal_before_deadline.reset();
}

std::uint32_t wide_replicas(std::uint32_t hosts, Rng& rng) { return hosts / 2 + static_cast<std::uint32_t>(rng.below(hosts)); }

void make_wide(job::JobSpec& spec, std::uint32_t hosts, Rng& rng) {
  RoleSpec& worker = spec.roles.at("worker");
  worker.replicas = worker.min_replicas = wide_replicas(hosts, rng);
  if (!spec.checkpoint && rng.chance(1, 4)) worker.resources.gpus = 1;  // of two on each host
}

job::JobSpec changed_job(job::JobSpec spec, std::uint64_t tag) {
  spec.labels[kTagLabel] = std::to_string(tag);
  for (auto& [name, role] : spec.roles)
    for (std::string& word : role.command)
      if (word.starts_with("tag=")) word = "tag=" + std::to_string(tag);
  spec.env["CHANGED"] = std::to_string(tag);
  return spec;
}

}  // namespace dtrain::sim
