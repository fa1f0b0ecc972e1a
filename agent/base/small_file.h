// Functions that read or write a small file whole: files of /proc and /sys, control groups, records, keys.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace dtrain {

// Returns the text of an errno value for messages: "No such file or directory".
std::string cause_of(int error);

// Returns the whole content of a file of at most `limit` bytes. Returns nothing on failure and sets errno (EFBIG: the
// file is longer).
std::optional<std::string> read_small_file(const std::string& path, std::size_t limit = 1 << 20);

// Reads until `text` is full or the file ends, and shortens `text` to the bytes read, so that there is no second copy
// of a secret. Returns false and sets errno on failure.
bool read_into(int fd, std::string& text);

// Writes all of `bytes` at the descriptor's position. Returns false and sets errno on failure.
bool write_all(int fd, std::string_view bytes);

// Writes to a control file that exists. Returns false and sets errno on failure.
bool write_control(const std::string& path, std::string_view text);

// Creates or replaces a file of mode 0600 by renaming a complete one into place.
Status replace_file(const std::string& path, std::string_view bytes);

}  // namespace dtrain
