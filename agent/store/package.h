// Packing a directory into what agents store and unpack: a plain tar made by the system's GNU tar. Equal
// content and times give equal bytes (names sorted; no owners or groups), so an unchanged package is not sent
// again. The files keep their times, which some programs judge by (make; zip, which knows none before 1980); whether
// two packages are the same is judged without them: a checkout made anew is the same code.
#pragma once

#include <string>

#include "common/base/result.h"

namespace dtrain::store {

struct PackedFile {
  std::string path;    // temporary file in $TMPDIR or /tmp; the caller removes it
  std::string digest;  // BLAKE2b-256 hex of its bytes
  std::string content; // the same of the bytes with all times blanked
};

// Blocking: for the client. A file inside that cannot be read, or changes meanwhile, is an error that names
// it (ErrorCode::invalid), as is a package of more than limits::kPackageBytes (ErrorCode::limit). On failure
// no file is left.
Result<PackedFile> pack_directory(const std::string& dir);

}  // namespace dtrain::store
