// The hint beside checkpoints (transfer::Hint) that scripts read, such as TensorFlow's `checkpoint`: updated when a
// copy arrives. Rights: as in checkpoint_reader.h. When a checkpoint is removed: checkpoint_changes.h.
#pragma once

#include <string>

#include "agent/store/checkpoint_files.h"
#include "common/base/result.h"

namespace dtrain::store {

// A directory with its path.
struct HintHome {
  const UniqueFd& directory;
  std::string path;
};

// Writes into the directory `to`, under the same name, what the one in `home` is to say when the checkpoint home.path/`relative` is
// there; flushed, for a rename over that. It is named as the newest, as of `changed_ns`; with `only_first` it is named only
// where none is. False: nothing was written, the one in `home` stays.
// Error{io}: could not be read or written.
Result<bool> write_hint(const transfer::Hint& hint, const HintHome& home, const std::string& relative, std::int64_t changed_ns,
                        bool only_first, const UniqueFd& to);

}  // namespace dtrain::store
