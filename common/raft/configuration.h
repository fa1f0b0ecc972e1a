// Keeps which configuration is in force, that is, who has a copy of the log, and judges changes of it.
//
// A configuration is in force from the moment its entry is in the log, committed or not (thesis, 4.1). It is
// therefore not stored beside the log but read from it: when entries are cut off, so are their configurations, and a
// snapshot brings the configuration that was in force at its last entry.
#pragma once

#include <cstdint>
#include <vector>

#include "common/raft/log_entry.h"
#include "common/raft/raft.h"

namespace dtrain::raft {

class ConfigurationHistory {
 public:
  ConfigurationHistory(std::uint64_t index, Configuration base) { reset(index, std::move(base)); }

  const Configuration& current() const { return steps_.back().configuration; }
  std::uint64_t current_index() const { return steps_.back().index; }
  // The configuration that was in force before the current one; nullptr: not known here.
  const Configuration* previous() const { return steps_.size() < 2 ? nullptr : &steps_[steps_.size() - 2].configuration; }
  const Configuration& at(std::uint64_t index) const;  // the one in force at that entry, which must not have been compacted away

  void push(std::uint64_t index, Configuration configuration);  // replaces what stood at that index or after it
  void truncate_from(std::uint64_t index);
  void compact_to(std::uint64_t index);  // the configuration in force at `index` becomes the base
  void reset(std::uint64_t index, Configuration base);

 private:
  struct Step {
    std::uint64_t index = 0;
    Configuration configuration;
  };
  std::vector<Step> steps_;  // ascending; never empty
};

// Makes one change by one member. Refusal::none: `after` holds the result.
Refusal changed(const Configuration& before, ChangeKind kind, const MemberId& member, Configuration& after);

}  // namespace dtrain::raft
