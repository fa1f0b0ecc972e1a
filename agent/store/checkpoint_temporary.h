// Where copies of checkpoints are written before they are in place: directories with names of their own, which say by whom, so that
// what a life of the agent left behind is told from what is being written, by itself or by another host that sees the same disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/ids.h"

namespace dtrain::store {

// This agent, in this life.
struct CopyOwner {
  NodeId host;
  std::uint64_t life = 0;
};

// "copy-HOST-LIFE-WRITER.dtrain.tmp": never taken for a checkpoint (transfer::is_ignored_name). `writer`: new for each copy of a life.
std::string temporary_name(const CopyOwner& owner, std::uint64_t writer);

// Of an earlier life of the same agent.
bool is_leftover(std::string_view name, const CopyOwner& owner);

// Removes such directories from `directory`. What cannot be read or removed stays. Rights: as in checkpoint_reader.h.
void remove_leftovers(const std::string& directory, const CopyOwner& owner);

}  // namespace dtrain::store
