// Numbers with units, in both directions, and signals. The readers that others need too are in manifest.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/result.h"
#include "common/base/time.h"

namespace dtrain::job {

inline constexpr Duration kLongestDuration = std::chrono::hours(24) * 3650;  // sums of a few stay far from overflow
inline constexpr std::uint64_t kMostCpuMillis = 1'000'000'000;               // a million CPUs
inline constexpr std::int32_t kHighestSignal = 64;

Result<std::int32_t> parse_signal(std::string_view text);  // SIGUSR1, USR1 or 10; 1 to kHighestSignal

// "7" or "3-5", as the first and the last number.
Result<std::pair<std::uint32_t, std::uint32_t>> parse_range(std::string_view text);
std::string format_range(std::uint32_t first, std::uint32_t last);

// The shortest text that reads back as the same value.
std::string format_cpus(std::uint64_t millis);
std::string format_memory(std::uint64_t bytes);
std::string format_duration(Duration d);  // whole milliseconds, not negative
std::string format_signal(std::int32_t signal);

}  // namespace dtrain::job
