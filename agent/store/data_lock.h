// One agent per data directory: <data>/lock is held (flock) as long as the agent lives and names its pid.
#pragma once

#include <string>

#include "agent/store/file.h"
#include "common/base/result.h"

namespace dtrain::store {

class DataLock {
 public:
  // ErrorCode::unavailable: another agent holds it; the message names its pid.
  static Result<DataLock> take(const std::string& data_dir);

 private:
  explicit DataLock(UniqueFd file) : file_(std::move(file)) {}
  UniqueFd file_;
};

}  // namespace dtrain::store
