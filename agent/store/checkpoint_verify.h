// The deep check of one checkpoint: reads and compares every byte that its manifest or index covers. Works in slices,
// so that one worker thread can do other things in between; uses read(), never mmap, because a file truncated under a
// mapping would raise a signal instead of an error.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/result.h"
#include "common/transfer/checkpoint.h"

namespace dtrain::store {

// Errors name the checkpoint, the file and the cause. Only ErrorCode::damaged says that the bytes are wrong (and will
// stay so); not_found: it vanished; unavailable: it changed while it was read, or differs from `info`; io: it could
// not be read; refused: a variant of the format that is not supported.
class Verification {
 public:
  // `below`: as of open_directory_below(), on the way to the checkpoint.
  static Result<Verification> begin(const transfer::CheckpointInfo& info, const std::string& below);
  Verification(Verification&&) noexcept;
  Verification& operator=(Verification&&) noexcept;
  ~Verification();

  // Reads about `budget` bytes more. true: all was read and is good.
  Result<bool> advance(std::uint64_t budget);

 private:
  class Impl;
  explicit Verification(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The whole of it at once.
Status verify(const transfer::CheckpointInfo& info, const std::string& below = "");

}  // namespace dtrain::store
