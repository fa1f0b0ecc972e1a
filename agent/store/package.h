// Packs a directory into the form in which agents store it: a plain tar made by the system's GNU tar. Equal content
// and times give equal bytes (names sorted; no owners or groups), so an unchanged package is not sent again. Files
// keep their times, by which some programs decide (make; zip, which knows none before 1980); but whether two packages
// are the same is decided without times, so that a fresh checkout counts as the same code.
#pragma once

#include <string>

#include "common/base/result.h"

namespace dtrain::store {

struct PackedFile {
  std::string path;     // temporary file in $TMPDIR or /tmp; the caller removes it
  std::string digest;   // BLAKE2b-256 hex of its bytes
  std::string content;  // likewise, with all times blanked
};

// Blocks: for the client. A file inside that cannot be read, or changes meanwhile, is an error that names it
// (ErrorCode::invalid), as is a package of more than limits::kPackageBytes (ErrorCode::limit). On failure no file is left.
Result<PackedFile> pack_directory(const std::string& dir);

}  // namespace dtrain::store
