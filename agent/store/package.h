// Packing a directory into what agents store and unpack: a plain tar made by the system's GNU tar. Equal
// content gives equal bytes (names sorted; no times, owners or groups), so an unchanged package is not sent
// again.
#pragma once

#include <string>

#include "common/base/result.h"

namespace dtrain::store {

struct PackedFile {
  std::string path;    // temporary file in $TMPDIR or /tmp; the caller removes it
  std::string digest;  // BLAKE2b-256 hex of its bytes
};

// Blocking: for the client. A file inside that cannot be read, or changes meanwhile, is an error that names
// it (ErrorCode::invalid), as is a package of more than limits::kPackageBytes (ErrorCode::limit). On failure
// no file is left.
Result<PackedFile> pack_directory(const std::string& dir);

}  // namespace dtrain::store
