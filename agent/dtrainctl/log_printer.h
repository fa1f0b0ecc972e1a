// The log of a job or a task on its way to stdout.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "agent/dtrainctl/escapes.h"
#include "common/wire/control.h"

namespace dtrain::ctl {

inline constexpr std::size_t kLogLineBytes = 64 << 10;   // a longer line is printed in pieces where lines matter

// Keeps a followed log whole over the loss of the agent: what is sent again is not printed again.
//
// The second request is for everything the first one could have brought, and bytes are counted per task, generation,
// attempt and stream. (Between stdout and stderr the order may differ from one reading to the next, within one it
// cannot.) Where the first request began somewhere in the middle, with --tail, times of arrival tell instead.
// Bounds: of a task that wrote more than its kept files hold, rotation may have removed bytes that were counted; then
// as many newer ones are taken for known.
class LogResume {
 public:
  explicit LogResume(wire::LogsRequest request) : request_(std::move(request)) {}
  // What to ask for on a new connection.
  wire::LogsRequest request();
  // The part of the chunk that was not printed before.
  std::string_view fresh(const wire::LogChunk& chunk);

 private:
  using Key = std::tuple<std::string, std::uint32_t, std::uint32_t, bool>;   // task, generation, attempt, stderr
  struct Seen {
    std::uint64_t bytes = 0;         // printed
    std::int64_t time_ms = 0;        // of the last of them
    std::uint64_t bytes_at_time = 0; // printed with that time
    std::uint64_t again = 0;         // bytes that this connection brought again
    bool reached = false;            // this connection is past what was printed
  };
  bool by_time() const { return request_.tail >= 0; }
  bool latest_only() const { return !request_.all_attempts && !request_.previous && request_.attempt == 0; }

  wire::LogsRequest request_;
  bool resumed_ = false;
  std::map<Key, Seen> seen_;
  std::map<std::string, std::pair<std::uint32_t, std::uint32_t>> first_;   // task -> generation, attempt it began with
};

struct LogStyle {
  bool prefix = false;       // "worker-1 | " before each line
  bool timestamps = false;   // RFC 3339 before each line
  bool color = false;        // of the prefix, and of what tasks colour themselves
  bool terminal = false;     // of escape sequences colours alone pass (escapes.h); off: bytes as they are
  bool bars_apart = false;   // lines that carriage returns write anew are in bars(), and printed once they end
};

// Where tasks are on lines of their own, a progress bar that is shown gives way to one of another task after so long: by then the line
// of the first has ended where it was.
inline constexpr std::int64_t kBarPauseMs = 1000;

// Without prefix and timestamps bytes pass unchanged. With them, lines of different tasks are never mixed. The agent cuts the log of a
// whole job behind line ends: there, a chunk without one is the last of its line, unless it says that this is open: a progress bar,
// which is shown state by state.
class LogPrinter {
 public:
  using Sink = std::function<void(std::string_view)>;
  LogPrinter(LogStyle style, Sink sink) : style_(style), sink_(std::move(sink)) {}
  void add(const wire::LogChunk& chunk, std::string_view bytes);
  void finish();   // lines without an end
  // The newest state of each line that is open, without colours.
  std::vector<std::string> bars() const;

 private:
  struct Partial {
    std::uint32_t generation = 0, attempt = 0;
    std::string text;
    std::int64_t time_ms = 0;
    std::size_t shown = 0;  // of text, on the line that is open
    bool left = false;      // that line had to be ended before its time
    EscapeFilter escapes;
  };
  using Key = std::pair<std::string, bool>;  // task and stream
  std::string head(const Key& key, const Partial& partial) const;
  void end_line(const Key& key, Partial& partial, std::string& out);
  void show_bar(const Key& key, Partial& partial, std::int64_t time_ms, std::string& out);
  void leave_bar(std::string& out);
  void reset_color(Partial& partial, std::string& out) const;

  LogStyle style_;
  Sink sink_;
  std::map<Key, Partial> partial_;
  std::optional<Key> bar_;       // whose line is open on the output
  std::int64_t bar_since_ = 0;
};

}  // namespace dtrain::ctl
