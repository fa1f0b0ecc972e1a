// The file `checkpoint` beside TensorFlow's bundles, which scripts read (tf.train.latest_checkpoint): kept true when a copy of a bundle
// comes. Rights: as in checkpoint_reader.h. When one is taken away: checkpoint_changes.h.
#pragma once

#include <string>

#include "agent/store/checkpoint_files.h"
#include "common/base/result.h"

namespace dtrain::store {

// A directory with its path.
struct HintHome {
  const FileDescriptor& directory;
  std::string path;
};

// Writes into the directory `to`, as `checkpoint`, what the one in `home` is to say when the bundle with the prefix home.path/`relative`
// is there; flushed, for a rename over that. The bundle is named as the newest, as of `changed_ns`; with `only_first` it is named only
// where none is. False: nothing was written, the one in `home` stays.
// Error{io}: could not be read or written.
Result<bool> write_hint(const HintHome& home, const std::string& relative, std::int64_t changed_ns, bool only_first,
                        const FileDescriptor& to);

}  // namespace dtrain::store
