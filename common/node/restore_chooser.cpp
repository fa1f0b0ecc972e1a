#include "common/node/restore_chooser.h"

#include <algorithm>
#include <utility>

#include "common/base/duration_text.h"
#include "common/node/cluster_members.h"
#include "common/node/host_capacities.h"

namespace dtrain::node {
namespace {

using cluster::CheckpointSeen;
using cluster::CheckpointState;
using cluster::CommandType;
using cluster::JobRecord;
using cluster::RestoreChoice;
using StepKind = RestoreChoice::Step::Kind;

// Pause before a checkpoint directory that could not be read, here or elsewhere, is scanned again.
constexpr Duration kScanRetry = 5s, kAskAgain = 1s;
constexpr Duration kSaidAfter = 10s;  // after that an unanswered question is reported
// How often a checkpoint that cannot be read (but is not damaged) is tried; and how often a directory is scanned
// again for a beginning job if some host could not read it and the others found nothing.
constexpr std::uint32_t kUnreadableTries = 3;

std::int64_t newest_step(const JobRecord& job) {
  std::int64_t newest = -1;
  for (const cluster::CheckpointRecord& r : job.checkpoints)
    if (cluster::is_whole(r)) newest = std::max(newest, r.info.step);
  return newest;
}

bool wants_restore(const JobRecord& job) { return job.spec.checkpoint && (job.spec.checkpoint->restore != "never" || job.from_scratch); }

std::string its_agents(const std::vector<NodeId>& hosts) { return hosts.size() == 1 ? "its agent is" : "their agents are"; }

std::string from_scratch_advice(const JobRecord& job) {
  return "; dtrainctl restart " + job.spec.name + " --from-scratch gives up what was trained";
}

}  // namespace

void RestoreChooser::job_changed(const JobRecord& job) {
  if (job.goal != cluster::Goal::run || !job.needs_generation) forget(job.id);
}

// A host need not read on for a choice that nobody waits for. A quarantine is completed.
void RestoreChooser::withdraw(const Choosing& choosing) {
  if (choosing.token != 0 && choosing.choice.step().kind != StepKind::quarantine) checkpoints_.withdraw(choosing.token);
}

void RestoreChooser::forget(JobId id) {
  if (const Choosing* choosing = find(id)) withdraw(*choosing);
  choices_.erase(id);
}

void RestoreChooser::reset() {
  for (const auto& [id, choosing] : choices_) withdraw(choosing);
  choices_.clear();
}

void RestoreChooser::look_again(const std::set<JobId>& ids) {
  for (auto& [id, choosing] : choices_)
    if (choosing.retry != kNever && ids.contains(id)) choosing.retry = c_.now.boot;
}

Instant RestoreChooser::idle_until(const JobRecord& job) const {
  const auto it = choices_.find(job.id);
  const bool waits = it != choices_.end() && it->second.choice.from_scratch() == job.from_scratch && it->second.retry != kNever;
  return waits ? it->second.retry : Instant{};
}

bool RestoreChooser::asks() const {
  return std::ranges::any_of(choices_, [](const auto& entry) { return entry.second.under_way(); });
}

RestoreChooser::Choosing* RestoreChooser::find(JobId id) {
  const auto it = choices_.find(id);
  return it == choices_.end() ? nullptr : &it->second;
}

RestoreChooser::Choosing& RestoreChooser::choose(const JobRecord& job) {
  const BrokenRule& broken = c_.options.broken_rule;
  if (const Choosing* before = find(job.id)) withdraw(*before);
  RestoreChoice choice(job, {broken == "verify-before-restore", broken == "restore-by-lineage"});
  return choices_.insert_or_assign(job.id, Choosing(std::move(choice), newest_step(job))).first->second;
}

// Begins the choice anew, after a pause.
void RestoreChooser::choose_later(const JobRecord& job, std::uint32_t unreadable, Duration pause, const std::string& why) {
  Choosing& anew = choose(job);
  anew.unreadable = unreadable;
  anew.retry = c_.now.boot + pause;
  jobs_.wait(job, *jobs_.find(job.id), why);
}

RestoreChooser::State RestoreChooser::look(const JobRecord& job, WatchedJob& soft, const std::vector<cluster::TaskPlacement>& placements) {
  if (!wants_restore(job)) return State::ready;
  const auto is_over = [&](const Choosing& choosing) {
    const StepKind kind = choosing.choice.step().kind;
    return (kind == StepKind::blocked || kind == StepKind::wait) && choosing.retry <= c_.now.boot;
  };
  Choosing* known = find(job.id);
  // A host that was away may report what it has while the others scan, so the choice begins anew.
  const bool anew =
      known == nullptr || known->choice.from_scratch() != job.from_scratch || known->newest_known < newest_step(job) || is_over(*known);
  std::set<NodeId> back = returning(job, placements);
  // A choice that was made for other places is not for these.
  const bool usable = !anew && (known->looked.empty() || std::ranges::includes(known->looked, back));
  Choosing& choosing = usable ? *known : choose(job);
  choosing.returning.merge(back);
  ask(job, choosing);
  const StepKind kind = choosing.choice.step().kind;
  if (kind == StepKind::wait || kind == StepKind::blocked) return cannot_restore(job, soft, choosing);
  if (kind == StepKind::chosen || kind == StepKind::nothing) return State::ready;
  soft.look_by(choosing.retry);
  if (choosing.under_way()) report_what_takes_long(job, soft, choosing);
  return State::under_way;
}

void RestoreChooser::take(const JobRecord& job, cluster::BeginGeneration& begin) {
  if (wants_restore(job)) {
    const auto& step = choices_.at(job.id).choice.step();
    const bool chosen = step.kind == StepKind::chosen;
    if (chosen) {
      begin.restore = job::Restore{step.at.info.path, step.at.info.step};
      begin.restore_digest = step.at.info.digest;
      begin.restore_place = step.at.info.place;
    }
    begin.message = step.reason;
    if (step.newest)
      begin.message += "; steps " + std::to_string(chosen ? step.at.info.step + 1 : 0) + " to " + std::to_string(step.newest->step) +
                       " are given up: " +
                       (step.newest->part ? "a part of them is on " + hosts_text(step.newest->hosts)
                                          : "they are on " + hosts_text(step.newest->hosts) + " only");
  }
  forget(job.id);
}

// ---------------------------------------------------------------- reasons to wait

RestoreChooser::State RestoreChooser::cannot_restore(const JobRecord& job, WatchedJob& soft, Choosing& choosing) {
  const auto& step = choosing.choice.step();
  if (step.kind == StepKind::wait) {
    wait_for_newest(job, soft, choosing);
  } else if (choosing.choice.pinned()) {
    jobs_.propose(soft, job.id, CommandType::finish,
                  cluster::FinishJob{job.id, cluster::JobState::failed, "could not restore: " + step.reason});
  } else {
    // Looks again only when the user acts (restart --from-scratch changes the job) or a directory may have changed.
    if (choosing.retry == kNever) choosing.retry = c_.now.boot + kScanRetry;
    soft.look_by(choosing.retry);
    jobs_.wait(job, soft, "no checkpoint to restore: " + step.reason + from_scratch_advice(job));
  }
  return State::blocked;
}

// The job's newest checkpoint is only on hosts that are away: an older one is restored only after timing.restoreWait.
void RestoreChooser::wait_for_newest(const JobRecord& job, WatchedJob& soft, Choosing& choosing) {
  const auto& step = choosing.choice.step();
  const Duration since = job.restore_waits_since.value_or(c_.elapsed());
  const auto& away = *step.newest;
  const std::string newest = "its newest checkpoint, of step " + std::to_string(away.step) + ", ", hosts = hosts_text(away.hosts);
  std::string reason = newest + "is on " + hosts + (away.hosts.size() == 1 ? " only" : " only, which are away");
  if (away.part) reason = "a part of " + newest + "is on " + hosts + ": it goes on at once when " + its_agents(away.hosts) + " started";
  if (step.older >= 0)
    reason += (away.part ? "; it waits " : ": it waits ") + duration_text(c_.options.restore_wait) +
              " for that and then goes on from step " + std::to_string(step.older);
  else if (away.part) reason += ", and waits for that as long as it takes, since no older one can be restored";
  if (choosing.retry == kNever) {
    choosing.retry = c_.now.boot + kScanRetry;
    const Instant over = std::max(jobs_.at(since + c_.options.restore_wait), c_.now.boot + kAskAgain);
    if (step.older >= 0) choosing.retry = std::min(choosing.retry, over);
  }
  soft.look_by(choosing.retry);
  jobs_.wait(job, soft, reason + from_scratch_advice(job), true);
}

// Reports questions that take long: a disk may be slow, or hang.
void RestoreChooser::report_what_takes_long(const JobRecord& job, WatchedJob& soft, const Choosing& choosing) {
  const Instant late = choosing.asked_at + kSaidAfter;
  if (late > c_.now.boot) return soft.look_by(late);
  std::vector<NodeId> hosts;
  for (const auto& [token, host] : choosing.asked) hosts.push_back(host);
  if (choosing.token != 0) hosts.push_back(choosing.host);
  const bool looks = choosing.token == 0;
  jobs_.wait(job, soft,
             "checkpoints are looked for on " + hosts_text(hosts) + ": " +
                 (looks ? "its directory there is being read"
                        : choosing.choice.step().at.info.path +
                              (choosing.choice.step().kind == StepKind::fetch ? " is being put together" : " is being verified")));
}

std::string RestoreChooser::hosts_text(const std::vector<NodeId>& hosts) const {
  std::string text;
  for (const NodeId& host : hosts) {
    const auto state = host_state(c_, host);
    text += (text.empty() ? "" : " and ") + host_name(c_, host) + (state == wire::MemberState::alive ? "" : " (" + state_text(state) + ")");
  }
  return text;
}

// ---------------------------------------------------------------- scans

std::set<NodeId> RestoreChooser::copies_in_service() const {
  std::set<NodeId> all{c_.facts.id};
  if (!c_.among_others()) return all;
  const raft::Configuration& configuration = c_.replicated->raft().configuration();
  for (const auto* members : {&configuration.voters, &configuration.learners})
    for (const MemberId& id : *members) {
      const auto member = c_.members->table().find(id);
      if (member && wire::in_service(member->state)) all.insert(id.text());
    }
  return all;
}

// What such a host has was written before others went on without it. Its script might go on from that by itself, or fail on what a broken
// save left, so it is moved away before the host runs the job again.
std::set<NodeId> RestoreChooser::returning(const JobRecord& job, const std::vector<cluster::TaskPlacement>& placements) const {
  const std::set<NodeId> all = copies_in_service();
  std::set<NodeId> hosts;
  for (const cluster::TaskPlacement& place : placements) {
    const auto ran = job.ran.find(place.node);
    if (ran != job.ran.end() && ran->second != job.generation && all.contains(place.node)) hosts.insert(place.node);
  }
  return hosts;
}

std::set<NodeId> RestoreChooser::hosts_to_ask(const JobRecord& job, const Choosing& choosing) const {
  const std::set<NodeId> all = copies_in_service();
  if (choosing.everywhere) return all;
  // First the hosts of its last generation, those that have the newest checkpoint that is known, and those that are to run it again.
  std::set<NodeId> likely;
  const cluster::CheckpointRecord* newest = nullptr;
  for (const auto& r : job.checkpoints)
    if (cluster::is_good(r.state) && !r.places.empty() && !job.is_stale(r.generation, r.info.step) &&
        transfer::is_in(r.info, job.spec.checkpoint->dir) && (newest == nullptr || r.info.step > newest->info.step))
      newest = &r;
  for (const NodeId& host : all) {
    const auto ran = job.ran.find(host);
    const bool last = ran != job.ran.end() && ran->second == job.generation;
    const bool has = newest != nullptr && std::ranges::any_of(newest->places, [&](const auto& p) { return p.host == host; });
    if (last || has || choosing.returning.contains(host)) likely.insert(host);
  }
  return likely;
}

void RestoreChooser::ask_hosts(const JobRecord& job, Choosing& choosing) {
  const bool parent = choosing.choice.step().kind == StepKind::scan_parent;
  const bool pinned = choosing.choice.pinned();
  if (pinned || job.generation == 0 || job.from_scratch) choosing.everywhere = true;
  std::set<NodeId> hosts = hosts_to_ask(job, choosing);
  if (hosts.empty()) {
    choosing.everywhere = true;
    hosts = hosts_to_ask(job, choosing);
  }
  job::CheckpointSpec spec = *job.spec.checkpoint;
  if (pinned) spec.dir = parent ? spec.restore.substr(0, std::max<std::size_t>(spec.restore.rfind('/'), 1)) : spec.restore;
  for (const NodeId& host : hosts) {
    if (!choosing.looked.insert(host).second) continue;
    const std::uint64_t token = c_.tickets.give(&part_);
    choosing.asked[token] = host;
    choosing.asked_at = c_.now.boot;
    checkpoints_.scan(host, ScanCheckpoints{job.id, token, spec, job.user});
  }
}

// Hosts that may come back with checkpoints.
std::set<NodeId> RestoreChooser::hosts_away(const JobRecord& job, const Choosing& choosing) const {
  std::set<NodeId> away;
  for (const auto& r : job.checkpoints)
    for (const auto& p : r.places) {
      if (std::ranges::any_of(choosing.found, [&](const auto& f) { return f.host == p.host; })) continue;
      if (!is_gone(c_, p.host)) away.insert(p.host);
    }
  return away;
}

bool RestoreChooser::scanned(const CheckpointsScanned& e) {
  const JobRecord* job = c_.ledger.find(e.job);
  Choosing* choosing = find(e.job);
  if (job == nullptr || choosing == nullptr) return false;
  const auto asked = choosing->asked.find(e.token);
  if (asked == choosing->asked.end()) return false;
  if (e.found) choosing->found.push_back({asked->second, *e.found});
  else if (!choosing->problem) choosing->problem = e.found.error();
  choosing->asked.erase(asked);
  if (!choosing->asked.empty()) return false;
  all_looked(*job, *choosing);
  return true;
}

void RestoreChooser::all_looked(const JobRecord& job, Choosing& choosing) {
  if (!choosing.everywhere && choosing.choice.lacks_newest(choosing.found)) {
    choosing.everywhere = true;
    ask_hosts(job, choosing);
    if (!choosing.asked.empty()) return;
  }
  // Sorted by host, whichever answered first.
  std::ranges::sort(choosing.found, {}, &RestoreChoice::Found::host);
  const bool pinned = choosing.choice.pinned();
  const bool nothing = std::ranges::all_of(choosing.found, [&](const auto& f) {
    return std::ranges::none_of(f.list, [&](const auto& info) { return !pinned || info.path == job.spec.checkpoint->restore; });
  });
  // True if no host could look, or if a host of a job that ran cannot read what may be there. A host that does not
  // know the user, or does not answer, does not count.
  const auto unreadable = [&](ErrorCode code) { return code != ErrorCode::refused && code != ErrorCode::unavailable; };
  // A job that begins knows of no host that must have a checkpoint: it waits for all hosts, but not for ever.
  const bool first = (job.generation == 0 || pinned) && choosing.problem && choosing.problem->code != ErrorCode::refused &&
                     choosing.unreadable < kUnreadableTries;
  if (choosing.problem && nothing && (choosing.found.empty() || first || (job.generation > 0 && unreadable(choosing.problem->code))))
    return choose_later(job, choosing.unreadable + (choosing.found.empty() ? 0 : 1), kScanRetry, choosing.problem->text());
  const bool waited = c_.options.restore_wait <= 0ns || c_.options.broken_rule == "newest-is-waited-for" ||
                      (job.restore_waits_since && *job.restore_waits_since + c_.options.restore_wait <= c_.elapsed());
  const bool parent = choosing.choice.step().kind == StepKind::scan;
  choosing.choice.scanned(choosing.found, hosts_away(job, choosing), waited);
  if (parent && choosing.choice.step().kind == StepKind::scan_parent) look_everywhere(choosing);
}

// Before another scan of the same choice.
void RestoreChooser::look_everywhere(Choosing& choosing) {
  choosing.looked.clear();
  choosing.found.clear();
  choosing.everywhere = true;
}

// ---------------------------------------------------------------- verification

// Asks the question that the choice's next step needs, once; the caller handles steps that need no answer.
void RestoreChooser::ask(const JobRecord& job, Choosing& choosing) {
  if (choosing.under_way()) return;
  const auto& step = choosing.choice.step();
  if (step.kind == StepKind::blocked || step.kind == StepKind::wait) return;
  if (choosing.retry != kNever) {
    if (choosing.retry > c_.now.boot) return;
    choosing.retry = kNever;
  }
  const auto place = [&] {
    choosing.token = c_.tickets.give(&part_);
    choosing.asked_at = c_.now.boot;
    const auto own = std::ranges::find(step.at.hosts, c_.facts.id);
    choosing.host = own != step.at.hosts.end() ? *own : step.at.hosts.front();
  };
  switch (step.kind) {
    case StepKind::scan:
    case StepKind::scan_parent: return ask_hosts(job, choosing);
    case StepKind::verify: place(); return checkpoints_.verify(choosing.host, verification(job, choosing.token, step.at.info));
    case StepKind::fetch:
      place();
      choosing.host = step.to;
      return checkpoints_.fetch(step.to, step.at.hosts.front(), verification(job, choosing.token, step.at.info));
    case StepKind::quarantine:
      place();
      c_.propose(CommandType::checkpoint,
                 CheckpointSeen{job.id, step.at.info, step.damaged ? CheckpointState::damaged : CheckpointState::quarantined, step.reason,
                                choosing.host, step.at.generation});
      return checkpoints_.quarantine(choosing.host,
                                     QuarantineCheckpoint{job.id, choosing.token, step.at.info, job.user, job.spec.checkpoint->dir});
    case StepKind::chosen:
    case StepKind::nothing:
    case StepKind::wait:
    case StepKind::blocked: return;
  }
}

bool RestoreChooser::verified(const CheckpointVerified& e) {
  const JobRecord* job = c_.ledger.find(e.job);
  Choosing* choosing = find(e.job);
  if (job == nullptr || choosing == nullptr || choosing->token == 0 || choosing->token != e.token) return false;
  choosing->token = 0;
  // Only damage condemns a checkpoint. One that cannot be read now is looked for again before an older one is taken,
  // because its host may be gone.
  const bool here = choosing->host == c_.facts.id;
  // such an answer says nothing about the checkpoint
  const bool silent = !here && !e.result && e.result.error().code == ErrorCode::unavailable;
  if (!e.result && e.result.error().code != ErrorCode::damaged && (silent || choosing->unreadable < kUnreadableTries)) {
    choose_later(*job, choosing->unreadable + (silent ? 0 : 1), here ? kScanRetry : kAskAgain, e.result.error().text());
    return true;
  }
  const auto at = choosing->choice.step().at;
  if (!e.result && e.result.error().code == ErrorCode::damaged && at.info.is_share()) {
    // It may be another host that found this.
    const std::string cause = "the share on host " + host_name(c_, at.hosts.front()) + " is damaged: " + e.result.error().text();
    c_.propose(CommandType::checkpoint, CheckpointSeen{e.job, at.info, CheckpointState::damaged, cause, at.hosts.front(), at.generation});
  }
  if (e.result && !at.info.is_share())
    c_.propose(CommandType::checkpoint, CheckpointSeen{e.job, at.info, CheckpointState::verified, "", choosing->host, at.generation});
  choosing->choice.verified(e.result);
  const StepKind next = choosing->choice.step().kind;
  if (next == StepKind::scan || next == StepKind::scan_parent) look_everywhere(*choosing);
  return true;
}

bool RestoreChooser::quarantined(const CheckpointQuarantined& e) {
  Choosing* choosing = find(e.job);
  if (choosing == nullptr || e.token == 0 || choosing->token != e.token) return false;
  choosing->token = 0;
  if (!e.moved_to) c_.log.write(LogLevel::warn, "checkpoint.not-moved", {{"path", e.path}, {"cause", e.moved_to.error().text()}});
  choosing->choice.quarantined();
  return true;
}

}  // namespace dtrain::node
