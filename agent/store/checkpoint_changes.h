// What the agent changes in a checkpoint directory: it renames bad checkpoints away, and with checkpoint.keep removes
// old ones. Rights: as in checkpoint_reader.h.
#pragma once

#include <string>

#include "common/base/result.h"
#include "common/transfer/checkpoint.h"

namespace dtrain::store {

// values of K in NAME.quarantined-K that are tried; if none is free: Error{limit}
inline constexpr std::uint32_t kQuarantineNames = 10'000;

// Renames, so that no name is left that looks like a checkpoint; nothing is deleted. Returns what to look at:
//   a directory NAME below `checkpoint_dir`   NAME.quarantined-K, and MANIFEST.json in it likewise
//   any other directory                       MANIFEST.json.quarantined-K in it
//   a TensorFlow prefix P                     P.index.quarantined-K, and every data and meta file likewise; a file
//                                             `checkpoint` that names P names the newest other complete one instead
// `checkpoint_dir` "": not known; then directories stay where they are.
// Error{not_found}: it is not there any more. Error{unavailable}: there is another one under this name now.
Result<std::string> quarantine(const transfer::CheckpointInfo& info, const std::string& checkpoint_dir);

// Deletes exactly the files that the manifest or index names, the manifest or index first, so that an interrupted
// removal leaves no checkpoint. Directories are removed if nothing else is in them. Errors as above.
Status remove(const transfer::CheckpointInfo& info, const std::string& checkpoint_dir);

}  // namespace dtrain::store
