#include "common/node/views.h"

#include <algorithm>

#include "common/base/limits.h"
#include "common/cluster/shrink.h"
#include "common/job/cluster_spec.h"
#include "common/job/framework_roles.h"
#include "common/job/recorded_error.h"
#include "common/job/restart.h"
#include "common/node/cluster_views.h"
#include "common/node/drain_views.h"
#include "common/node/gpu_ids.h"
#include "common/node/host_capacities.h"
#include "common/node/orders.h"
#include "common/transfer/shares.h"
#include "common/wire/codec.h"

namespace dtrain::node {
namespace {

using cluster::JobRecord;
using cluster::TaskRecord;
using job::TaskState;

constexpr std::size_t kEventsInDescription = 20;

wire::ExitView exit_view(const job::Exit& e) {
  wire::ExitView v;
  if (e.signal != 0) v.signal = job::signal_name(e.signal);
  else if (!e.unknown) v.code = e.code;
  if (!e.cause.empty()) v.cause = e.cause;
  if (e.with_host) v.cause = "its host was stopped";
  if (e.out_of_memory) v.cause = "out of memory";
  return v;
}

// Clocks of hosts may differ, so the result is never negative.
std::int64_t seconds_between(WallTime from, WallTime to) {
  return std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::seconds>(to - from).count());
}

std::string address_text(const job::TaskAddress& a) { return a.port == 0 ? a.host : a.text(); }

const Gpu* find_gpu(const HostFacts& host, std::uint32_t index) {
  const auto it = std::ranges::find(host.gpus, index, &Gpu::index);
  return it == host.gpus.end() ? nullptr : &*it;
}

bool is_ready(const JobRecord& job, const TaskId& id, const TaskRecord& t) {
  if (t.state != TaskState::running) return false;
  return job.spec.roles.at(id.role).notify ? t.ready : true;
}

std::string stands_still(const JobRecord& job) {
  if (!job.still_since || is_final(job.state)) return "";
  std::string because = job.must_be_frozen;
  for (const auto& [id, t] : job.tasks)
    if (t.lease_frozen && !t.ended && because.empty()) because = id.text() + " is frozen for want of a lease";
  return because + "; restarts wait, and no time or budget is counted meanwhile";
}

// "worker-0, worker-1, worker-2 and 5 more".
std::string few_of(const std::vector<std::string>& names) {
  static constexpr std::size_t kNamed = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kNamed); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() <= kNamed ? text : text + " and " + std::to_string(names.size() - kNamed) + " more";
}

// The tasks for which the staged ones wait, by their roles' startAfter.
std::string waits_for_tasks(const JobRecord& job) {
  if (job.goal != cluster::Goal::run || job.halt != cluster::Halt::none || is_final(job.state)) return "";
  for (const auto& [id, t] : job.tasks) {
    if (t.ended || t.state != TaskState::staged) continue;
    for (const auto& [role, need] : job.spec.roles.at(id.role).start_after) {
      std::vector<std::string> others;
      for (const auto& [other, record] : job.tasks)
        if (other.role == role && !has_reached(job, other, record, need)) others.push_back(other.text());
      if (others.empty()) continue;
      const std::string names = few_of(others);
      const bool by_notify = need == job::StartAfter::ready && job.spec.roles.at(role).notify;
      const char* what = need == job::StartAfter::succeeded ? " to succeed" : " to run";
      return id.text() + " waits for " + (by_notify ? "READY=1 of " + names : names + what);
    }
  }
  return "";
}

// Of a job that is over, suspended or leaving its place: the tasks that have not ended yet; "": all have.
std::string still_ends(const JobRecord& job) {
  if (!is_final(job.state) && job.goal == cluster::Goal::run && job.halt == cluster::Halt::none) return "";
  std::vector<std::string> names;
  for (const auto& [id, t] : job.tasks)
    if (!t.ended && !runs_on(t)) names.push_back(id.text());
  return names.empty() ? "" : few_of(names) + (names.size() == 1 ? " has" : " have") + " not ended yet";
}

// True if nobody has coordinated for longer than the task's lease: the task is frozen wherever it is, because nobody
// can renew the lease.
bool lease_is_over(const Context& c, const TaskRecord& t) {
  return !t.ended && t.lease > 0ns && t.state == TaskState::running && without_leader(c) && c.last_led != Instant{} &&
         c.now.boot - c.last_led >= t.lease;
}

// What the ledger does not conclude: that the host of a task is away, that nobody coordinates, or that somebody stopped a process. "":
// none.
std::string nothing_is_heard(const Context& c, const JobRecord& job) {
  for (const auto& [id, t] : job.tasks)
    if (lease_is_over(c, t)) return "nobody coordinates, and " + id.text() + " stands still until its lease is renewed";
  for (const auto& [id, t] : job.tasks) {
    if (t.ended || t.state != TaskState::running) continue;
    if (t.process_stopped) return id.text() + ": " + t.reason;
    if (t.place.node == c.facts.id) continue;
    const auto state = host_state(c, t.place.node);
    if (state == wire::MemberState::down || state == wire::MemberState::dead)
      return "host " + host_name(c, t.place.node) + " is " + state_text(state) + ", and nothing is heard of " + id.text();
  }
  return "";
}

std::string why_no_progress(const Context& c, const JobRecord& job) {
  if (const std::string ends = still_ends(job); !ends.empty())
    return job.goal == cluster::Goal::suspend ? "it is being suspended: " + ends : job.reason + (job.reason.empty() ? "" : "; ") + ends;
  if (std::string what = waiting_for(c, job, ""); !what.empty()) return what;
  if (!job.reason.empty()) return job.reason;
  return job.generation == 0 ? "it has no place yet" : "its state is " + title(to_string(job.state));
}

// Why the job does not begin although nothing of it runs, as the coordinator noted in the ledger when this wait began.
std::string as_the_ledger_says(const Context& c, const JobRecord& job) {
  const bool waits = job.goal == cluster::Goal::run && !is_final(job.state) && job.needs_generation && job.nothing_runs();
  if (!waits || c.serving || job.reason.empty() || job.not_before > c.elapsed()) return "";
  const auto holder = ledger_holder(c);
  const bool known = holder && holder->alive;
  return job.reason + " (from when it began to wait this way; " +
         (known ? "the coordinator " + holder->name + " has the numbers of now)" : "nobody coordinates now)");
}

std::map<TaskId, job::RankRange> ranks_in(const JobRecord& job) {
  std::vector<TaskId> tasks;
  for (const auto& entry : job.tasks) tasks.push_back(entry.first);
  return job::rank_ranges(job.spec, std::move(tasks));
}

std::optional<wire::RanksView> ranks_view(const std::map<TaskId, job::RankRange>& ranks, const TaskId& task) {
  const auto found = ranks.find(task);
  return found == ranks.end() ? std::nullopt : std::optional(wire::RanksView{found->second.first, found->second.count});
}

}  // namespace

std::string title(std::string_view state) {
  std::string text(state);
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

bool is_over(const JobRecord& job) {
  return is_final(job.state) &&
         std::all_of(job.tasks.begin(), job.tasks.end(), [](const auto& entry) { return entry.second.ended || runs_on(entry.second); });
}

wire::JobView job_view(const Context& c, const JobRecord& job) {
  wire::JobView v;
  v.name = job.spec.name;
  v.id = job.id;
  v.state = title(to_string(job.state));
  v.framework = job::to_string(job.spec.framework);
  v.generation = job.generation;
  v.restarts = job.restarts;
  v.reason = cluster::runs_with(job);
  if (!v.reason.empty() && !job.reason.empty()) v.reason += "; ";
  v.reason += job.reason;
  if (const std::string ends = still_ends(job); is_final(job.state) && !ends.empty()) v.reason += (v.reason.empty() ? "" : "; ") + ends;
  v.user = job.user.name;
  v.labels = job.spec.labels;
  v.progressing.value = job.progressing;
  if (job.progress_since != WallTime{}) v.progressing.since = to_rfc3339(job.progress_since);
  if (!job.progressing && !is_final(job.state)) v.progressing.why = why_no_progress(c, job);
  if (std::string unheard = job.progressing ? nothing_is_heard(c, job) : ""; !unheard.empty()) {
    v.progressing = {false, "", std::move(unheard)};
    if (std::ranges::any_of(job.tasks, [&](const auto& entry) { return lease_is_over(c, entry.second); }))
      v.state = title(to_string(cluster::JobState::recovering));
  }
  v.age_s = std::chrono::duration_cast<std::chrono::seconds>(c.elapsed() - job.created_elapsed).count();
  // Of this run: conditions begin anew with each.
  const auto begun = std::ranges::find(job.conditions, cluster::JobState::pending, &cluster::Condition::type);
  v.duration_s = seconds_between(begun == job.conditions.end() ? job.created : begun->at, is_final(job.state) ? job.finished : c.now.wall);
  for (const auto& [name, role] : job.spec.roles) v.roles[name].desired = cluster::wanted_replicas(job, name);
  for (const auto& [id, t] : job.tasks) {
    const auto role = v.roles.find(id.role);
    if (role == v.roles.end()) continue;
    role->second.ready += is_ready(job, id, t) ? 1 : 0;
    role->second.running += t.state == TaskState::running ? 1 : 0;
    role->second.succeeded += t.state == TaskState::succeeded ? 1 : 0;
    role->second.failed += t.state == TaskState::failed ? 1 : 0;
  }
  return v;
}

std::optional<wire::RestoredView> restored_view(const JobRecord& job) {
  if (!job.restored) return std::nullopt;
  return wire::RestoredView{job.restored->path, job.restored->step};
}

std::vector<wire::TaskView> task_views(const Context& c, const JobRecord& job) {
  std::vector<wire::TaskView> views;
  const auto ranks = ranks_in(job);
  for (const auto& [id, t] : job.tasks) {
    wire::TaskView v;
    v.ranks = ranks_view(ranks, id);
    v.task = id.text();
    v.role = id.role;
    v.index = id.index;
    v.state = title(job::to_string(t.state));
    v.node = host_name(c, t.place.node);
    v.pid = t.pid;
    v.address = address_text(t.place.address);
    v.attempt = t.attempt;
    if (t.exit) v.exit = exit_view(*t.exit);
    const HostFacts host = t.place.gpus.empty() ? HostFacts{} : facts_of_host(c, t.place.node);
    for (const std::uint32_t index : t.place.gpus) {
      const auto* gpu = find_gpu(host, index);
      v.gpus.push_back(gpu != nullptr && !gpu->pci.empty() ? gpu->pci : std::to_string(index));
    }
    if (t.attempt >= t.first_attempt && t.started != WallTime{}) v.started_at = to_rfc3339(t.started);
    if (const auto seen = c.seen_here.find({job.id, job.generation, id}); seen != c.seen_here.end()) {
      v.status = seen->second.status;
      v.pids = seen->second.pids;
    }
    v.reason = t.reason;
    // The task is frozen on a host that cannot report it.
    if (!t.ended && t.lease > 0ns && t.state == TaskState::running && t.place.node == job.frozen_on) {
      v.state = title(job::to_string(TaskState::frozen));
      v.reason = job.must_be_frozen;
    }
    if (lease_is_over(c, t)) {
      v.state = title(job::to_string(TaskState::frozen));
      v.reason = "nobody coordinates; it goes on when its lease is renewed";
    }
    // Known here before the ledger can know it.
    const task::Task* here = c.host == nullptr ? nullptr : c.host->find({job.id, job.generation, id});
    if (here != nullptr && here->lease_frozen()) {
      v.state = title(job::to_string(TaskState::frozen));
      v.reason = "no word from the council; it goes on when its lease is renewed";
    }
    v.ready = is_ready(job, id, t);
    views.push_back(std::move(v));
  }
  return views;
}

wire::EventView event_view(const cluster::LedgerEvent& e) {
  wire::EventView v;
  v.seq = e.seq;
  v.time = to_rfc3339(e.at);
  v.type = e.type;
  v.object = e.object;
  v.reason = e.reason;
  for (const auto& d : e.details) v.message += (v.message.empty() ? "" : " ") + d.key + "=" + d.value;
  return v;
}

namespace {

// What of its shares is within reach now, and which host has what.
struct SharesNow {
  bool whole = false;
  std::string text;
};

SharesNow shares_now(const Context& c, const cluster::CheckpointRecord& r) {
  std::string text;
  std::vector<const transfer::Shares*> here;
  bool all_here = true, noted = true;
  for (const cluster::CheckpointPlace& p : r.places) {
    const auto state = host_state(c, p.host);
    const bool gone = is_gone(c, p.host), in_service = !gone && state && wire::in_service(*state);
    text += (text.empty() ? "" : ", ") + host_name(c, p.host);
    if (!in_service) text += " (" + (gone ? "gone for good" : state_text(state)) + ")";
    all_here = all_here && in_service;
    noted = noted && !p.shares.files.empty();
    if (in_service) here.push_back(&p.shares);
    if (p.shares.files.empty()) continue;
    text += " has " + p.shares.files.front().name;
    if (p.shares.files.size() > 1) text += " and " + std::to_string(p.shares.files.size() - 1) + " more";
  }
  if (!r.info.complete || all_here) return {r.info.complete, r.info.defect.empty() ? text : r.info.defect + ": " + text};
  if (noted && transfer::together(transfer::format_of(r.info.format), here).whole()) return {true, text};
  return {false, "not all of it is on hosts that are alive: " + text};
}

}  // namespace

std::vector<wire::CheckpointView> checkpoint_views(const Context& c, const JobRecord& job) {
  static constexpr const char* kStates[] = {"complete", "verified", "damaged", "quarantined", "deleted", "incomplete"};
  std::vector<wire::CheckpointView> views;
  for (const auto& r : job.checkpoints) {
    const bool shares = r.state == cluster::CheckpointState::shares;
    const SharesNow now = shares ? shares_now(c, r) : SharesNow{false, r.info.defect};
    views.push_back({r.info.path, r.info.step, r.generation, now.whole ? "together" : kStates[static_cast<int>(r.state)], r.info.bytes,
                     to_rfc3339(r.seen), now.text, r.info.digest});
  }
  return views;
}

namespace {

// Hides what gives access to something, or may: users pass tokens to training in its environment.
void hide_secrets(job::JobSpec& spec) {
  spec.package_digest.clear();
  spec.package_content.clear();
  job::for_each_env(spec, [](auto& env) {
    for (auto& [name, value] : env) value = "(hidden)";
  });
}

}  // namespace

std::string waiting_for(const Context& c, const JobRecord& job, std::string coordinator) {
  std::string what = std::move(coordinator);
  if (what.empty()) what = waits_for_host(c, job);
  if (what.empty()) what = stays_on_drained(c, job);
  if (what.empty() && job.preempted.by != 0 && !is_final(job.state))
    what = "preempted by " + job.preempted.name + (job.nothing_runs() ? "" : "; its tasks end with their stop grace");
  if (what.empty()) what = stands_still(job);
  if (what.empty() && job.stage_failures > 0 && job.state == cluster::JobState::pending) what = job.reason;
  if (what.empty()) what = waits_for_tasks(job);
  if (what.empty()) what = as_the_ledger_says(c, job);
  return what;
}

wire::JobDescription description(const Context& c, const JobRecord& job, std::string coordinator, bool owned) {
  wire::JobDescription d;
  d.job = job_view(c, job);
  d.tasks = task_views(c, job);
  job::JobSpec shown = job.spec;
  if (!owned) hide_secrets(shown);
  d.spec = wire::encode(shown);
  for (const auto& condition : job.conditions)
    d.conditions.push_back({condition.type == cluster::JobState::pending ? "Created" : title(to_string(condition.type)), condition.status,
                            to_rfc3339(condition.at), condition.reason, seconds_between(condition.at, c.now.wall)});
  d.restored = restored_view(job);
  if (const auto& f = job.first_fault)
    d.first_fault = wire::FaultView{f->task.text(),
                                    host_name(c, f->node),
                                    to_rfc3339(f->exit.ended != WallTime{} ? job::failed_at(f->exit) : f->at),
                                    job::describe(f->exit),
                                    f->generation,
                                    f->attempt,
                                    exit_view(f->exit),
                                    owned ? f->exit.stderr_tail : "",
                                    job::failed_rank(f->exit),
                                    owned && f->exit.recorded ? f->exit.recorded->message : "",
                                    owned && f->exit.recorded ? f->exit.recorded->stack : ""};
  d.waiting_for = waiting_for(c, job, std::move(coordinator));
  const auto& events = c.ledger.events();
  for (auto it = events.rbegin(); it != events.rend() && d.events.size() < kEventsInDescription; ++it)
    if (it->job == job.id) d.events.push_back(event_view(*it));
  std::reverse(d.events.begin(), d.events.end());
  return d;
}

Result<std::vector<wire::TaskSpecView>> task_spec_views(const Context& c, const JobRecord& job, const std::string& only) {
  job::ClusterView cluster{job.spec.name, job.id, job.generation, {}, job.restored};
  for (const auto& [id, t] : job.tasks) cluster.tasks[id] = t.place.address;
  std::vector<wire::TaskSpecView> views;
  const auto ranks = ranks_in(job);
  std::size_t bytes = 0;
  for (const auto& [id, t] : job.tasks) {
    if (!only.empty() && id.text() != only) continue;
    if (bytes >= limits::kAnswerPageBytes)
      return fail(ErrorCode::limit,
                  "could not show what each of " + std::to_string(job.tasks.size()) +
                      " tasks is given: the arguments and environments of the first " + std::to_string(views.size()) + " take " +
                      std::to_string(bytes >> 20) + " MiB already",
                  "ask for fewer tasks: cluster-spec J --task T, or a plan with fewer replicas");
    job::TaskView view;
    view.task = id;
    const HostFacts host = facts_of_host(c, t.place.node);
    view.node = host_name(c, t.place.node);
    view.interface = host.task_interface;
    view.user = job.user.name;
    view.pass_env = c.options.pass_env;
    view.in_image = !job.spec.roles.at(id.role).image.empty() && host.images != job::kImagesOnHost;
    view.gpu_ids = gpu_ids(host.gpus, t.place.gpus);
    auto rendered = job::render(job.spec, cluster, view);
    if (!rendered) return fail(rendered.error());
    views.push_back({id.text(),
                     host_name(c, t.place.node),
                     address_text(t.place.address),
                     std::move(rendered->argv),
                     std::move(rendered->env),
                     job::work_dir_of(job.spec, id.role),
                     {},
                     ranks_view(ranks, id)});
    for (const std::string& argument : views.back().argv) bytes += argument.size();
    for (const auto& [name, value] : views.back().env) bytes += name.size() + value.size();
    for (const std::uint32_t index : t.place.gpus) views.back().gpus.push_back(std::to_string(index));
  }
  return views;
}

}  // namespace dtrain::node
