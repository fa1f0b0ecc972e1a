// The log on a disk: how a Persist changes it, how it begins, how a survivor begins anew.
#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/raft/raft.h"

namespace dtrain::raft {

void store(Stored& disk, const Persist& persist) {
  if (persist.forget) disk = {};
  if (persist.hard) disk.hard = *persist.hard;
  if (persist.snapshot) {
    disk.snapshot = *persist.snapshot;
    const auto gone = [&](const LogEntry& entry) { return persist.reset_log || entry.index <= persist.snapshot->index; };
    std::erase_if(disk.log, gone);
  }
  if (persist.truncate_from) std::erase_if(disk.log, [&](const LogEntry& entry) { return entry.index >= *persist.truncate_from; });
  disk.log.insert(disk.log.end(), persist.entries.begin(), persist.entries.end());
}

namespace {

LogEntry configuration_entry(std::uint64_t index, std::uint64_t term, const Configuration& configuration, Duration elapsed) {
  return {index, term, wire::encode_configuration(configuration), EntryKind::configuration, elapsed};
}

}  // namespace

Stored found(const History& history, const Configuration& configuration) {
  CHECK(!history.none() && !configuration.voters.empty() && configuration.voters.size() <= wire::kMostVoters);
  Stored stored;
  stored.hard.history = history;
  stored.hard.term = 1;
  stored.log.push_back(configuration_entry(1, 1, configuration, Duration{}));
  return stored;
}

Stored recovered(Stored survivor, const MemberId& self, const MemberId& mark) {
  std::uint64_t index = survivor.snapshot ? survivor.snapshot->index : 0;
  std::uint64_t term = std::max(survivor.hard.term, survivor.snapshot ? survivor.snapshot->term : 0);
  Duration elapsed = survivor.snapshot ? survivor.snapshot->elapsed : Duration{};
  if (!survivor.log.empty()) {
    index = survivor.log.back().index;
    term = std::max(term, survivor.log.back().term);
    elapsed = survivor.log.back().elapsed;
  }
  survivor.hard = HardState{{survivor.hard.history.number + 1, mark}, term + 1, 0, 0, {}, false};
  survivor.log.push_back(configuration_entry(index + 1, term + 1, {{self}, {}, survivor.hard.history.number}, elapsed));
  return survivor;
}

}  // namespace dtrain::raft
