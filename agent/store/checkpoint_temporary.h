// Directories in which copies of checkpoints are written until they are in place. Their names say who writes them, so
// that leftovers of an earlier life of the agent can be told from copies in progress, by this agent or by another
// host that sees the same disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/ids.h"

namespace dtrain::store {

// This agent in its present life.
struct CopyOwner {
  NodeId host;
  std::uint64_t life = 0;
};

// "copy-HOST-LIFE-WRITER.dtrain.tmp": never taken for a checkpoint (transfer::is_ignored_name). `writer`: different
// for each copy of a life.
std::string temporary_name(const CopyOwner& owner, std::uint64_t writer);

// True if it belongs to an earlier life of the same agent.
bool is_leftover(std::string_view name, const CopyOwner& owner);

// Removes such directories from `directory`, except those that cannot be read or removed. Rights: as in checkpoint_reader.h.
void remove_leftovers(const std::string& directory, const CopyOwner& owner);

}  // namespace dtrain::store
