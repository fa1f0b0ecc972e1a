// The checkpoint directories: what tasks wrote there, which of it is good, and which agent looks. In some runs all
// simulated hosts share them, in others each host has its own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "common/node/effect.h"
#include "tests/sim/timeline.h"

namespace dtrain::sim {

struct SimCheckpoint {
  transfer::CheckpointInfo info;
  bool good = true;  // the truth: a check of every byte would succeed
  JobId job = 0;     // who wrote it
  Generation generation = 0;
  Instant written{};
  Instant decayed{};  // when it was not from its beginning
};

class SimCheckpoints {
 public:
  using Post = std::function<void(node::Event)>;
  // The content, and who is informed of changes.
  struct Files {
    std::map<std::string, std::vector<SimCheckpoint>> dirs;
    std::uint64_t number = 0;  // of these among others
    std::uint64_t written = 0;
    std::vector<SimCheckpoints*> viewers;
  };
  // One host's view. Without `files`: its own files, which no other host sees.
  SimCheckpoints(Timeline& timeline, Rng rng, Post post, std::shared_ptr<Files> files = nullptr);
  SimCheckpoints(const SimCheckpoints&) = delete;
  SimCheckpoints& operator=(const SimCheckpoints&) = delete;

  // A task committed a checkpoint. It overwrites the same step in the same directory.
  void write(const std::string& dir, JobId job, Generation generation, std::int64_t step, bool torn, bool rotten);
  // A copy of another host's checkpoint; it replaces what has its name.
  void put(const SimCheckpoint& copy);
  const SimCheckpoint* find(const std::string& path) const { return const_cast<SimCheckpoints*>(this)->find(path); }
  void rot(const std::string& dir, const std::string& path);  // a good one stops verifying

  void perform(const node::WatchCheckpoints& effect);
  void perform(const node::ScanCheckpoints& effect);
  void perform(const node::VerifyCheckpoint& effect);
  void perform(const node::EndVerification& effect);
  void perform(const node::QuarantineCheckpoint& effect);
  void perform(const node::DeleteCheckpoint& effect);
  void agent_died();                     // nobody looks any more; the files stay
  void lose() { files_->dirs.clear(); }  // then, where no other host shares them

  // Everything in `dir` that has a name of a checkpoint, newest step first.
  const std::vector<SimCheckpoint>& in(const std::string& dir) const;
  bool looking_at(JobId job) const;  // a scan or verification of that job is under way
  std::vector<std::string> directories() const;

 private:
  Result<std::vector<transfer::CheckpointInfo>> list(const std::string& dir) const;
  SimCheckpoint* find(const std::string& path);
  void insert(const std::string& dir, SimCheckpoint c);
  std::uint64_t place() const;
  void changed(const std::string& dir);
  void noticed(const std::string& dir);
  Duration reading_time();
  void later(JobId job, std::function<void()> action);

  Timeline& timeline_;
  Rng rng_;
  Post post_;
  std::shared_ptr<Files> files_;
  std::map<JobId, std::string> watched_;
  std::map<JobId, std::uint32_t> looking_;
  std::set<std::uint64_t> verifying_;  // tokens of the awaited ones
  std::uint64_t life_ = 0;
};

}  // namespace dtrain::sim
