#include "common/cluster/restore.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "common/base/check.h"
#include "common/transfer/shares.h"

namespace dtrain::cluster {
namespace {

using Kind = RestoreChoice::Step::Kind;
using Candidate = RestoreChoice::Candidate;

RestoreChoice::Step step_of(Kind kind, Candidate at = {}, std::string reason = "", bool damaged = false) {
  return {kind, std::move(at), std::move(reason), damaged, {}, -1, {}};
}

// One candidate for the files of one directory, however many hosts see it; newest step first.
std::vector<Candidate> merged(const std::vector<RestoreChoice::Found>& found) {
  std::vector<Candidate> all;
  for (const auto& [host, list] : found)
    for (const auto& info : list) {
      if (info.is_share()) continue;
      const auto same = std::ranges::find_if(all, [&](const Candidate& c) {
        return info.place != 0 && c.info.place == info.place && c.info.path == info.path && c.info.digest == info.digest &&
               c.info.complete == info.complete;
      });
      if (same != all.end()) same->hosts.push_back(host);
      else all.push_back({info, {host}, 0, {}});
    }
  std::ranges::stable_sort(all, [](const Candidate& a, const Candidate& b) { return a.info.step > b.info.step; });
  return all;
}

// The generation that wrote a checkpoint which the ledger does not know. Files that a host of the newest generation
// does not see, or that lie where none of that generation's checkpoints lies, are on a separate disk and were written
// by the generation that ran there last. If no such host can be asked, and no checkpoint of the newest generation is
// known, they may be the newest generation's.
Generation writer(const JobRecord& job, const Candidate& c, const std::vector<RestoreChoice::Found>& found) {
  for (const auto& r : job.checkpoints)
    if (r.info.path == c.info.path && r.info.digest == c.info.digest && !c.info.digest.empty()) return r.generation;
  const auto ran = [&](const NodeId& host) {
    const auto at = job.ran.find(host);
    return at == job.ran.end() ? Generation{0} : at->second;
  };
  Generation newest = 0;
  for (const NodeId& host : c.hosts) newest = std::max(newest, ran(host));
  const bool others_see = std::ranges::any_of(found, [&](const auto& f) { return ran(f.host) == job.generation; });
  const auto lies_beside = [&](const CheckpointRecord& r) {
    return std::ranges::any_of(found, [&](const auto& f) {
      return std::ranges::find(c.hosts, f.host) != c.hosts.end() &&
             std::ranges::any_of(f.list, [&](const auto& info) { return info.path == r.info.path && info.digest == r.info.digest; });
    });
  };
  const bool elsewhere = std::ranges::any_of(job.checkpoints, [&](const CheckpointRecord& r) {
    return r.generation == job.generation && is_good(r.state) && !r.places.empty() && !lies_beside(r);
  });
  return others_see || elsewhere ? newest : job.generation;
}

using Share = RestoreChoice::Share;

// The shares from which it can be put together: first that of the host with the most of it, then of each host that has a file which those
// before lack.
std::vector<Share> needed_of(std::vector<Share> shares) {
  std::ranges::stable_sort(shares, [](const Share& a, const Share& b) { return a.info.bytes > b.info.bytes; });
  std::set<std::string_view> have;
  std::erase_if(shares, [&](const Share& s) {
    const std::size_t before = have.size();
    for (const auto& file : s.info.shares.files) have.insert(file.name);
    return have.size() == before;
  });
  return shares;
}

}  // namespace

RestoreChoice::RestoreChoice(const JobRecord& job, Rules rules)
    : spec_(*job.spec.checkpoint),
      from_scratch_(job.from_scratch),
      rules_(rules),
      skip_newest_(job.fruitless_restores >= kFruitlessRestores && job.restored.has_value()) {
  job_.generation = job.generation;
  job_.committed_once = job.committed_once;
  job_.checkpoints = job.checkpoints;
  if (!rules.trust_any_branch) job_.lineage = job.lineage;
  if (job.unbegun) std::erase_if(job_.lineage, [&](const RestorePoint& p) { return p.generation == job.generation; });
  job_.ran = job.ran;
  if (skip_newest_) skip_from_step_ = job.restored->step;
}

bool RestoreChoice::pinned() const { return spec_.restore != "auto" && spec_.restore != "never" && !job_.committed_once; }

const CheckpointRecord* RestoreChoice::newest_known(std::int64_t above) const {
  const CheckpointRecord* newest = nullptr;
  for (const auto& r : job_.checkpoints) {
    if (!is_good(r.state) || r.places.empty() || r.info.step <= above || job_.is_stale(r.generation, r.info.step)) continue;
    if (!transfer::is_in(r.info, spec_.dir)) continue;  // it is the one that the job file names
    if (newest == nullptr || r.info.step > newest->info.step) newest = &r;
  }
  return newest;
}

bool RestoreChoice::lacks_newest(const std::vector<Found>& found) const {
  if (std::ranges::all_of(found, [](const Found& f) { return f.list.empty(); })) return true;
  // Others may have the rest of it.
  if (std::ranges::any_of(found, [](const Found& f) { return std::ranges::any_of(f.list, &transfer::CheckpointInfo::is_share); }))
    return true;
  const CheckpointRecord* newest = newest_known(-1);
  return newest != nullptr && std::ranges::none_of(found, [&](const Found& f) {
           return std::ranges::any_of(f.list, [&](const auto& info) {
             return info.complete && info.path == newest->info.path && info.digest == newest->info.digest;
           });
         });
}

std::optional<RestoreChoice::Away> RestoreChoice::awaited(std::int64_t above) const {
  if (from_scratch_ || pinned()) return std::nullopt;
  std::optional<Away> newest;
  for (const auto& r : job_.checkpoints) {
    const std::int64_t step = r.info.step;
    if (!is_whole(r) || step <= above || job_.is_stale(r.generation, step) || (skip_newest_ && step == skip_from_step_)) continue;
    if ((newest && newest->step >= step) || !transfer::is_in(r.info, spec_.dir)) continue;
    std::vector<NodeId> hosts;
    for (const auto& p : r.places)
      if (away_.contains(p.host)) hosts.push_back(p.host);
    if (!hosts.empty()) newest = Away{step, std::move(hosts), r.state == CheckpointState::shares};
  }
  return newest;
}

void RestoreChoice::scanned(const std::vector<Found>& found, const std::set<NodeId>& away, bool waited) {
  CHECK(step_.kind == Kind::scan || step_.kind == Kind::scan_parent);
  std::vector<Candidate> all = merged(found);
  lacking_.clear();
  add_together(found, all, away.empty());
  if (pinned()) {
    // The path may be a checkpoint directory itself, or a prefix, which is found in its parent directory.
    for (auto* some : {&all, &lacking_}) std::erase_if(*some, [&](const Candidate& c) { return c.info.path != spec_.restore; });
    if (all.empty() && !parent_scanned_) {
      parent_scanned_ = true;
      step_ = step_of(Kind::scan_parent);
      return;
    }
  }
  away_ = away;
  waited_ = waited;
  for (Candidate& c : all) {
    if (c.shares.empty()) c.generation = writer(job_, c, found);
    if (!c.shares.empty() && (from_scratch_ || (!pinned() && job_.is_stale(c.generation, c.info.step)))) {
      for (Share& s : c.shares) note_lacking(std::move(s), c.generation);
    } else if (from_scratch_) stale_.push_back(std::move(c));
    else if (pinned() || !job_.is_stale(c.generation, c.info.step)) candidates_.push_back(std::move(c));
    else if (c.generation != 0)  // otherwise it is not this job's and stays
      stale_.push_back(std::move(c));
  }
  if (from_scratch_) return decide(step_of(Kind::nothing, {}, "from scratch, as asked"));
  next_candidate();
}

// Hosts that see one directory have one share: it is moved away once.
void RestoreChoice::note_lacking(Share share, Generation generation) {
  const auto same = std::ranges::find_if(lacking_, [&](const Candidate& c) {
    return share.info.place != 0 && c.info.place == share.info.place && c.info.path == share.info.path &&
           c.info.digest == share.info.digest;
  });
  if (same != lacking_.end()) same->hosts.push_back(std::move(share.host));
  else lacking_.push_back({std::move(share.info), {std::move(share.host)}, generation, {}});
}

// Adds what several hosts have together, and notes what is not whole even so. Shares of different generations never mix, nor do those of
// which two hosts have different files of one name. A host that has all of it needs nobody's share. Which files there must be is known
// nowhere, and never will be, if the host that would know it has only what a broken save left, or if all hosts see this one directory, and
// the job had whole ones of this format: another program's directories may look like shares.
void RestoreChoice::add_together(const std::vector<Found>& found, std::vector<Candidate>& all, bool all_asked) {
  const auto broken_off = [&](const std::string& path) {
    return std::ranges::any_of(all, [&](const Candidate& c) { return c.info.path == path && !c.info.complete; });
  };
  const auto had_whole = [&](transfer::FormatId format) {
    return std::ranges::any_of(job_.checkpoints, [&](const CheckpointRecord& r) { return r.info.format == format && is_good(r.state); });
  };
  const auto seen_by_all = [&](const std::vector<Share>& shares) {
    const transfer::CheckpointInfo& first = shares.front().info;
    return all_asked && first.place != 0 && shares.size() == found.size() && had_whole(first.format) &&
           std::ranges::all_of(shares, [&](const Share& s) { return s.info.place == first.place; });
  };
  std::map<std::tuple<std::string, transfer::FormatId, Generation>, std::vector<Share>> groups;
  for (const auto& [host, list] : found)
    for (const auto& info : list) {
      const bool whole = std::ranges::any_of(all, [&](const Candidate& c) { return c.info.path == info.path && c.info.complete; });
      if (!info.is_share() || whole || transfer::format_of(info.format).lacks == nullptr) continue;
      const Generation generation = writer(job_, {info, {host}, 0, {}}, found);
      if (bad_shares_.contains({host, info.digest + " " + info.path})) note_lacking({host, info}, generation);
      else groups[{info.path, info.format, generation}].push_back({host, info});
    }
  for (auto& [key, shares] : groups) {
    const auto& [path, format, generation] = key;
    std::vector<const transfer::Shares*> files;
    for (const Share& s : shares) files.push_back(&s.info.shares);
    const auto have = transfer::together(transfer::format_of(format), files);
    if (have.whole() && put_together_.contains(path)) {
      unreadable_ = path + " cannot be read: it was put together from the shares of several hosts, and is not whole";
    } else if (have.whole()) {
      shares = needed_of(std::move(shares));
      Candidate c{shares.front().info, {shares.front().host}, generation, shares};
      c.info.complete = true;
      c.info.bytes = have.bytes;
      all.push_back(std::move(c));
    } else if (have.known || broken_off(path) || seen_by_all(shares)) {
      for (Share& s : shares) note_lacking(std::move(s), generation);
    }
  }
  std::ranges::stable_sort(all, [](const Candidate& a, const Candidate& b) { return a.info.step > b.info.step; });
}

// The last word, after all that was written beyond it is out of the way: a share, too, since the generation that begins may write another
// one beside it under the same path. What lay there before the job stays.
void RestoreChoice::decide(Step decision) {
  const std::int64_t step = decision.kind == Kind::chosen ? decision.at.info.step : -1;
  decision_ = std::move(decision);
  for (Candidate& c : lacking_)
    if (c.generation != 0 && c.info.step > step) stale_.push_back(std::move(c));
  quarantined();
}

void RestoreChoice::next_share() {
  const Candidate& c = candidates_[next_];
  const Share& s = c.shares[next_share_];
  step_ = step_of(next_share_ == 0 ? Kind::verify : Kind::fetch, {s.info, {s.host}, c.generation, {}});
  step_.to = c.hosts.front();
}

// One that is damaged, or gone, is left out from now on: perhaps another host has the same. Once all are in place the host has the
// checkpoint.
void RestoreChoice::share_verified(const Status& result) {
  const Candidate& c = candidates_[next_];
  const Share& s = c.shares[next_share_];
  if (result && ++next_share_ < c.shares.size()) return next_share();
  if (result) put_together_.insert(c.info.path);
  else bad_shares_.insert({s.host, s.info.digest + " " + s.info.path});
  scan_again();
}

void RestoreChoice::scan_again() {
  candidates_.clear();
  skipped_.clear();
  stale_.clear();
  lacking_.clear();
  next_ = next_share_ = 0;
  step_ = step_of(parent_scanned_ ? Kind::scan_parent : Kind::scan);
}

void RestoreChoice::next_candidate() {
  for (; next_ < candidates_.size(); ++next_) {
    const Candidate& c = candidates_[next_];
    if (skip_newest_ && c.info.step == skip_from_step_) {
      skipped_.push_back(c);
      continue;
    }
    if (!c.info.complete) {
      step_ = step_of(Kind::quarantine, c, c.info.defect, true);
      return;
    }
    if (auto newest = awaited(c.info.step); newest && !waited_) {
      step_ = step_of(Kind::wait);
      step_.newest = std::move(newest);
      step_.older = c.info.step;
      return;
    }
    if (!c.shares.empty()) {
      next_share_ = 0;
      return next_share();
    }
    if (rules_.trust_unverified) return verified({});
    step_ = step_of(Kind::verify, c);
    return;
  }
  nothing_left();
}

// A host that saw these very files need not be waited for.
void RestoreChoice::drop_known(const transfer::CheckpointInfo& info) {
  for (auto& r : job_.checkpoints)
    if (r.info.path == info.path && r.info.digest == info.digest)
      std::erase_if(r.places, [&](const CheckpointPlace& p) { return info.place != 0 && p.place == info.place; });
}

void RestoreChoice::verified(const Status& result) {
  const Candidate c = candidates_[next_];
  const auto lost = [&] { return result.error().code == ErrorCode::damaged || result.error().code == ErrorCode::not_found; };
  if (!c.shares.empty() && (result || lost())) return share_verified(result);
  if (!result && result.error().code != ErrorCode::damaged) {
    if (unreadable_.empty()) unreadable_ = c.info.path + " cannot be read: " + result.error().message;
    ++next_;
    return next_candidate();
  }
  if (!result) {
    step_ = step_of(Kind::quarantine, c, result.error().text(), true);
    return;
  }
  std::string why = "newest that verifies";
  if (skip_newest_ && c.info.step < skip_from_step_)
    why = "two failures in a row without progress from step " + std::to_string(skip_from_step_) + ": the one before";
  if (pinned()) why = "as the job asks";
  if (!unreadable_.empty()) why += "; " + unreadable_;
  Step chosen = step_of(Kind::chosen, c, why);
  chosen.newest = awaited(c.info.step);
  for (const Candidate& other : skipped_)
    if (other.shares.empty()) stale_.push_back(other);
  decide(std::move(chosen));
}

// One quarantine is done, or was tried: a checkpoint that could not be moved is passed over, and the choice stands.
void RestoreChoice::quarantined() {
  if (!decision_) {  // it was a damaged candidate
    drop_known(candidates_[next_].info);
    ++next_;
    return next_candidate();
  }
  if (stale_.empty()) {
    step_ = *decision_;
    return;
  }
  step_ = step_of(Kind::quarantine, stale_.back(), "written beyond the point where its successor starts");
  stale_.pop_back();
}

void RestoreChoice::nothing_left() {
  if (pinned()) {
    step_ = step_of(Kind::blocked, {}, unreadable_.empty() ? "no checkpoint that verifies at " + spec_.restore : unreadable_);
    return;
  }
  if (auto newest = awaited(-1); newest && (!waited_ || skipped_.empty())) {
    step_ = step_of(Kind::wait);
    step_.newest = std::move(newest);
    if (!skipped_.empty()) step_.older = skipped_.front().info.step;
    return;
  }
  if (skip_newest_ && !skipped_.empty()) {
    // No older one is left: restoring the same one once more is better than losing everything.
    skip_newest_ = false;
    candidates_ = std::exchange(skipped_, {});
    next_ = 0;
    return next_candidate();
  }
  if (!unreadable_.empty()) {
    step_ = step_of(Kind::blocked, {}, unreadable_);
    return;
  }
  if (job_.committed_once && job_.generation != 0) {
    step_ = step_of(Kind::blocked, {}, "a checkpoint was committed once, none that verifies is left");
    return;
  }
  decide(step_of(Kind::nothing, {}, "no checkpoint yet: from scratch"));
}

}  // namespace dtrain::cluster
