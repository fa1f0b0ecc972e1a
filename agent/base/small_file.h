// Reading and writing small files whole: of /proc and /sys, control groups, records, keys.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace dtrain {

// The text of errno for messages: "No such file or directory".
std::string cause_of(int error);

// Whole content of a file of at most `limit` bytes; errno is kept on failure (EFBIG: longer).
std::optional<std::string> read_small_file(const std::string& path, std::size_t limit = 1 << 20);

// Reads on until `text` is full or the file ends, and cuts it to what came; a secret has no second copy then. False: errno.
bool read_into(int fd, std::string& text);

// All of `bytes` at the descriptor's position; errno is kept on failure.
bool write_all(int fd, std::string_view bytes);

// Writes to a control file that exists. errno is kept on failure.
bool write_control(const std::string& path, std::string_view text);

// Creates or replaces a file of mode 0600 by renaming a complete one into place.
Status replace_file(const std::string& path, std::string_view bytes);

}  // namespace dtrain
