// The text file `checkpoint` that TensorFlow keeps beside its bundles (a CheckpointState in protobuf's text format).
// It is a hint for scripts that restore by themselves: dtrain decides by the bundles, and rewrites the hint when it
// removes a bundle.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace dtrain::transfer {

inline constexpr std::string_view kCheckpointStateName = "checkpoint";
inline constexpr std::size_t kCheckpointStateBytes = 4 << 20;  // larger: refused unread
inline constexpr std::size_t kCheckpointStatePaths = 10'000;   // more: refused

struct CheckpointState {
  std::string model_checkpoint_path;                    // newest; absolute, or relative to the file's directory
  std::vector<std::string> all_model_checkpoint_paths;  // oldest to newest
  // Numbers as they were written; one per path of the list above, or none.
  std::vector<std::string> all_model_checkpoint_timestamps;
  std::string last_preserved_timestamp;
};

// ErrorCode::damaged with the cause alone. Unknown fields are skipped.
Result<CheckpointState> parse_checkpoint_state(std::string_view text);
std::string render_checkpoint_state(const CheckpointState& state);

// An absolute path for one that the file in `directory` mentions; "." components and double slashes removed.
std::string resolve_state_path(std::string_view directory, std::string_view mentioned);

// Removes the checkpoint `removed` (absolute) from a state that lies in `directory`. If it was the newest,
// `successor` (absolute, written in the same style; "" none) takes its place. Returns true when the state changed.
bool drop_from_state(CheckpointState& state, std::string_view directory, std::string_view removed, std::string_view successor);

}  // namespace dtrain::transfer
