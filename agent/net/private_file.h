// Files with secrets.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "common/base/result.h"

namespace dtrain::net {

// Reads a whole file; if it is longer than a key file may be (wire::kKeyFileBytes), only one byte more than that. The
// caller wipes the result. Refuses a file that others than its owner may access, and, with `owner`, one that belongs
// neither to that user nor to root, because its owner knows the content. Errors begin "could not read <what> <path>";
// `make_next`: advice how to make such a file.
Result<std::string> read_private_file(const std::string& path, const std::string& what, const std::string& make_next,
                                      std::optional<uid_t> owner = std::nullopt);

}  // namespace dtrain::net
