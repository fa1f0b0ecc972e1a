// Files of secrets.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "common/base/result.h"

namespace dtrain::net {

// The whole file; of one that is longer than a key file may be (wire::kKeyFileBytes) a byte more than that. The caller wipes it.
// Refuses one that others than its owner may access, and where `owner` is given one that is neither that user's nor root's: its owner
// knows what is in it. Errors begin "could not read <what> <path>"; `make_next`: how to have one.
Result<std::string> read_private_file(const std::string& path, const std::string& what, const std::string& make_next,
                                      std::optional<uid_t> owner = std::nullopt);

}  // namespace dtrain::net
