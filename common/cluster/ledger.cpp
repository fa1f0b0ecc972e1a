#include "common/cluster/ledger.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/base/limits.h"
#include "common/cluster/job_transition.h"
#include "common/cluster/outcome.h"
#include "common/cluster/placement.h"

namespace dtrain::cluster {

// Lost hosts that are not back. Beyond, the one that has been gone for good longest is forgotten.
constexpr std::size_t kLostHosts = 10'000;

std::string_view to_string(JobState s) {
  switch (s) {
    case JobState::pending: return "pending";
    case JobState::placed: return "placed";
    case JobState::staging: return "staging";
    case JobState::starting: return "starting";
    case JobState::running: return "running";
    case JobState::restarting: return "restarting";
    case JobState::recovering: return "recovering";
    case JobState::suspended: return "suspended";
    case JobState::succeeded: return "succeeded";
    case JobState::failed: return "failed";
    case JobState::cancelled: return "cancelled";
  }
  return "";
}

bool JobRecord::nothing_runs() const {
  return std::all_of(tasks.begin(), tasks.end(), [](const auto& entry) { return entry.second.ended; });
}

bool restarts_are_granted(const JobRecord& job) {
  if (!job.spec.policy.backoff_limit || job.tasks.empty()) return false;
  const NodeId& one = job.tasks.begin()->second.place.node;
  return std::any_of(job.tasks.begin(), job.tasks.end(), [&](const auto& entry) { return entry.second.place.node != one; });
}

const JobRecord* Ledger::find(JobId id) const {
  const auto it = state_.jobs.find(id);
  return it == state_.jobs.end() ? nullptr : &it->second;
}

bool Ledger::heard(const NodeId& host) const {
  const std::uint64_t history = history_of(state_.epoch);
  const auto mark = state_.reports.find(host);
  return history == 0 || (mark != state_.reports.end() && mark->second.history == history) || broken_rule == "unheard-host-keeps";
}

Duration Ledger::elapsed_at(Instant now) const { return state_.elapsed + std::max<Duration>(now - state_.at, 0ns); }

std::set<JobId> Ledger::take_touched() { return std::exchange(touched_, {}); }
std::set<JobId> Ledger::take_signalled() { return std::exchange(signalled_, {}); }
std::set<JobId> Ledger::take_forgotten() { return std::exchange(forgotten_, {}); }

// Users choose the content: paths, names of programs, their output.
void Ledger::add_event(WallTime wall, JobId job, std::string type, std::string object, std::string reason,
                       std::vector<EventField> details) {
  cut(reason, limits::kReasonBytes);
  for (EventField& detail : details) cut(detail.value, limits::kDetailBytes);
  state_.events.push_back({state_.next_event++, wall, job, std::move(type), std::move(object), std::move(reason), std::move(details)});
  if (state_.events.size() > limits::kKeptEvents) state_.events.pop_front();
}

void Ledger::use_ports(const TaskPlacement& place) {
  if (place.address.port != 0) state_.ports[place.node][place.address.port] = state_.elapsed;
}

namespace {
bool has_checkpoint(const JobRecord& job, const NodeId& host) {
  return std::ranges::any_of(job.checkpoints, [&](const CheckpointRecord& r) {
    return std::ranges::any_of(r.places, [&](const CheckpointPlace& p) { return p.host == host; });
  });
}
}  // namespace

// On the same boot the coordinator's clock measured all the time in between, even without an agent. Otherwise the
// time that the log measured counts.
Applied Ledger::apply_coordinator(const CoordinatorStarted& c, const Command& command, Duration unmeasured) {
  const bool same_clock = c.boot_id == state_.boot_id && command.at > state_.at;
  state_.elapsed += same_clock ? command.at - state_.at : unmeasured;
  state_.boot_id = c.boot_id;
  state_.at = command.at;
  state_.coordinator = c.node;
  state_.coordinator_name = c.node_name;
  if (c.job_base > state_.job_base) {
    state_.job_base = c.job_base;
    state_.recovered = state_.elapsed;
  }
  state_.reports[c.node].history = history_of(state_.epoch);
  add_event(command.wall, 0, "council.elected", c.node_name, "", {{"node", c.node_name}, {"epoch", std::to_string(command.epoch)}});
  return {};
}

// True if a task that has not ended holds a port or GPU of these places. This is the final check of what a coordinator planned.
bool Ledger::taken(const BeginGeneration& c) const {
  std::set<std::pair<NodeId, std::uint16_t>> ports;
  std::set<std::pair<NodeId, std::uint32_t>> gpus;
  for (const auto& place : c.placements) {
    if (place.address.port != 0) ports.emplace(place.node, place.address.port);
    for (const std::uint32_t gpu : place.gpus) gpus.emplace(place.node, gpu);
  }
  if (ports.empty() && gpus.empty()) return false;
  for (const auto& [id, job] : state_.jobs) {
    for (const auto& [task, t] : job.tasks) {
      if (t.ended) continue;
      if (ports.contains({t.place.node, t.place.address.port})) return true;
      for (const std::uint32_t gpu : t.place.gpus)
        if (gpus.contains({t.place.node, gpu})) return true;
    }
  }
  return false;
}

// True if tasks of the generation have no place yet, or none any more.
static bool lacks_tasks(const JobRecord& job) {
  return std::ranges::any_of(wanted_tasks(job.spec), [&](const TaskId& id) {
    const auto t = job.tasks.find(id);
    return t == job.tasks.end() || t->second.lost;
  });
}

Applied Ledger::apply_begin(const BeginGeneration& c, bool extend, WallTime wall) {
  const auto it = state_.jobs.find(c.job);
  if (it == state_.jobs.end()) return refused(ErrorCode::not_found, "job is gone");
  JobRecord& job = it->second;
  const bool current = extend ? c.generation == job.generation && job.halt == Halt::none
                              : c.generation > job.generation && job.needs_generation &&
                                    (job.nothing_runs() || broken_rule == "kill-before-next-generation");
  if (job.goal != Goal::run || is_final(job.state) || !current) return refused(ErrorCode::refused, "job moved on");
  for (const auto& place : c.placements)
    if (!job.spec.roles.contains(place.task.role))
      return refused(ErrorCode::refused, "could not begin a generation: job has no role " + place.task.role);
  for (const auto& place : c.placements) {
    if (state_.lost.contains(place.node) && broken_rule != "lost-host-rests")
      return refused(ErrorCode::refused, "a host was lost meanwhile");
    if (state_.drained.contains(place.node) && broken_rule != "drained-gets-nothing")
      return refused(ErrorCode::refused, "a host was drained meanwhile");
    const auto here = job.tasks.find(place.task);
    if (extend && here != job.tasks.end() && !here->second.lost) return refused(ErrorCode::refused, "job moved on");
  }
  if (!may_have(job, c.sizes, c.placements, state_.version)) return refused(ErrorCode::refused, "job moved on");
  if (taken(c)) return refused(ErrorCode::refused, "a place was taken meanwhile");
  touched_.insert(job.id);
  for (const auto& place : c.placements)
    if (const auto resting = state_.ports.find(place.node); resting != state_.ports.end())
      std::erase_if(resting->second, [&](const auto& entry) { return state_.elapsed - entry.second > kPortRest; });

  std::map<TaskId, TaskRecord> tasks;
  if (extend) tasks = job.tasks;
  for (const auto& place : c.placements) {
    TaskRecord next;
    if (const auto old = job.tasks.find(place.task); old != job.tasks.end()) {
      const TaskRecord& before = old->second;
      next.attempt = before.attempt;
      next.first_attempt = before.attempt + 1;
      next.exit_attempt = before.exit_attempt;
      next.exit = before.exit;
      next.started = before.started;
      const bool again = !extend && begins_with_its_gang(job, place.task, state_.version) && broken_rule != "gang-begins-whole";
      next.completed = before.completed && !again;
      next.given_up = before.given_up;
      if (before.given_up) next.reason = before.reason;
      next.consecutive_failures = before.consecutive_failures;
      next.failures = before.failures;
    }
    if (const auto former = job.former_tasks.find(place.task); former != job.former_tasks.end()) {
      next.attempt = next.exit_attempt = former->second;
      next.first_attempt = former->second + 1;
      job.former_tasks.erase(former);
    }
    next.place = place;
    next.placed = state_.applied;
    if (next.completed || next.given_up) {
      next.state = next.completed ? TaskState::succeeded : TaskState::failed;
      next.ended = true;
    }
    use_ports(place);
    tasks[place.task] = std::move(next);
  }
  for (const auto& [id, t] : job.tasks)
    if (!tasks.contains(id)) job.former_tasks[id] = t.attempt;
  if (job.spec.checkpoint) note_hosts(job, c, extend);
  job.tasks = std::move(tasks);

  JobTransition transition(*this, job, wall);
  if (extend) {
    transition.grow(c.placements);
    if (!lacks_tasks(job)) job.reason.clear();
  }
  if (!extend) {
    if (job.restored_digest != c.restore_digest) job.fruitless_restores = 0;
    job.generation = c.generation;
    job.history = history_of(state_.epoch);
    transition.resize(c.sizes);
    job.preempted = {};
    job.halt = Halt::none;
    job.needs_generation = false;
    job.restored = c.restore;
    job.restored_digest = c.restore_digest;
    job.restored_place = c.restore_place;
    // Earlier checkpoints are given up: a failure before the next checkpoint begins from scratch, too.
    if (job.from_scratch) job.committed_once = false;
    const bool scratch_asked = std::exchange(job.from_scratch, false);
    if (job.spec.checkpoint) note_restore_point(job, scratch_asked);
    job.must_be_frozen.clear();
    job.frozen_on.clear();
    job.waits_for_host.clear();
    job.reason = c.message;
    if (!job.run_started) job.run_started = state_.elapsed;
    if (job.state == JobState::pending || job.state == JobState::suspended) transition.set_state(JobState::placed, c.message);
    if (c.restore)
      add_event(wall, job.id, "checkpoint.restored", job.spec.name, c.message,
                {{"job", job.spec.name},
                 {"step", std::to_string(c.restore->step)},
                 {"path", c.restore->path},
                 {"generation", std::to_string(job.generation)}});
    else if (job.spec.checkpoint)
      add_event(wall, job.id, "checkpoint.none", job.spec.name, c.message,
                {{"job", job.spec.name}, {"generation", std::to_string(job.generation)}});
  }
  transition.settle();
  ++job.version;
  return done(job);
}

Applied Ledger::apply_report(const HostReport& c, WallTime wall) {
  if (c.life != 0) {
    ReportMark& newest = state_.reports[c.node];
    const ReportMark mark{c.life, c.sequence, history_of(state_.epoch)};
    if (mark <= newest) return {};  // this report was applied already
    newest = mark;
  }
  const std::string& node_name = c.node_name.empty() ? state_.coordinator_name : c.node_name;
  std::set<JobId> jobs;
  for (const auto& seen : c.tasks) {
    const auto it = state_.jobs.find(seen.id.job);
    if (it == state_.jobs.end()) continue;
    JobRecord& job = it->second;
    // Reports about an older generation change nothing.
    if (job.generation != seen.id.generation) continue;
    const auto task = job.tasks.find(seen.id.task);
    if (task == job.tasks.end() || task->second.ended) continue;
    // Nor do those of a host from which the task was taken.
    if (task->second.place.node != c.node && broken_rule != "report-of-its-host") continue;
    JobTransition transition(*this, job, wall);
    transition.observe(task->second, seen, node_name);
    transition.moved(task->second, node_name);
    if (task->second.ended) use_ports(task->second.place);  // its port rests from now on
    jobs.insert(job.id);
  }
  if (const auto lost = state_.lost.find(c.node); lost != state_.lost.end() && lost->second.index == c.back) {
    state_.lost.erase(lost);
    // What was taken from the host may have run, or been frozen, there until now.
    for (auto& [port, used] : state_.ports[c.node]) used = state_.elapsed;
    add_event(wall, 0, "host.back", node_name, "", {{"node", node_name}});
    for (auto& [id, job] : state_.jobs) {
      if (has_checkpoint(job, c.node)) job.restore_waits_since.reset();
      if (JobTransition(*this, job, wall).host_back(c.node)) jobs.insert(id);
    }
  }
  for (const JobId id : jobs) {
    JobRecord& job = state_.jobs.at(id);
    JobTransition(*this, job, wall).settle();
    ++job.version;
    touched_.insert(id);
  }
  return {};
}

Applied Ledger::apply_finish(const FinishJob& c, WallTime wall) {
  const auto it = state_.jobs.find(c.job);
  if (it == state_.jobs.end() || is_final(it->second.state)) return refused(ErrorCode::refused, "job moved on");
  JobTransition transition(*this, it->second, wall);
  const bool by_itself = it->second.doubted || it->second.evaluators_until;  // and not by a deadline of the job
  transition.finish(c.state, c.reason, !by_itself);
  transition.settle();
  ++it->second.version;
  touched_.insert(c.job);
  return done(it->second);
}

Applied Ledger::apply_forget(const ForgetJob& c, WallTime wall) {
  const auto it = state_.jobs.find(c.job);
  if (it == state_.jobs.end() || !is_final(it->second.state)) return refused(ErrorCode::refused, "job moved on");
  if (it->second.nothing_runs()) {
    forget(c.job, wall);
    return {};
  }
  it->second.deleting = true;  // what cleanPodPolicy None left running is ended first
  it->second.leave_running = false;
  it->second.graceful = true;
  ++it->second.version;
  touched_.insert(c.job);
  return {};
}

Applied Ledger::apply_waits(const JobWaits& c, WallTime wall) {
  const auto it = state_.jobs.find(c.job);
  if (it == state_.jobs.end() || is_final(it->second.state)) return refused(ErrorCode::refused, "job moved on");
  JobRecord& job = it->second;
  if (!c.for_restore && !job.needs_generation && !lacks_tasks(job)) return refused(ErrorCode::refused, "job moved on");
  if (c.for_restore && !job.restore_waits_since) job.restore_waits_since = state_.elapsed;
  if (job.reason == c.reason) return done(job);
  job.reason = c.reason;
  cut(job.reason, limits::kReasonBytes);
  add_event(wall, c.job, "job.waits", it->second.spec.name, c.reason, {{"job", it->second.spec.name}});
  ++it->second.version;
  touched_.insert(c.job);
  return done(it->second);
}

Applied Ledger::apply_signal(const SignalJob& c) {
  const auto it = state_.jobs.find(c.job);
  if (it == state_.jobs.end() || it->second.signalled) return refused(ErrorCode::refused, "job moved on");
  it->second.signalled = true;
  signalled_.insert(c.job);
  touched_.insert(c.job);
  return done(it->second);
}

Applied Ledger::apply_host_lost(const HostLost& c, std::uint64_t index, WallTime wall) {
  if (state_.lost.size() >= kLostHosts && !state_.lost.contains(c.node))
    state_.lost.erase(
        std::ranges::min_element(state_.lost, {}, [](const auto& entry) { return std::pair(!entry.second.gone, entry.second.index); }));
  LostHost& lost = state_.lost[c.node];
  lost = {index, c.node_name, lost.gone || c.gone, std::max(lost.leases_over, c.leases_over), lost.ordered || c.ordered};
  const char* why = c.gone ? "it left, or was forgotten" : c.leases_over != 0 ? "the leases of its tasks are over" : "it does not answer";
  add_event(wall, 0, "host.lost", c.node_name, why, {{"node", c.node_name}});
  for (auto& [id, job] : state_.jobs) {
    JobTransition transition(*this, job, wall);
    if (!transition.lose_host(c.node, lost)) continue;
    transition.settle();
    ++job.version;
    touched_.insert(id);
  }
  return {};
}

}  // namespace dtrain::cluster
