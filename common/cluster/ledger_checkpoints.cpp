// The ledger's part about checkpoints: which exist, on which hosts, and which were left behind.
#include <algorithm>
#include <set>
#include <utility>

#include "common/base/limits.h"
#include "common/cluster/ledger.h"
#include "common/cluster/outcome.h"
#include "common/transfer/shares.h"

namespace dtrain::cluster {

bool JobRecord::is_stale(Generation of, std::int64_t step) const {
  return std::ranges::any_of(lineage, [&](const RestorePoint& p) { return p.generation > of && p.step < step; });
}

// A generation that never began left nothing behind, whatever it was to restore: the next may restore a checkpoint
// that became known since. The exception is a user who asked for scratch and knows what is there.
void Ledger::note_restore_point(JobRecord& job, bool scratch_asked) {
  if (job.unbegun && !job.lineage.empty()) job.lineage.pop_back();
  job.lineage.push_back({job.generation, job.restored ? job.restored->step : -1});
  if (job.lineage.size() > limits::kRestorePoints) job.lineage.erase(job.lineage.begin());
  job.unbegun = true;
  if (scratch_asked) note_begun(job);
  job.restore_waits_since.reset();
  while (job.ran.size() > limits::kHostsOfJob) {
    const auto oldest = std::ranges::min_element(job.ran, {}, [](const auto& entry) { return entry.second; });
    if (oldest->second >= job.generation) break;  // these have the newest
    job.ran.erase(oldest);
  }
}

// An earlier restore point matters only while its step is lower: everything beyond the later point is stale anyway.
void Ledger::note_begun(JobRecord& job) {
  if (!std::exchange(job.unbegun, false) || job.lineage.empty()) return;
  const RestorePoint point = job.lineage.back();
  std::erase_if(job.lineage, [&](const RestorePoint& p) { return p.generation < point.generation && p.step >= point.step; });
}

// Notes, before tasks come to a host, which generation wrote what lies there by then and no host has reported.
void Ledger::note_hosts(JobRecord& job, const BeginGeneration& c, bool extend) {
  std::set<NodeId> noted;  // or those with tasks of this generation already
  if (extend) {
    for (const auto& [id, t] : job.tasks)
      if (!t.ended) noted.insert(t.place.node);
  } else {
    job.ran_before.clear();
  }
  for (const auto& place : c.placements) {
    if (!noted.insert(place.node).second) continue;
    const auto [ran, first] = job.ran.try_emplace(place.node, c.generation);
    if (!first) job.ran_before[place.node] = std::exchange(ran->second, c.generation);
  }
}

namespace {

// Forgets the oldest of the records that matter least: first deleted ones, then those left behind. Never the one that tasks read.
void forget_one(JobRecord& job) {
  const auto weight = [&](const CheckpointRecord& r) {
    if (r.info.digest == job.restored_digest) return 3;
    if (!is_good(r.state) && r.state != CheckpointState::shares) return 0;
    return job.is_stale(r.generation, r.info.step) ? 1 : 2;
  };
  job.checkpoints.erase(std::ranges::min_element(job.checkpoints.begin(), std::prev(job.checkpoints.end()), {}, weight));
}

// All hosts that see these very files see what became of them.
void forget_place(CheckpointRecord& record, const NodeId& host, std::uint64_t place) {
  std::erase_if(record.places,
                [&](const CheckpointPlace& p) { return host.empty() || p.host == host || (place != 0 && p.place == place); });
}

void note_place(std::vector<CheckpointRecord>& known, const CheckpointRecord& record, const NodeId& host) {
  // A checkpoint that lay there under this name before was overwritten.
  for (CheckpointRecord& other : known)
    if (&other != &record && other.info.path == record.info.path && !other.places.empty()) {
      forget_place(other, host, 0);
      if (other.places.empty() && is_good(other.state)) other.state = CheckpointState::deleted;
    }
}

// What the hosts of a checkpoint in shares have together. One that was trimmed stays as it was judged until a share of it is lost
// (`more` is not set), which perhaps nobody else has.
void judge_shares(CheckpointRecord& record, bool more) {
  std::vector<const transfer::Shares*> shares;
  for (const CheckpointPlace& p : record.places) {
    if (!p.shares.files.empty()) {
      shares.push_back(&p.shares);
      continue;
    }
    if (!more && record.info.complete) record.info.defect = "a host lost its share";
    record.info.complete = record.info.complete && more;
    return;
  }
  const auto all = transfer::together(transfer::format_of(record.info.format), shares);
  record.info.complete = all.whole();
  record.info.defect = all.lacks;
  record.info.bytes = all.bytes;
}

void trim_shares(std::vector<CheckpointRecord>& known) {
  std::size_t newer = 0;
  for (auto r = known.rbegin(); r != known.rend(); ++r)
    if (r->state == CheckpointState::shares && ++newer > limits::kSharedNoted)
      for (CheckpointPlace& p : r->places) p.shares = {};
}

// Its record, of now on. What is of one host alone stays with its places.
std::vector<CheckpointRecord>::iterator begin_record(JobRecord& job, const CheckpointSeen& c, WallTime wall) {
  CheckpointRecord r;
  r.info = c.info;
  r.generation = std::min(c.generation.value_or(job.generation), job.generation);
  r.parent_step = job.restored ? job.restored->step : -1;
  r.state = c.state;
  r.seen = wall;
  job.checkpoints.push_back(std::move(r));
  if (job.checkpoints.size() > limits::kCheckpointsPerJob) forget_one(job);
  return std::prev(job.checkpoints.end());
}

// The host verified the share that is noted. The last one of a checkpoint makes it verified, as one that a host has all of.
bool note_verified(CheckpointRecord& record, const CheckpointSeen& c) {
  for (CheckpointPlace& p : record.places)
    if (p.host == c.host && transfer::is_noted(p.place, p.shares, c.info)) return !std::exchange(p.verified, true);
  return false;
}

// Once a host removes its share because of checkpoint.keep, the others are to remove theirs, also such that are away now.
void begin_removal(CheckpointRecord& record) {
  record.state = CheckpointState::deleted;
  for (CheckpointPlace& p : record.places) p.shares = {};
}

}  // namespace

void Ledger::add_event(WallTime wall, const JobRecord& job, const CheckpointSeen& c, const char* type) {
  add_event(wall, job.id, type, job.spec.name, c.message,
            {{"job", job.spec.name}, {"step", std::to_string(c.info.step)}, {"path", c.info.path}});
}

// One host's share of a checkpoint: it was found or verified, or (all other states) it is not there any more; `complete` with `deleted`:
// the host removed it as a part of a whole one. The record is that of the path, as it was first seen; a later generation's begins it anew.
Applied Ledger::apply_share(JobRecord& job, const CheckpointSeen& c, WallTime wall) {
  auto& known = job.checkpoints;
  const auto same = [&](const CheckpointPlace& p) { return p.host == c.host && transfer::is_noted(p.place, p.shares, c.info); };
  const auto is_removed = [&](const CheckpointRecord& r) {
    return r.info.path == c.info.path && is_half_removed(r) && std::ranges::any_of(r.places, same);
  };
  const auto is_of_it = [&](const CheckpointRecord& r) { return r.info.path == c.info.path && r.state == CheckpointState::shares; };
  const bool seen = c.state == CheckpointState::shares;
  auto record = std::ranges::find_if(known, is_removed);
  if (seen && record != known.end()) return done(job);
  if (record == known.end()) record = std::ranges::find_if(known, is_of_it);
  const bool has_whole = std::ranges::any_of(known, [&](const CheckpointRecord& r) {
    return r.info.path == c.info.path && r.info.step == c.info.step && is_good(r.state) && !r.places.empty();
  });
  if (seen ? has_whole || transfer::format_of(c.info.format).lacks == nullptr : record == known.end()) return done(job);
  if (c.state == CheckpointState::verified) {
    if (!note_verified(*record, c)) return done(job);
    if (is_verified(*record)) {
      job.fruitless_restores = 0;
      add_event(wall, job, c, "checkpoint.verified");
    }
    ++job.version;
    touched_.insert(job.id);
    return done(job);
  }
  const Generation generation = std::min(c.generation.value_or(job.generation), job.generation);
  if (seen && record != known.end()) {
    // Every generation looks again at what lies there.
    if (std::ranges::any_of(record->places, same)) return done(job);
    if (record->generation != generation || record->info.format != c.info.format) {
      known.erase(record);
      record = known.end();
    }
  }
  if (record == known.end()) {
    record = begin_record(job, c, wall);
    record->info.shares = {};
    record->info.digest.clear();
    record->info.place = 0;
  }
  forget_place(*record, c.host, seen ? 0 : c.info.place);
  if (seen && record->places.size() < limits::kShareHosts) record->places.push_back({c.host, c.info.place, c.info.shares});
  if (!seen && record->places.empty()) record->state = c.state;
  else if (c.state == CheckpointState::deleted && c.info.complete) begin_removal(*record);
  // Several hosts quarantine their shares of it for the same reason.
  const bool quarantined = c.state == CheckpointState::quarantined, told = quarantined && record->info.defect == c.message;
  if (record->state == CheckpointState::shares) judge_shares(*record, seen);
  if (quarantined) record->info.defect = c.message;
  const bool own = job.spec.checkpoint && transfer::is_in(c.info, job.spec.checkpoint->dir);
  if (is_whole(*record) && own && !job.is_stale(record->generation, record->info.step)) job.committed_once = true;
  if (c.state == CheckpointState::damaged) add_event(wall, job, c, "checkpoint.damaged");
  if (quarantined && !told) add_event(wall, job, c, "checkpoint.quarantined");
  trim_shares(known);
  ++job.version;
  touched_.insert(job.id);
  return done(job);
}

Applied Ledger::apply_checkpoint(const CheckpointSeen& c, WallTime wall) {
  const auto it = state_.jobs.find(c.job);
  if (it == state_.jobs.end()) return refused(ErrorCode::not_found, "job is gone");
  JobRecord& job = it->second;
  if (!c.unrecognised.empty()) {
    if (!job.unrecognised.empty()) return done(job);  // reporting it once is enough
    job.unrecognised = c.unrecognised;
    add_event(wall, job.id, "checkpoint.unrecognised", job.spec.name, c.unrecognised, {{"job", job.spec.name}});
    ++job.version;
    touched_.insert(job.id);
    return done(job);
  }
  if (c.info.is_share()) return apply_share(job, c, wall);
  auto& known = job.checkpoints;
  const bool good = is_good(c.state);
  if (good)  // a host has all of it now
    std::erase_if(known, [&](const CheckpointRecord& r) { return r.info.path == c.info.path && r.state == CheckpointState::shares; });
  auto record = std::find_if(known.begin(), known.end(),
                             [&](const CheckpointRecord& r) { return r.info.path == c.info.path && r.info.digest == c.info.digest; });
  if (record == known.end()) {
    record = begin_record(job, c, wall);
  } else if (!good && (record->state == c.state || (c.state == CheckpointState::deleted && !is_good(record->state)))) {
    return done(job);  // a checkpoint that was moved away is not there either
  } else if (good) {
    if (c.state == CheckpointState::verified || !is_good(record->state)) record->state = c.state;
  }
  const auto here = std::ranges::find(record->places, c.host, &CheckpointPlace::host);
  if (good && here != record->places.end()) {
    here->place = c.info.place;
  } else if (good && !c.host.empty() && record->places.size() < limits::kCheckpointPlaces) {
    record->places.push_back({c.host, c.info.place});
    note_place(known, *record, c.host);
  } else if (!good) {
    forget_place(*record, c.host, c.info.place);
    if (record->places.empty()) record->state = c.state;  // otherwise other hosts still have it
  }
  // A damaged checkpoint that a generation of this job wrote shows that it committed, too, unless its table of contents cannot be read
  // (version 3): then its first save was broken off. What lay there before the job is not its own. A checkpoint that a host reports only
  // after a later generation began without it belongs to a branch that was left behind.
  const bool stale = job.is_stale(record->generation, record->info.step);
  // Nor is a checkpoint elsewhere that the job file names.
  const bool own = job.spec.checkpoint && transfer::is_in(c.info, job.spec.checkpoint->dir);
  const bool unfinished = c.info.digest.empty() && state_.version >= 3;
  if ((good || (c.state == CheckpointState::damaged && job.generation > 0 && !unfinished)) && own && !stale) job.committed_once = true;
  if (c.state == CheckpointState::verified) {
    if (c.info.digest != job.restored_digest) job.fruitless_restores = 0;
    add_event(wall, job, c, "checkpoint.verified");
  } else if (c.state == CheckpointState::damaged || c.state == CheckpointState::quarantined) {
    add_event(wall, job, c, c.state == CheckpointState::damaged ? "checkpoint.damaged" : "checkpoint.quarantined");
  }
  ++job.version;
  touched_.insert(job.id);
  return done(job);
}

}  // namespace dtrain::cluster
