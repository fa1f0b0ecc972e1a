// Which names are checkpoints at all, what a quarantined one is called, and which checkpoint is the newest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/transfer/checkpoint.h"

namespace dtrain::transfer {

// A name, of a directory or a file, that is never looked at: unfinished (.tmp) or quarantined.
bool is_ignored_name(std::string_view name);

// "step-100" -> "step-100.quarantined-1"
std::string quarantined_name(std::string_view name, std::uint32_t k);

// A candidate together with when its bytes last changed: the writer's clock, so only a tie-break.
struct Candidate {
  CheckpointInfo info;
  std::int64_t changed_ns = 0;
  std::uint64_t stamp = 0;   // of every file's identity, size and time: equal stamps mean nothing moved meanwhile
};

// Newest step first; equal steps by time of change, then by path, so that the order is always the same.
void sort_newest_first(std::vector<Candidate>& candidates);

}  // namespace dtrain::transfer
