// Which names are checkpoints at all, how a quarantined one is named, and which checkpoint is the newest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/transfer/checkpoint.h"

namespace dtrain::transfer {

// A name of a directory or file that is never looked at: unfinished (.tmp) or quarantined.
bool is_ignored_name(std::string_view name);

// "step-100" -> "step-100.quarantined-1". `before`: "quarantined-1.step-100", where scripts look for names by how they begin.
std::string quarantined_name(std::string_view name, std::uint32_t k, bool before);

// A candidate with the time when its bytes last changed. That is the writer's clock, so it only breaks ties.
struct Candidate {
  CheckpointInfo info;
  std::int64_t changed_ns = 0;
  std::uint64_t stamp = 0;  // hash of every file's identity, size and time: equal stamps mean that nothing changed in between
};

// Newest step first; equal steps by time of change, then by path, so that the order is always the same.
void sort_newest_first(std::vector<Candidate>& candidates);

}  // namespace dtrain::transfer
