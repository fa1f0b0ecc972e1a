#include "tests/sim/sim_checkpoints.h"

#include <algorithm>

namespace dtrain::sim {
namespace {

constexpr Duration kNoticed = 20ms;  // a change is seen up to this much later
constexpr Duration kSlowestRead = 400ms;

}  // namespace

SimCheckpoints::SimCheckpoints(Timeline& timeline, Rng rng, Post post, std::shared_ptr<Files> files)
    : timeline_(timeline), rng_(rng), post_(std::move(post)), files_(files ? std::move(files) : std::make_shared<Files>()) {
  files_->viewers.push_back(this);
}

const std::vector<SimCheckpoint>& SimCheckpoints::in(const std::string& dir) const {
  static const std::vector<SimCheckpoint> kNone;
  const auto it = files_->dirs.find(dir);
  return it == files_->dirs.end() ? kNone : it->second;
}

std::vector<std::string> SimCheckpoints::directories() const {
  std::vector<std::string> out;
  for (const auto& [dir, found] : files_->dirs) out.push_back(dir);
  return out;
}

Duration SimCheckpoints::reading_time() {
  // Mostly cached, sometimes from a slow disk.
  const auto range = static_cast<std::uint64_t>((rng_.chance(1, 8) ? kSlowestRead : kSlowestRead / 40).count());
  return Duration(static_cast<std::int64_t>(rng_.below(range) + 1));
}

void SimCheckpoints::later(JobId job, std::function<void()> action) {
  ++looking_[job];
  timeline_.after(reading_time(), [this, job, life = life_, action = std::move(action)] {
    if (life != life_) return;
    --looking_[job];
    action();
  });
}

void SimCheckpoints::write(const std::string& dir, JobId job, Generation generation, std::int64_t step, bool torn, bool rotten) {
  SimCheckpoint c;
  c.info.path = dir + "/ckpt-" + std::to_string(step);
  c.info.step = step;
  c.info.complete = !torn;
  if (torn) c.info.defect = "weights.bin has fewer bytes than the manifest says";
  c.info.bytes = 4096;
  c.info.digest = "d" + std::to_string(files_->number) + "." + std::to_string(++files_->written);
  c.good = !torn && !rotten;
  c.job = job;
  c.generation = generation;
  c.written = timeline_.now();
  c.info.place = place();
  insert(dir, std::move(c));
}

std::uint64_t SimCheckpoints::place() const { return files_->number * 1'000'000 + files_->written + 1; }

void SimCheckpoints::put(const SimCheckpoint& copy) {
  SimCheckpoint c = copy;
  ++files_->written;
  c.info.place = place();
  const std::string dir = c.info.path.substr(0, c.info.path.rfind('/'));
  insert(dir, std::move(c));
}

void SimCheckpoints::insert(const std::string& dir, SimCheckpoint c) {
  auto& all = files_->dirs[dir];
  const std::int64_t step = c.info.step;
  std::erase_if(all, [&](const SimCheckpoint& other) { return other.info.path == c.info.path; });
  const auto at = std::find_if(all.begin(), all.end(), [&](const SimCheckpoint& other) { return other.info.step < step; });
  all.insert(at, std::move(c));
  changed(dir);
}

void SimCheckpoints::rot(const std::string& dir, const std::string& path) {
  (void)dir;
  SimCheckpoint* c = find(path);
  if (c == nullptr) return;
  c->good = false;  // nobody notices: size and time stay
  c->decayed = timeline_.now();
}

SimCheckpoint* SimCheckpoints::find(const std::string& path) {
  const auto it = files_->dirs.find(path.substr(0, path.rfind('/')));
  if (it == files_->dirs.end()) return nullptr;
  for (SimCheckpoint& c : it->second)
    if (c.info.path == path) return &c;
  return nullptr;
}

Result<std::vector<transfer::CheckpointInfo>> SimCheckpoints::list(const std::string& dir) const {
  std::vector<transfer::CheckpointInfo> out;
  for (const SimCheckpoint& c : in(dir)) out.push_back(c.info);
  if (const SimCheckpoint* itself = find(dir); itself != nullptr && out.empty()) out.push_back(itself->info);
  return out;
}

void SimCheckpoints::changed(const std::string& dir) {
  for (SimCheckpoints* viewer : files_->viewers) viewer->noticed(dir);
}

void SimCheckpoints::noticed(const std::string& dir) {
  for (const auto& [job, watched] : watched_) {
    if (watched != dir) continue;
    timeline_.after(Duration(static_cast<std::int64_t>(rng_.below(kNoticed.count()) + 1)), [this, job = job, dir, life = life_] {
      if (life == life_ && watched_.contains(job)) post_(node::CheckpointsScanned{job, 0, list(dir)});
    });
  }
}

void SimCheckpoints::perform(const node::WatchCheckpoints& effect) {
  if (!effect.on) {
    watched_.erase(effect.job);
    return;
  }
  watched_[effect.job] = effect.spec.dir;
}

void SimCheckpoints::perform(const node::ScanCheckpoints& effect) {
  later(effect.job, [this, job = effect.job, token = effect.token, dir = effect.spec.dir] {
    post_(node::CheckpointsScanned{job, token, list(dir)});
  });
}

void SimCheckpoints::perform(const node::VerifyCheckpoint& effect) {
  if (effect.token != 0) verifying_.insert(effect.token);
  later(effect.job, [this, job = effect.job, token = effect.token, info = effect.info] {
    if (token != 0 && verifying_.erase(token) == 0) return;
    const SimCheckpoint* c = find(info.path);
    Status result;
    if (c == nullptr) {
      result = fail(ErrorCode::not_found, "could not verify " + info.path + ": no such file or directory");
    } else if (!c->good) {
      result = fail(ErrorCode::damaged, "could not verify " + info.path + ": weights.bin does not have its hash");
    }
    post_(node::CheckpointVerified{job, token, info.path, std::move(result)});
  });
}

void SimCheckpoints::perform(const node::EndVerification& effect) {
  if (verifying_.erase(effect.token) == 0) return;
  later(effect.job, [this, job = effect.job, token = effect.token] {
    post_(node::CheckpointVerified{job, token, "", fail(ErrorCode::unavailable, "could not verify: nobody waits for it any more")});
  });
}

void SimCheckpoints::perform(const node::QuarantineCheckpoint& effect) {
  later(effect.job, [this, job = effect.job, token = effect.token, path = effect.info.path, place = effect.info.place] {
    const SimCheckpoint* c = find(path);
    if (c == nullptr) {
      post_(node::CheckpointQuarantined{job, token, path,
                                        fail(ErrorCode::not_found, "could not rename " + path + ": no such file or directory")});
      return;
    }
    const std::string dir = path.substr(0, path.rfind('/'));
    // What was put there since is another: the agent's disk worker does one thing after the other (three hosts, seed 1023).
    std::erase_if(files_->dirs[dir], [&](const SimCheckpoint& other) { return other.info.path == path && other.info.place == place; });
    post_(node::CheckpointQuarantined{job, token, path, dir + "/.quarantine" + path.substr(path.rfind('/'))});
    changed(dir);
  });
}

void SimCheckpoints::perform(const node::DeleteCheckpoint& effect) {
  const std::string& path = effect.info.path;
  const std::string dir = path.substr(0, path.rfind('/'));
  std::erase_if(files_->dirs[dir], [&](const SimCheckpoint& c) { return c.info.path == path; });
  changed(dir);
}

void SimCheckpoints::agent_died() {
  ++life_;
  watched_.clear();
  looking_.clear();
  verifying_.clear();
}

bool SimCheckpoints::looking_at(JobId job) const {
  const auto it = looking_.find(job);
  return it != looking_.end() && it->second != 0;
}

}  // namespace dtrain::sim
