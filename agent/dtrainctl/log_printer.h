// The log of a job or a task on its way to stdout.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <tuple>

#include "common/wire/control.h"

namespace dtrain::ctl {

inline constexpr std::size_t kLogLineBytes = 64 << 10;   // a longer line is printed in pieces where lines matter

// Finds out what of a log that is sent again from its beginning is new: counts bytes per task, generation, attempt and
// stream. (Between stdout and stderr the order may differ from one reading to the next, within one it cannot.)
class LogPosition {
 public:
  // The part of the chunk that was not seen before.
  std::string_view fresh(const wire::LogChunk& chunk);
  // The stream begins anew.
  void rewind() { read_.clear(); }
  bool empty() const { return seen_.empty(); }

 private:
  using Key = std::tuple<std::string, std::uint32_t, std::uint32_t, bool>;
  std::map<Key, std::uint64_t> seen_, read_;
};

struct LogStyle {
  bool prefix = false;       // "worker-1 | " before each line
  bool timestamps = false;   // RFC 3339 before each line
  bool color = false;
  bool last_part_only = false;   // of a line with carriage returns (progress bars), what a terminal would show
};

// Without prefix and timestamps bytes pass unchanged. With them, lines of different tasks are never mixed. The agent
// cuts the log of a whole job behind line ends: there, a chunk without one is the last of its line all the same.
class LogPrinter {
 public:
  using Sink = std::function<void(std::string_view)>;
  LogPrinter(LogStyle style, Sink sink) : style_(style), sink_(std::move(sink)) {}
  void add(const wire::LogChunk& chunk, std::string_view bytes);
  void finish();   // lines without an end

 private:
  struct Partial {
    std::uint32_t generation = 0, attempt = 0;
    std::string text;
    std::int64_t time_ms = 0;
  };
  void end_line(const std::string& task, Partial& partial, std::string& out) const;
  void line(const std::string& task, std::int64_t time_ms, std::string_view text, std::string& out) const;

  LogStyle style_;
  Sink sink_;
  std::map<std::pair<std::string, bool>, Partial> partial_;   // by task and stream
};

}  // namespace dtrain::ctl
