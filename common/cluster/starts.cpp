// Hosts on which tasks cannot be started: the job, and all jobs of its user, avoid them for a while (docs/recovery.md).
#include <algorithm>

#include "common/base/limits.h"
#include "common/cluster/job_transition.h"
#include "common/job/restart.h"

namespace dtrain::cluster {

void cut(std::string& text, std::size_t bytes) {
  if (text.size() <= bytes) return;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;  // whole characters
  text.resize(bytes);
  text += "...";
}

namespace {

// Several tasks of one generation that fail on a host count as one failure.
bool fails_anew(Refusal& refusal, const JobRecord& job) {
  if (refusal.job == job.id && refusal.generation == job.generation) return false;
  refusal.job = job.id;
  refusal.generation = job.generation;
  return true;
}

}  // namespace

Refusals in_force(const Refusals& refusals, Duration elapsed) {
  Refusals left;
  for (const auto& [host, refusal] : refusals)
    if (refusal.until > elapsed) left.emplace(host, refusal);
  return left;
}

Duration refused_for(std::uint32_t times, Duration first, Duration most) {
  Duration wait = first;
  for (std::uint32_t i = 1; i < times && wait < most; ++i) wait *= 2;
  return std::min(wait, most);
}

Refusals Ledger::refusals(const JobRecord& job, Duration elapsed) const {
  Refusals all = in_force(job.refused_by, elapsed);
  for (const auto& [host, users] : state_.avoided)
    if (const auto own = users.find(job.user.name); own != users.end() && own->second.until > elapsed) all.try_emplace(host, own->second);
  return all;
}

void Ledger::note_stage_failure(const JobRecord& job, const NodeId& host, const std::string& reason) {
  auto& users = state_.avoided[host];
  if (users.size() >= kAvoidedUsers && !users.contains(job.user.name))
    users.erase(std::ranges::min_element(users, {}, [](const auto& entry) { return entry.second.until; }));
  Refusal& refusal = users[job.user.name];
  if (!fails_anew(refusal, job)) return;
  ++refusal.times;
  refusal.avoided = true;
  refusal.reason = "job " + job.spec.name + " could not begin there: " + reason;
  if (refusal.times > 1) refusal.until = state_.elapsed + refused_for(refusal.times - 1, kAvoidedFirst, kAvoidedMost);
}

void Ledger::note_staged(const JobRecord& job, const NodeId& host) {
  const auto users = state_.avoided.find(host);
  if (users == state_.avoided.end()) return;
  users->second.erase(job.user.name);
  if (users->second.empty()) state_.avoided.erase(users);
}

// Anything that keeps a task from beginning on a host is a reason to go elsewhere. A failure that only the user can
// mend (no such directory) may be absent on another host; if no host is left, the coordinator ends the job. A
// momentary failure (a port in use) is retried there once at once, since the next generation has other ports.
void JobTransition::note_refusal(const NodeId& host, const TaskObservation& seen) {
  const Duration now = ledger_.state_.elapsed;
  std::erase_if(job_.refused_by, [&](const auto& entry) { return entry.second.until + kRefusedFor <= now; });
  Refusal& refusal = job_.refused_by[host];
  const ErrorCode code = seen.stage_error;
  refusal.for_good = seen.host_refused.empty() && (code == ErrorCode::invalid || code == ErrorCode::not_found ||
                                                   code == ErrorCode::refused || code == ErrorCode::damaged);
  refusal.reason = seen.host_refused.empty() ? seen.reason : seen.host_refused;
  cut(refusal.reason, kRefusalBytes);
  if (fails_anew(refusal, job_)) ++refusal.times;
  const bool at_once = refusal.for_good || !seen.host_refused.empty();
  const bool once_more = code == ErrorCode::unavailable && refusal.times == 1;
  refusal.until = now + (at_once ? kRefusedFor : once_more ? 0s : refused_for(refusal.times, kRefusedFirst, kRefusedFor));
  if (!at_once) ledger_.note_stage_failure(job_, host, refusal.reason);
}

void JobTransition::begins_there(const NodeId& host) {
  const auto refusal = job_.refused_by.find(host);
  if (refusal != job_.refused_by.end() && refusal->second.until <= ledger_.state_.elapsed) job_.refused_by.erase(refusal);
  ledger_.note_staged(job_, host);
}

void JobTransition::stage_failed(const TaskRecord& task, const TaskObservation& seen) {
  // A task that ran in this generation died before: its replacement is a restart, wherever that begins. Exceptions: a
  // user asked for its end, or its port belonged to another process.
  const bool died = task.attempt >= task.first_attempt && task.attempt != task.restart_attempt;
  const Duration now = ledger_.state_.elapsed;
  if (job_.was_running && now - job_.all_running_since >= job_.spec.policy.restart_backoff.reset_after) job_.ports_lost = 0;
  const bool lost_its_port = died && seen.exit && seen.exit->port_taken;
  if (lost_its_port) ++job_.ports_lost;
  const bool too_often = lost_its_port && job_.ports_lost > kFreePortsLost && !job_.still_since;
  const bool spared = task.spared_attempt == task.attempt && !too_often;
  if (died && !spend_restart(seen.reason, spared, &task)) return;
  job::RestartBackoff wait;
  wait.reset_after = 0s;
  job_.not_before = now + job::backoff_delay(wait, std::max(job_.stage_failures, job_.ports_lost), jitter_seed(job_));
  ++job_.stage_failures;
  halt(Halt::replace, false, true);
  job_.reason = seen.reason;
  cut(job_.reason, limits::kReasonBytes);
  task_event(task, "stage-failed", seen.reason);
}

}  // namespace dtrain::cluster
