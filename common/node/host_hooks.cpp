#include "common/node/host_hooks.h"

#include <algorithm>
#include <charconv>

#include "common/base/duration_text.h"
#include "common/node/host_health.h"

namespace dtrain::node {
namespace {

using cluster::JobRecord;

constexpr const char* kPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

// Why the program failed: "prolog ended with 3: /scratch is full"; "": it succeeded.
std::string problem_of(const std::string& what, const HookEnded& e) {
  const job::Exit& exit = e.exit;
  if (exit.success()) return "";
  std::string cause = exit.cause;
  if (e.timed_out) cause = "did not end within " + duration_text(kHostHookTime) + ", and was killed";
  else if (!cause.empty()) cause = "could not be run: " + cause;
  return why_failed(what, exit.code, exit.signal, cause, exit.stderr_tail);
}

}  // namespace

void HostHooks::restore(const std::string& key, const std::string& bytes) {
  JobId id = 0;
  std::from_chars(key.data(), key.data() + key.size(), id);
  auto note = wire::decode<Note>(bytes);
  if (!note) note = Note{};  // its epilog runs all the same
  JobHere& here = jobs_[id];
  here.note = std::move(*note);
  here.note.ready = here.note.ready && here.note.boot_id == c_.facts.boot_id;
  here.noted = true;
  if (here.note.problem.empty() || c_.options.epilog.empty()) return;
  here.owed = true;
  here.again = c_.now.boot;
  set_problem(here, here.note.problem);
}

std::set<std::uint32_t> HostHooks::gpus_here(JobId id) const {
  std::set<std::uint32_t> gpus;
  if (const JobRecord* job = c_.ledger.find(id))
    for (const auto& [task, t] : job->tasks)
      if (t.place.node == c_.facts.id && !t.ended) gpus.insert(t.place.gpus.begin(), t.place.gpus.end());
  return gpus;
}

void HostHooks::begin(const StagedTask& task) {
  const AssignmentId& id = task.stage.id;
  if (!configured() && !jobs_.contains(id.job)) return pass(id);
  const auto it = jobs_.try_emplace(id.job).first;
  JobHere& here = it->second;
  here.note.name = task.stage.job_name;
  here.note.user = task.stage.user.name;
  std::set<std::uint32_t> gpus = gpus_here(id.job);
  gpus.insert(here.note.gpus.begin(), here.note.gpus.end());
  const bool more = gpus != here.note.gpus;
  here.note.gpus = std::move(gpus);
  if (c_.options.broken_rule == "prolog-first") return pass(id);
  // The prolog does not run again for further GPUs, because its tasks run by now; the epilog is told of them.
  if (more && (here.noted || here.ticket != 0) && here.hook != Hook::epilog) write_note(it, false);
  if (!here.said.empty()) wait(id, here.said);
  here.waiting.insert(id);
  advance(it);
}

void HostHooks::give_up(const AssignmentId& id) {
  if (const auto here = jobs_.find(id.job); here != jobs_.end()) here->second.waiting.erase(id);
}

std::size_t HostHooks::running() const {
  return static_cast<std::size_t>(std::ranges::count_if(jobs_, [](const auto& entry) { return entry.second.hook != Hook::none; }));
}

// True if nothing of the job is here now but its next generation may come, after a recovery or because another host refused it.
bool HostHooks::comes_back(JobId id) const {
  const JobRecord* job = c_.ledger.find(id);
  if (job == nullptr || is_final(job->state) || job->deleting || job->goal != cluster::Goal::run || !job->needs_generation) return false;
  return std::ranges::any_of(job->tasks, [&](const auto& entry) { return entry.second.place.node == c_.facts.id; });
}

// When the job's epilog runs; nullopt: not while things stay as they are.
std::optional<Instant> HostHooks::leaves_at(JobId id, const JobHere& here) const {
  if (here.hook != Hook::none || here.ticket != 0 || !here.waiting.empty()) return std::nullopt;
  if (here.owed) return here.again;
  if (!c_.current || c_.host == nullptr) return std::nullopt;
  if (c_.options.broken_rule != "epilog-last") {
    if (!c_.host->quiet(id)) return std::nullopt;
    if (const JobRecord* job = c_.ledger.find(id))
      for (const auto& [task, t] : job->tasks)
        if (t.place.node == c_.facts.id && !t.ended) return std::nullopt;
  }
  if (!here.note.ready || !comes_back(id) || is_awaited(id, here)) return c_.now.boot;
  return here.left ? *here.left + kEpilogHeldFor : kNever;
}

// True if another job waits for this job's GPUs.
bool HostHooks::is_awaited(JobId id, const JobHere& here) const {
  return std::ranges::any_of(jobs_, [&](const auto& entry) {
    return entry.first != id && !entry.second.waiting.empty() &&
           std::ranges::any_of(entry.second.note.gpus, [&](std::uint32_t gpu) { return here.note.gpus.contains(gpu); });
  });
}

const HostHooks::JobHere* HostHooks::before(JobId id, const JobHere& here) const {
  if (here.note.gpus.empty() || c_.options.epilog.empty()) return nullptr;
  for (const auto& [other, there] : jobs_) {
    if (other == id || (there.hook != Hook::epilog && !leaves_at(other, there))) continue;
    if (std::ranges::any_of(there.note.gpus, [&](std::uint32_t gpu) { return here.note.gpus.contains(gpu); })) return &there;
  }
  return nullptr;
}

// Does the next step that can be done for the job.
void HostHooks::advance(Jobs::iterator it) {
  JobHere& here = it->second;
  if (!here.waiting.empty() && (here.owed || here.stuck)) return refuse_all(it, here.problem);
  if (here.hook == Hook::epilog) return say(it, "waits for the end of this job's epilog on this host");
  if (here.hook != Hook::none || here.ticket != 0) return;
  if (here.waiting.empty()) {
    const auto leaves = leaves_at(it->first, here);
    if (!leaves) {
      here.left.reset();
    } else if (*leaves > c_.now.boot) {
      if (!here.left) here.left = c_.now.boot;
    } else if (!c_.options.epilog.empty() && here.note.ready && !c_.options.prolog.empty()) {
      // also for the agent's next life, which must run the prolog again: by then the epilog may have undone half of
      // it
      here.note.ready = false;
      write_note(it, true);
    } else if (!c_.options.epilog.empty()) {
      run(it, Hook::epilog);
    } else {
      epilog_ended(it, "");
    }
    return;
  }
  here.left.reset();
  if (const JobHere* other = before(it->first, here)) {
    if (other->owed) return refuse_all(it, other->problem);
    return say(it, "waits for the epilog of job " + other->note.name + " on this host");
  }
  if (!here.noted) {
    here.note.ready = c_.options.prolog.empty();
    here.note.boot_id = c_.facts.boot_id;
    return write_note(it, true);
  }
  if (needs_prolog(here)) return run(it, Hook::prolog);
  release(it);
}

void HostHooks::write_note(Jobs::iterator it, bool wait) {
  const std::uint64_t ticket = put_note(std::to_string(it->first), wire::encode(it->second.note));
  if (wait) it->second.ticket = ticket;
}

void HostHooks::persisted(std::uint64_t ticket) {
  const auto it = std::ranges::find_if(jobs_, [&](const auto& entry) { return entry.second.ticket == ticket; });
  if (it == jobs_.end()) return;
  it->second.ticket = 0;
  it->second.noted = true;
  advance(it);
}

void HostHooks::run(Jobs::iterator it, Hook hook) {
  JobHere& here = it->second;
  if (hook == Hook::prolog) say(it, "runs the prolog of this host");
  if (running() >= kHostHooksAtOnce) return;  // drive() continues later
  const bool prolog = hook == Hook::prolog;
  std::string gpus;
  for (const std::uint32_t gpu : here.note.gpus) gpus += (gpus.empty() ? "" : ",") + std::to_string(gpu);
  here.hook = hook;
  here.token = c_.tickets.give(this);
  here.began = c_.now.boot;
  here.left.reset();
  c_.emit(RunHook{here.token,
                  {prolog ? c_.options.prolog : c_.options.epilog},
                  {{"DTRAIN_HOOK", prolog ? "prolog" : "epilog"},
                   {"DTRAIN_JOB", here.note.name},
                   {"DTRAIN_JOB_ID", std::to_string(it->first)},
                   {"DTRAIN_USER", here.note.user},
                   {"DTRAIN_NODE", c_.facts.name},
                   {"DTRAIN_GPUS", gpus},
                   {"PATH", kPath},
                   {"LC_ALL", "C.UTF-8"}},
                  std::nullopt,
                  kHostHookTime});
}

void HostHooks::hook_ended(const HookEnded& e) {
  const auto it =
      std::ranges::find_if(jobs_, [&](const auto& entry) { return entry.second.hook != Hook::none && entry.second.token == e.token; });
  if (it == jobs_.end()) return;
  JobHere& here = it->second;
  const bool prolog = std::exchange(here.hook, Hook::none) == Hook::prolog;
  const std::string what = prolog ? "prolog" : "epilog";
  const std::string problem = problem_of(what, e);
  here.stuck = false;
  c_.log.write(problem.empty() ? LogLevel::info : LogLevel::warn, problem.empty() ? "hook.ended" : "hook.failed",
               {{"hook", what}, {"job", here.note.name}, {"reason", problem.empty() ? what + " succeeded" : problem}});
  prolog ? prolog_ended(it, problem) : epilog_ended(it, problem);
}

void HostHooks::prolog_ended(Jobs::iterator it, const std::string& problem) {
  JobHere& here = it->second;
  set_problem(here, "");
  if (!problem.empty()) return refuse_all(it, problem);
  here.note.ready = true;
  here.note.boot_id = c_.facts.boot_id;
  write_note(it, true);
}

void HostHooks::epilog_ended(Jobs::iterator it, const std::string& problem) {
  JobHere& here = it->second;
  here.owed = !problem.empty();
  if (here.owed) {
    here.again = c_.now.boot + kEpilogAgainEvery;
    here.note.problem = "epilog of job " + here.note.name + problem.substr(std::string("epilog").size());
    set_problem(here, here.note.problem);
    write_note(it, false);
    return advance(it);
  }
  set_problem(here, "");
  erase_note(std::to_string(it->first));
  if (here.waiting.empty()) {
    jobs_.erase(it);
    return;
  }
  here.noted = here.note.ready = false;
  here.note.problem.clear();
  here.note.gpus = gpus_here(it->first);
  advance(it);
}

void HostHooks::release(Jobs::iterator it) {
  say(it, "");
  for (const AssignmentId& id : std::exchange(it->second.waiting, {})) pass(id);
}

void HostHooks::refuse_all(Jobs::iterator it, const std::string& reason) {
  it->second.said.clear();
  const Error error{ErrorCode::unavailable, "could not begin " + it->second.note.name + " on host " + c_.facts.name + ": " + reason,
                    "it is placed elsewhere"};
  for (const AssignmentId& id : std::exchange(it->second.waiting, {})) refuse(id, error, reason);
}

void HostHooks::say(Jobs::iterator it, const std::string& reason) {
  if (std::exchange(it->second.said, reason) == reason) return;
  for (const AssignmentId& id : it->second.waiting) wait(id, reason);
}

void HostHooks::set_problem(JobHere& here, std::string problem) {
  if (here.problem.empty() && !problem.empty()) c_.fell_sick.push_back(problem);
  here.problem = std::move(problem);
}

std::string HostHooks::unfit() const {
  std::string text;
  std::size_t others = 0;
  for (const auto& [id, here] : jobs_) {
    if (here.problem.empty()) continue;
    if (text.empty()) text = here.problem;
    else ++others;
  }
  if (others > 0) text += "; likewise of " + std::to_string(others) + (others == 1 ? " other job" : " other jobs");
  return text;
}

void HostHooks::drive() {
  for (auto next = jobs_.begin(); next != jobs_.end();) {
    const auto it = next++;
    JobHere& here = it->second;
    if (here.hook != Hook::none && !here.stuck && here.began + kHostHookTime + kHostHookDies <= c_.now.boot) {
      here.stuck = true;
      set_problem(here, std::string(here.hook == Hook::prolog ? "prolog" : "epilog") + " of job " + here.note.name +
                            " did not end within " + duration_text(kHostHookTime) + ", and cannot be killed");
    }
    advance(it);
  }
}

Instant HostHooks::deadline() const {
  Instant next = kNever;
  const bool room = running() < kHostHooksAtOnce;
  for (const auto& [id, here] : jobs_) {
    if (here.hook != Hook::none && !here.stuck) next = std::min(next, here.began + kHostHookTime + kHostHookDies);
    const auto leaves = leaves_at(id, here);
    if (leaves == kNever) next = std::min(next, c_.now.boot);  // drive() notes since when nothing of the job is here
    else if (leaves && room) next = std::min(next, *leaves);
  }
  return next;
}

}  // namespace dtrain::node
