#include "common/node/replica.h"

#include <iterator>

namespace dtrain::node {
namespace {

struct Begin {
  raft::Stored stored;
  std::vector<raft::LogEntry> unwritten;
};

Begin begin(raft::Stored stored, const MemberId& self, const std::optional<MemberId>& found) {
  if (!found || !stored.hard.history.none()) return {std::move(stored), {}};
  const bool empty = !stored.snapshot && stored.log.empty();
  stored = empty ? raft::found({1, *found}, {{self}, {}}) : raft::recovered(std::move(stored), self, *found);
  std::vector<raft::LogEntry> unwritten{stored.log.back()};
  return {std::move(stored), std::move(unwritten)};
}

bool anything(const raft::Outputs& out) {
  return !out.sends.empty() || out.persist || out.forgotten || out.installed || !out.committed.empty() || !out.answers.empty() ||
         out.leadership || out.snapshot_wanted;
}

}  // namespace

Replica::Replica(raft::Self self, raft::RaftOptions options, Rng rng, Log& log, raft::Stored stored, std::optional<MemberId> found)
    : raft_([&] {
        Begin first = begin(std::move(stored), self.id, found);
        unwritten_ = std::move(first.unwritten);
        return raft::Raft(self, std::move(options), rng, log, std::move(first.stored));
      }()) {}

void Replica::step(Instant now, const raft::Input& input) {
  dirty_ = true;
  raft_.step(now, input, out_, true);
}

std::uint64_t Replica::propose(Instant now, std::string payload) {
  const std::size_t answered = out_.answers.size();
  step(now, raft::Propose{0, std::move(payload)});
  const bool refused = out_.answers.size() > answered && out_.answers.back().index == 0;
  return refused ? 0 : raft_.last_index();
}

void Replica::flush(Instant now) {
  dirty_ = false;
  raft_.step(now, raft::Tick{}, out_);
  if (!out_.persist || unwritten_.empty()) return;
  unwritten_.insert(unwritten_.end(), std::make_move_iterator(out_.persist->entries.begin()),
                    std::make_move_iterator(out_.persist->entries.end()));
  out_.persist->entries = std::exchange(unwritten_, {});
}

std::optional<raft::Outputs> Replica::take() {
  if (!anything(out_)) return std::nullopt;
  return std::exchange(out_, {});
}

bool Replica::alone() const {
  // A configuration of an older history elects nobody: a member that followed recover-quorum's survivor waits for the survivor.
  const raft::Configuration& configuration = raft_.configuration();
  return configuration.voters.size() == 1 && configuration.voters.front() == raft_.id() && configuration.history == raft_.history().number;
}

}  // namespace dtrain::node
