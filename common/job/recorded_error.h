// The file in which a rank of PyTorch writes down the exception that ends it: torchelastic's `@record` writes JSON to the path in
// TORCHELASTIC_ERROR_FILE (torch/distributed/elastic/multiprocessing/errors/error_handler.py). Its bytes are the user's.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "common/job/exit.h"

namespace dtrain::job {

inline constexpr std::size_t kErrorFileBytes = 64 << 10;  // a larger one is not read

// When the file was written and when the attempt began and ended, by the clock of the host.
struct ErrorTimes {
  WallTime written{}, began{}, ended{};
};

// The error without its rank. nullopt: the file is none of these, or is cut.
std::optional<RecordedError> parse_recorded_error(std::string_view file, const ErrorTimes& times);

// In place of an exception, of a rank that a signal had stopped.
inline constexpr const char* kStoppedError = "was stopped (SIGSTOP) and did not go on";

// When the failure began: before the end of its process, which may have closed files and connections first.
inline WallTime failed_at(const Exit& exit) { return exit.recorded ? exit.recorded->at : exit.ended; }

}  // namespace dtrain::job
