// File helpers of the agent: every file is written completely or not at all, even if the agent is killed at any byte.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "agent/base/small_file.h"
#include "agent/base/unique_fd.h"
#include "common/base/result.h"

namespace dtrain::store {

// mkdir -p; the last component gets `mode`, parents that are missing 0755.
Status make_directories(const std::string& path, unsigned mode);
// Writes beside `path`, flushes, renames over it and flushes the directory.
Status write_file_atomically(const std::string& path, std::string_view bytes, unsigned mode);
// The whole file; larger than `limit` bytes is an error.
Result<std::string> read_file(const std::string& path, std::size_t limit);
Status flush_directory(const std::string& path);
// Removes a tree, not following links. Missing is no error.
Status remove_tree(const std::string& path);

}  // namespace dtrain::store
