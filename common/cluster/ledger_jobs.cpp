// The ledger's part that users drive: submit and the actions on jobs.
#include <algorithm>

#include "common/base/limits.h"
#include "common/cluster/cluster_change.h"
#include "common/cluster/job_transition.h"
#include "common/cluster/ledger.h"
#include "common/cluster/outcome.h"

namespace dtrain::cluster {
namespace {

// Limit of one user, so that nobody takes all of limits::kActiveJobs from others.
constexpr std::size_t kActiveJobsOfUser = limits::kActiveJobs / 2;

constexpr std::size_t kShownOfDigest = 12;  // everybody may read the history, and knowing a whole digest is enough to get the package

bool same(const job::User& a, const job::User& b) { return a.uid == b.uid && a.name == b.name; }

std::string verb(ActionKind kind) {
  switch (kind) {
    case ActionKind::cancel: return "cancel";
    case ActionKind::suspend: return "suspend";
    case ActionKind::resume: return "resume";
    case ActionKind::restart: return "restart";
    case ActionKind::scale: return "scale";
    case ActionKind::remove: return "delete";
    case ActionKind::rerun: return "rerun";
  }
  return "";
}

// What was asked for besides the verb.
std::string wish(const JobAction& c) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (c.task) add("task " + c.task->text());
  if (c.kind == ActionKind::scale) add(c.role + " to " + std::to_string(c.replicas));
  if (c.from_scratch) add("from scratch");
  if (!c.package_digest.empty()) add("with package " + c.package_digest.substr(0, kShownOfDigest));
  if (c.force) add("whatever its state");
  return text;
}

}  // namespace

void Ledger::audit(WallTime wall, const std::optional<Asker>& asker, JobId job, const std::string& verb, std::string object,
                   std::string reason, std::vector<EventField> details) {
  if (!asker) return;
  details.insert(details.end(), {{"user", asker->user}, {"uid", std::to_string(asker->uid)}, {"at", asker->at}, {"outcome", "accepted"}});
  add_event(wall, job, "audit." + verb, std::move(object), std::move(reason), std::move(details));
}

void Ledger::drop_oldest_finished(WallTime wall) {
  if (state_.jobs.size() <= limits::kFinishedJobs) return;
  std::size_t finished = 0;
  JobId oldest = 0;
  for (const auto& [id, job] : state_.jobs) {
    if (!is_final(job.state)) continue;
    ++finished;
    if (oldest == 0 && job.nothing_runs()) oldest = id;
  }
  if (finished > limits::kFinishedJobs && oldest != 0) forget(oldest, wall);
}

// What all jobs take of the limits, and those of one user.
struct Ledger::Usage {
  std::size_t active = 0, active_own = 0;
  std::size_t bytes = 0, bytes_own = 0;  // of job files
};

Ledger::Usage Ledger::usage(const job::User& user) const {
  Usage used;
  for (const auto& [id, job] : state_.jobs) {
    const bool active = !is_final(job.state), own = same(job.user, user);
    used.active += active ? 1 : 0;
    used.active_own += active && own ? 1 : 0;
    used.bytes += job.submitted_spec.size();
    used.bytes_own += own ? job.submitted_spec.size() : 0;
  }
  return used;
}

// Makes room by removing ended jobs of the same user, the oldest first; removes none if that is not enough. `replaced`: the job
// that goes at once, and so does not count; may be null.
Status Ledger::room_for_spec(const SubmitJob& c, const std::string& name, const JobRecord* replaced, Usage used, WallTime wall) {
  const auto free = [&](const JobRecord& job) {
    used.bytes -= job.submitted_spec.size();
    used.bytes_own -= same(job.user, c.user) ? job.submitted_spec.size() : 0;
  };
  const auto too_many = [&] { return used.bytes_own > limits::kSpecBytesOfUser || used.bytes > limits::kSpecBytes; };
  used.bytes += c.spec.size();
  used.bytes_own += c.spec.size();
  if (replaced != nullptr) free(*replaced);
  std::vector<JobId> removed;
  for (auto it = state_.jobs.begin(); too_many() && it != state_.jobs.end(); ++it) {
    const JobRecord& job = it->second;
    if (&job == replaced || job.replaced || !is_final(job.state) || !same(job.user, c.user) || !job.nothing_runs()) continue;
    free(job);
    removed.push_back(job.id);
  }
  if (!too_many()) {
    for (const JobId id : removed) forget(id, wall);
    return {};
  }
  const bool users = used.bytes_own > limits::kSpecBytesOfUser;
  return fail(ErrorCode::limit,
              "could not submit job " + name + ": with it the job files of " + (users ? "user " + c.user.name : std::string("all users")) +
                  " would take more than " + std::to_string((users ? limits::kSpecBytesOfUser : limits::kSpecBytes) >> 20) + " MiB",
              "end and delete some jobs, or put what is long into the package");
}

Applied Ledger::apply_submit(const SubmitJob& c, std::uint64_t index, WallTime wall) {
  auto spec = wire::decode_strictly<job::JobSpec>(c.spec);
  if (!spec) return refused(ErrorCode::damaged, "the job's description: " + spec.error().message);
  if (!c.request_id.empty()) {
    if (const auto known = requests_.find(c.request_id); known != requests_.end() && same(state_.jobs.at(known->second).user, c.user)) {
      Applied a = done(state_.jobs.at(known->second));
      a.unchanged = true;
      return a;
    }
  }
  if (!spec->rehearsal.empty() && broken_rule != "rehearsal-counts") ++state_.rehearsals;
  const JobId id = state_.job_base + index;
  if (spec->name.empty()) spec->name = spec->generate_name + std::to_string(id);
  const JobRecord* existing = find(spec->name);
  const bool replaced = existing != nullptr;  // it will be, or the submit is refused below
  JobId follows = 0;
  if (existing != nullptr) {
    JobRecord& old = state_.jobs.at(existing->id);
    // A job that is being deleted has given its name away, whatever is left of it.
    const bool may_replace = (c.replace && is_final(old.state)) || (old.deleting && broken_rule != "deleted-gives-its-name");
    if (!may_replace) {
      if (job::same_content(old.submitted_spec, c.spec) && same(old.user, c.user)) {
        Applied a = done(old);
        a.unchanged = true;
        return a;
      }
      return refused(
          ErrorCode::refused,
          "could not submit job " + spec->name + ": a job of that name with other content is " + std::string(to_string(old.state)),
          is_final(old.state) ? "submit with --replace, or choose another name"
                              : "choose another name, or cancel and delete that job first");
    }
    if (!same(old.user, c.user) && c.user.uid != 0 && !old.deleting) {
      Applied others =
          refused(ErrorCode::refused, "could not replace job " + spec->name + ": it belongs to " + old.user.name, "choose another name");
      others.forbidden = true;
      return others;
    }
  }
  const Usage used = usage(c.user);
  if (used.active_own >= kActiveJobsOfUser)
    return refused(ErrorCode::limit,
                   "could not submit job " + spec->name + ": " + std::to_string(used.active_own) + " jobs of user " + c.user.name +
                       " are active already",
                   "wait for some to finish, or cancel some");
  if (used.active >= limits::kActiveJobs)
    return refused(ErrorCode::limit, "could not submit job " + spec->name + ": " + std::to_string(used.active) + " jobs are active already",
                   "wait for some to finish, or cancel some");

  const bool goes_at_once = existing != nullptr && !existing->replaced && existing->nothing_runs();
  if (const Status room = room_for_spec(c, spec->name, goes_at_once ? existing : nullptr, used, wall); !room)
    return refused(room.error().code, room.error().message, room.error().next);

  if (existing != nullptr) {
    JobRecord& old = state_.jobs.at(existing->id);
    if (old.nothing_runs()) {
      forget(old.id, wall);
    } else {  // it is still ending: it goes once it is quiet, but its name is free now
      old.deleting = old.replaced = true;
      winding_.emplace(old.spec.name, old.id);
      old.leave_running = false;
      touched_.insert(old.id);
      follows = old.id;
    }
  }

  JobRecord& job = state_.jobs[id];
  job.id = id;
  job.history = history_of(state_.epoch);
  job.spec = std::move(*spec);
  job.submitted_spec = c.spec;
  job.user = c.user;
  job.request_id = c.request_id;
  job.package_host = c.package_host;
  job.created = wall;
  job.created_elapsed = state_.elapsed;
  job.follows = follows;
  names_[job.spec.name] = id;
  if (!job.request_id.empty()) requests_[job.request_id] = id;
  touched_.insert(id);
  JobTransition transition(*this, job, wall);
  if (job.spec.suspend) {
    job.goal = Goal::suspend;
    job.needs_generation = false;
    transition.set_state(JobState::suspended, "submitted suspended");
  } else {
    transition.begin_run();
  }
  const Applied result = done(job);
  audit(wall, c.asker, id, "submit", job.spec.name, replaced ? "in the place of one that has ended" : "", {{"job", job.spec.name}});
  drop_oldest_finished(wall);
  return result;
}

Applied Ledger::apply_action(const JobAction& c, WallTime wall) {
  const JobRecord* job = find(c.job);
  const std::string name = job != nullptr ? job->spec.name : "";
  const std::uint64_t version = job != nullptr ? job->version : 0;
  const bool goes_already = c.kind == ActionKind::remove && job != nullptr && job->deleting && !(c.force && job->graceful);
  const Applied result = act(c, wall);
  job = find(c.job);
  const bool changed = result.status && !goes_already && (job == nullptr || job->version != version);
  if (changed) audit(wall, c.asker, c.job, verb(c.kind), name, wish(c), {{"job", name}});
  return result;
}

const JobRecord* Ledger::find(std::string_view name) const {
  if (const auto it = names_.find(name); it != names_.end()) return find(it->second);
  // No job has the name, except those that gave it away and have not ended: returns the newest of these.
  const auto after = winding_.upper_bound({std::string(name), ~JobId{0}});
  return after == winding_.begin() || std::prev(after)->first != name ? nullptr : find(std::prev(after)->second);
}

void Ledger::forget(JobId id, WallTime wall) {
  const auto it = state_.jobs.find(id);
  if (it == state_.jobs.end()) return;
  const JobRecord& job = it->second;
  for (const auto& [task, record] : job.tasks) use_ports(record.place);
  for (auto& [node, drain] : state_.drained) drain.stays.erase(id);
  if (job.replaced) winding_.erase({job.spec.name, id});
  else names_.erase(job.spec.name);
  if (!job.request_id.empty()) requests_.erase(job.request_id);
  add_event(wall, id, "job.deleted", job.spec.name, "", {{"job", job.spec.name}});
  // that job may have waited for this end
  if (const auto next = names_.find(job.spec.name); next != names_.end()) touched_.insert(next->second);
  state_.jobs.erase(it);
  touched_.insert(id);
  forgotten_.insert(id);
}

Applied Ledger::act(const JobAction& c, WallTime wall) {
  const auto it = state_.jobs.find(c.job);
  if (it == state_.jobs.end()) return refused(ErrorCode::not_found, "could not " + verb(c.kind) + " job: it is gone");
  JobRecord& job = it->second;
  JobTransition transition(*this, job, wall);
  const bool final = is_final(job.state);
  const auto conflict = [&](const std::string& why, const std::string& next = "") {
    return refused(ErrorCode::refused, "could not " + verb(c.kind) + " job " + job.spec.name + ": " + why, next);
  };
  const std::string state(to_string(job.state));
  if (final && c.kind != ActionKind::remove && c.kind != ActionKind::rerun) {
    if (c.kind == ActionKind::cancel && job.state == JobState::cancelled) return done(job);
    return conflict("it has ended already: " + state, c.kind == ActionKind::restart ? "dtrainctl rerun " + job.spec.name : std::string());
  }

  switch (c.kind) {
    case ActionKind::cancel: transition.finish(JobState::cancelled, "cancelled by " + c.user, true); break;

    case ActionKind::suspend:
      if (job.goal == Goal::suspend) return done(job);
      job.goal = Goal::suspend;
      job.passed.clear();
      transition.leave_place(Halt::requested, "suspended by " + c.user, false);
      break;

    case ActionKind::resume:
      if (job.goal != Goal::suspend) return conflict("it is not suspended");
      job.goal = Goal::run;
      job.needs_generation = true;
      job.preempted = {};
      job.refused_by.clear();
      job.run_started.reset();  // the deadline counts anew
      job.restore_waits_since.reset();
      job.signalled = false;
      job.not_before = 0ns;
      job.reason = "resumed by " + c.user;
      job.passed.clear();  // waiting for Running now means after this
      transition.set_state(JobState::pending, job.reason);
      break;

    case ActionKind::restart: {
      if (job.goal == Goal::suspend) return conflict("it is suspended", "dtrainctl resume " + job.spec.name);
      if (c.task && !c.from_scratch && c.package_digest.empty()) {
        const auto task = job.tasks.find(*c.task);
        if (task == job.tasks.end())
          return refused(ErrorCode::not_found, "could not restart task " + c.task->text() + ": job " + job.spec.name + " has no such task",
                         "dtrainctl tasks " + job.spec.name);
        if (task->second.completed) return conflict(c.task->text() + " has completed; it is never run again");
        if (!job::is_stateful(job.spec, *c.task)) {
          task->second.restart_attempt = task->second.attempt;
          break;
        }
      }
      if (!c.package_digest.empty()) {
        job.spec.package_digest = c.package_digest;
        job.spec.package_content.clear();
        job.package_host = c.package_host;
      }
      job.from_scratch = c.from_scratch;
      job.not_before = 0ns;
      job.refused_by.clear();
      ++job.restarts;
      transition.begin_again(Halt::requested, "restarted by " + c.user);
      break;
    }

    case ActionKind::scale: {
      const auto role = job.spec.roles.find(c.role);
      if (role == job.spec.roles.end())
        return refused(ErrorCode::not_found, "could not scale job " + job.spec.name + ": it has no role " + c.role);
      const std::uint32_t wanted = wanted_replicas(job, c.role);
      const std::uint32_t before = role->second.replicas;
      if (before == c.replicas && wanted == before) return done(job);
      role->second.min_replicas = role->second.min_replicas == wanted ? c.replicas : std::min(role->second.min_replicas, c.replicas);
      role->second.replicas = c.replicas;
      job.shrunk.erase(c.role);
      job.reason = "scaled " + c.role + " from " + std::to_string(before != c.replicas ? before : wanted) + " to " +
                   std::to_string(c.replicas) + " by " + c.user;
      const bool active = job.generation > 0 && !job.needs_generation && job.goal == Goal::run;
      // If a task could notice the difference, all get a new cluster spec: a new generation.
      if (active && before != c.replicas && !scales_alone(job.spec, c.role)) transition.begin_again(Halt::scale, std::string(job.reason));
      break;
    }

    case ActionKind::remove:
      if (!final && !c.force) return conflict("its state is " + state, "cancel it first, or delete with --force");
      // A second forced delete does not wait for a task that uses up its grace.
      if (job.deleting && c.force && c.request_id != job.delete_request) job.graceful = false;
      if (!final) transition.finish(JobState::cancelled, "deleted by " + c.user, true);
      if (!job.deleting) job.delete_request = c.request_id;
      job.deleting = true;
      job.leave_running = false;
      if (job.nothing_runs()) {
        const Applied result = done(job);
        forget(job.id, wall);
        return result;
      }
      break;

    case ActionKind::rerun:
      if (!final) return conflict("its state is " + state, "rerun takes a finished job");
      if (job.deleting) return conflict("it is being deleted");
      job.leave_running = false;  // the next run begins once nothing of this one is left
      transition.begin_run();
      break;
  }
  transition.settle();
  ++job.version;
  touched_.insert(job.id);
  return done(job);
}

}  // namespace dtrain::cluster
