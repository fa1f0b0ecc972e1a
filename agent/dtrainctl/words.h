// The form of values in tables and in a job file's words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/wire/view.h"

namespace dtrain::ctl {

std::string age_text(std::int64_t seconds);                        // at most two units: "45s", "3m12s", "5h", "2d4h"
std::string bytes_text(std::uint64_t bytes);                       // "512 MiB"
int signal_number(std::string_view name);                          // of "SIGKILL"; 0: no such signal
std::string exit_text(const std::optional<wire::ExitView>& exit);  // "", "0", "3", "SIGKILL", "SIGKILL (out of memory)"

// Makes others' text (a task's STATUS, a job's reason) safe for a terminal: control characters and bytes that are no
// UTF-8 become '?', so that a task cannot move the reader's cursor.
std::string printable(std::string_view text);

// "worker-1.3", as lines of the log name a rank: takes the rank off the task. `rank`: one more than its number; 0: none is named yet.
void split_rank(std::string& task, std::uint32_t& rank);

// Parses --since: "5m" before `now_ms`, or an RFC 3339 time. Returns milliseconds since the epoch.
Result<std::int64_t> parse_since(std::string_view text, std::int64_t now_ms);

}  // namespace dtrain::ctl
