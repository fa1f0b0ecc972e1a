#include "common/node/checkpoint_watch.h"

#include <algorithm>
#include <utility>

#include "common/cluster/surplus.h"
#include "common/node/checkpoint_requests.h"
#include "common/node/host_capacities.h"
#include "common/transfer/shares.h"

namespace dtrain::node {
namespace {

using cluster::CheckpointRecord;
using cluster::CheckpointSeen;
using cluster::CheckpointState;
using cluster::JobRecord;
using transfer::CheckpointInfo;

// Token of a verification that nobody waits for, which the agent does slowly (storage.checkpointRate).
constexpr std::uint64_t kInBackground = 0;

// A share is noted with its place, and so told of again if its files were written anew, even with the same bytes.
std::string identity(const CheckpointInfo& info) {
  return info.digest + (info.is_share() ? "@" + std::to_string(info.place) : "") + " " + info.path;
}

const CheckpointRecord* record_of(const JobRecord& job, const CheckpointInfo& info) {
  for (const auto& r : job.checkpoints)
    if (r.info.path == info.path && r.info.digest == info.digest) return &r;
  return nullptr;
}

bool is_at(const CheckpointRecord& r, const NodeId& host) {
  return std::ranges::any_of(r.places, [&](const auto& p) { return p.host == host; });
}

bool has_tasks_on(const JobRecord& job, const NodeId& host) {
  return std::ranges::any_of(job.tasks, [&](const auto& t) { return !t.second.ended && t.second.place.node == host; });
}

// The verifier is the first host that has the checkpoint and sees what becomes of it.
bool is_verifier(const JobRecord& job, const CheckpointRecord& r, const NodeId& host) {
  for (const auto& p : r.places)
    if (has_tasks_on(job, p.host)) return p.host == host;
  return false;
}

}  // namespace

// This host judges its own files.
CheckpointInfo CheckpointWatch::as_here(const CheckpointRecord& r) const {
  CheckpointInfo info = r.info;
  info.place = 0;
  for (const auto& p : r.places)
    if (p.host == c_.facts.id) info.place = p.place;
  return info;
}

// What this host has of it, if the newest scan found what the ledger has noted; otherwise nullptr.
const CheckpointInfo* CheckpointWatch::share_here(const CheckpointRecord& r, const Job& soft) const {
  const auto found = soft.shares.find(r.info.path);
  if (found == soft.shares.end()) return nullptr;
  const bool noted = std::ranges::any_of(
      r.places, [&](const auto& p) { return p.host == c_.facts.id && transfer::is_noted(p.place, p.shares, found->second); });
  return noted ? &found->second : nullptr;
}

void CheckpointWatch::job_changed(JobId id) {
  const JobRecord* job = c_.ledger.find(id);
  const bool on = job != nullptr && job->spec.checkpoint && job->generation > 0 && !is_final(job->state) && has_tasks_on(*job, c_.facts.id);
  const auto known = jobs_.find(id);
  if (!on) {
    if (known == jobs_.end()) return;
    c_.emit(WatchCheckpoints{id, {}, {}, false});
    jobs_.erase(known);
    return;
  }
  Job& soft = jobs_[id];
  if (known == jobs_.end()) c_.emit(WatchCheckpoints{id, *job->spec.checkpoint, job->user, true});
  if (soft.generation != job->generation) look_before(*job, soft);
  find_work(*job, soft);
}

// Takes note of what lies in the directory before this host's tasks begin, since it is not theirs. If some have begun
// already, the agent was restarted.
void CheckpointWatch::look_before(const JobRecord& job, Job& soft) {
  soft.generation = job.generation;
  soft.meanwhile.reset();
  soft.token = 0;
  // The ledger may not know that a task began here: not yet, or not any more because the entry was lost with a
  // majority of the voters.
  const bool begun = std::ranges::any_of(job.tasks, [&](const auto& entry) {
    const cluster::TaskRecord& t = entry.second;
    if (t.place.node != c_.facts.id) return false;
    const task::Task* here = c_.host->find({job.id, job.generation, entry.first});
    return std::max(t.attempt, here == nullptr ? 0 : here->attempt()) >= t.first_attempt;
  });
  if (begun) return;
  soft.beside = std::ranges::any_of(job.tasks, [](const auto& t) { return t.second.attempt >= t.second.first_attempt; });
  soft.token = c_.tickets.give(this);
  c_.emit(ScanCheckpoints{job.id, soft.token, *job.spec.checkpoint, job.user});
}

// The generation that wrote what lies here before this host's tasks begin and what nobody has reported. In a
// directory that other hosts see, too, that is the generation that ran last anywhere, which may be the present one if
// this host was added after other tasks had begun. In a directory of this host alone it is the generation that ran
// last here, since this host may have missed generations.
Generation CheckpointWatch::written_before(const JobRecord& job, const Job& soft, const std::vector<CheckpointInfo>& list) const {
  const bool shared = std::ranges::any_of(list, [&](const CheckpointInfo& info) {
    const CheckpointRecord* r = record_of(job, info);
    return r != nullptr && info.place != 0 &&
           std::ranges::any_of(r->places, [&](const auto& p) { return p.host != c_.facts.id && p.place == info.place; });
  });
  if (shared) return soft.beside ? soft.generation : soft.generation - 1;
  const auto ran = job.ran_before.find(c_.facts.id);
  return ran == job.ran_before.end() ? 0 : ran->second;
}

void CheckpointWatch::scanned(const CheckpointsScanned& e) {
  const auto it = jobs_.find(e.job);
  const bool ours = it != jobs_.end() && e.token == it->second.token && e.token != 0;
  if (e.token != 0 && !ours) return;
  const JobRecord* job = c_.ledger.find(e.job);
  if (it == jobs_.end() || job == nullptr) return;
  Job& soft = it->second;
  const bool at_rest = !ours || !soft.beside;  // tasks on other hosts may be writing it
  if (at_rest && !e.unrecognised.empty() && job->unrecognised.empty() && soft.known.insert(e.unrecognised).second)
    say({job->id, {}, CheckpointState::deleted, "", c_.facts.id, {}, e.unrecognised});
  if (!ours) {
    if (!e.found) return;
    note_removed(*job, soft, *e.found);
    if (soft.token != 0) soft.meanwhile = *e.found;
    else found(*job, soft, *e.found, soft.generation);
    return;
  }
  soft.token = 0;
  if (e.found) found(*job, soft, *e.found, written_before(*job, soft, *e.found));
  if (const auto meanwhile = std::exchange(soft.meanwhile, {})) found(*job, soft, *meanwhile, soft.generation);
}

void CheckpointWatch::damaged(JobId id, CheckpointInfo info, const Error& cause) {
  say({id, std::move(info), CheckpointState::damaged, cause.text(), c_.facts.id, {}});
}

void CheckpointWatch::placed(JobId id, CheckpointInfo info) {
  if (const auto it = jobs_.find(id); it != jobs_.end()) it->second.known.insert(identity(info));
  say({id, std::move(info), CheckpointState::complete, "", c_.facts.id, {}});
}

void CheckpointWatch::found(const JobRecord& job, Job& soft, const std::vector<CheckpointInfo>& list, Generation generation) {
  soft.shares.clear();
  for (const CheckpointInfo& info : list)
    if (info.is_share()) soft.shares.emplace(info.path, info);
  for (const CheckpointInfo& info : list) {
    if ((!info.complete && !info.is_share()) || !soft.known.insert(identity(info)).second) continue;
    soft.verified.erase(identity(info));
    if (info.is_share()) {
      const auto known_of = [&](const cluster::CheckpointPlace& p) { return transfer::is_noted(p.place, p.shares, info); };
      const bool told = std::ranges::any_of(job.checkpoints, [&](const CheckpointRecord& r) {
        return r.info.path == info.path && r.state == CheckpointState::shares && std::ranges::any_of(r.places, known_of);
      });
      if (!told)
        say({job.id, info, CheckpointState::shares, "", c_.facts.id, generation});  // otherwise a host that sees the same directory did
      continue;
    }
    const CheckpointRecord* r = record_of(job, info);
    // Skips a checkpoint that was judged before, or that has all the places that are noted; one that is known to be
    // here may have been written again with the same bytes.
    const bool back = r != nullptr && r->state == CheckpointState::deleted && soft.removed.erase(identity(info)) != 0;
    if (r != nullptr && !back && (!cluster::is_good(r->state) || is_at(*r, c_.facts.id) || r->places.size() >= limits::kCheckpointPlaces))
      continue;
    say({job.id, info, CheckpointState::complete, "", c_.facts.id, generation});
  }
  find_work(job, soft);
}

// A job may rotate its checkpoints itself: a checkpoint that the previous scan found, and this one does not, is gone.
void CheckpointWatch::note_removed(const JobRecord& job, Job& soft, const std::vector<CheckpointInfo>& list) {
  std::set<std::string> paths;
  for (const CheckpointInfo& info : list) paths.insert(info.path);
  for (const CheckpointRecord& r : job.checkpoints) {
    if (r.state == CheckpointState::shares && is_at(r, c_.facts.id) && soft.listed.contains(r.info.path) && !paths.contains(r.info.path)) {
      std::erase_if(soft.known, [&](const std::string& known) { return known.ends_with(" " + r.info.path); });
      if (const CheckpointInfo* removed = share_here(r, soft); removed != nullptr && soft.deleted.contains(identity(*removed))) continue;
      CheckpointInfo mine = as_here(r);
      for (const auto& p : r.places)
        if (p.host == c_.facts.id) mine.shares = p.shares;
      if (mine.shares.files.empty()) mine.shares.files.emplace_back();  // they were trimmed
      say({job.id, std::move(mine), CheckpointState::deleted, "", c_.facts.id, {}});
      continue;
    }
    const bool removed = soft.listed.contains(r.info.path) && !paths.contains(r.info.path);
    if (!removed || !cluster::is_good(r.state) || !is_verifier(job, r, c_.facts.id) || soft.deleted.contains(identity(r.info))) continue;
    soft.known.erase(identity(r.info));  // it may be written again
    soft.removed.insert(identity(r.info));
    say({job.id, as_here(r), CheckpointState::deleted, "it is not there any more", c_.facts.id, {}});
  }
  soft.listed = std::move(paths);
}

void CheckpointWatch::find_work(const JobRecord& job, Job& soft) {
  for (const CheckpointRecord& r : job.checkpoints) {
    if (r.state == CheckpointState::shares && cluster::is_whole(r) && !cluster::is_verified(r)) verify_share(r, soft);
    if (r.state != CheckpointState::complete || !is_verifier(job, r, c_.facts.id)) continue;
    if (soft.verified.insert(identity(r.info)).second) soft.to_verify.push_back(as_here(r));
  }
  verify_next(job, soft);
  if (job.spec.checkpoint->keep > 0) delete_surplus(job, soft);
}

// Each host reads what it has of it.
void CheckpointWatch::verify_share(const CheckpointRecord& r, Job& soft) {
  const CheckpointInfo* mine = share_here(r, soft);
  if (mine == nullptr || std::ranges::any_of(r.places, [&](const auto& p) { return p.host == c_.facts.id && p.verified; })) return;
  if (soft.verified.insert(identity(*mine)).second) soft.to_verify.push_back(*mine);
}

void CheckpointWatch::verify_next(const JobRecord& job, Job& soft) {
  if (soft.verifying || soft.to_verify.empty()) return;
  const auto newest = std::ranges::max_element(soft.to_verify, {}, &CheckpointInfo::step);
  soft.verifying = std::move(*newest);
  soft.to_verify.erase(newest);
  CheckpointInfo info = *soft.verifying;
  if (info.is_share()) info.digest.clear();  // otherwise a file of it that is cut since would make it another one, not a damaged one
  c_.emit(verification(job, kInBackground, std::move(info)));
}

void CheckpointWatch::verified(const CheckpointVerified& e) {
  const auto it = jobs_.find(e.job);
  const JobRecord* job = c_.ledger.find(e.job);
  if (it == jobs_.end() || job == nullptr || !it->second.verifying || it->second.verifying->path != e.path) return;
  Job& soft = it->second;
  const CheckpointInfo info = *std::exchange(soft.verifying, {});
  // A checkpoint that changed or vanished while it was read is looked at again when the directory changes.
  if (e.result) say({job->id, info, CheckpointState::verified, "", c_.facts.id, {}});
  else if (e.result.error().code == ErrorCode::damaged)
    say({job->id,
         info,
         CheckpointState::damaged,
         (info.is_share() ? "the share on host " + c_.facts.name + " is damaged: " : "") + e.result.error().text(),
         c_.facts.id,
         {}});
  else soft.known.erase(identity(info));
  verify_next(*job, soft);
}

// What this host has of those that checkpoint.keep does not keep.
void CheckpointWatch::delete_surplus(const JobRecord& job, Job& soft) {
  const std::string cause = "surplus over keep: " + std::to_string(job.spec.checkpoint->keep);
  for (const CheckpointRecord* r : cluster::surplus_of(job, [this](const NodeId& host) { return is_gone(c_, host); })) {
    if (!is_at(*r, c_.facts.id)) continue;
    CheckpointInfo gone = as_here(*r), removed = r->info;
    if (!cluster::is_good(r->state)) {
      const CheckpointInfo* mine = share_here(*r, soft);
      if (mine == nullptr) continue;
      gone = removed = *mine;
      gone.complete = true;  // the others remove theirs, too
    }
    if (!soft.deleted.insert(identity(removed)).second) continue;
    c_.emit(DeleteCheckpoint{job.id, std::move(removed), job.user, job.spec.checkpoint->dir});
    say({job.id, std::move(gone), CheckpointState::deleted, cause, c_.facts.id, {}});
  }
}

void CheckpointWatch::say(CheckpointSeen seen) {
  if (to_say_.size() >= kSeenWaiting) {
    if (const auto it = jobs_.find(seen.job); it != jobs_.end()) it->second.known.erase(identity(seen.info));
    return;
  }
  to_say_.push_back(std::move(seen));
  pump();
}

void CheckpointWatch::pump() {
  while (said_.size() < kSeenAtOnce && !to_say_.empty()) {
    const MemberId command = proposals_.add(cluster::CommandType::checkpoint, to_say_.front());
    said_[command] = std::move(to_say_.front());
    to_say_.pop_front();
  }
}

void CheckpointWatch::applied(const MemberId& command) {
  if (said_.erase(command) != 0) pump();
}

void CheckpointWatch::given_up(const MemberId& command) {
  const auto it = said_.find(command);
  if (it == said_.end()) return;
  CheckpointSeen seen = std::move(it->second);
  said_.erase(it);
  say(std::move(seen));
}

}  // namespace dtrain::node
