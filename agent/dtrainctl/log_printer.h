// Prints the log of a job or a task to stdout.
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

// Who wrote it: "worker-1", or "worker-1.3" for rank 3 of that task.
std::string source_of(const wire::LogChunk& chunk);

inline constexpr std::size_t kLogLineBytes = 64 << 10;  // a longer line is printed in pieces if lines are kept together

// Keeps a followed log complete when the agent is lost for a while: bytes that are sent again are not printed again.
//
// The second request asks for everything that the first could have brought, and bytes are counted for each task,
// generation, attempt and stream. (The order between stdout and stderr may differ from one reading to the next, but
// not within one of them.) If the first request began in the middle (--tail), times of arrival are used instead.
// Limit: if a task wrote more than its kept files hold, rotation may have removed counted bytes; then as many newer
// ones are taken for known.
class LogResume {
 public:
  explicit LogResume(wire::LogsRequest request) : request_(std::move(request)) {}
  // The request to send on a new connection.
  wire::LogsRequest request();
  // The part of the chunk that was not printed before.
  std::string_view fresh(const wire::LogChunk& chunk);

 private:
  using Key = std::tuple<std::string, std::uint32_t, std::uint32_t, bool>;  // source, generation, attempt, stderr
  struct Seen {
    std::uint64_t bytes = 0;          // number printed
    std::int64_t time_ms = 0;         // arrival time of the last of them
    std::uint64_t bytes_at_time = 0;  // number printed with that time
    std::uint64_t again = 0;          // bytes that this connection brought a second time
    bool reached = false;             // this connection has passed what was printed
  };
  bool by_time() const { return request_.tail >= 0; }
  bool latest_only() const { return !request_.all_attempts && !request_.previous && request_.attempt == 0; }

  wire::LogsRequest request_;
  bool resumed_ = false;
  std::map<Key, Seen> seen_;
  std::map<std::string, std::pair<std::uint32_t, std::uint32_t>> first_;  // source -> generation, attempt it began with
};

struct LogStyle {
  bool prefix = false;      // "worker-1 | " before each line
  bool ranks = false;       // the same for lines of a task with ranks: "worker-1.3 | "
  bool timestamps = false;  // RFC 3339 before each line
  bool color = false;       // for the prefix, and for colours in tasks' output
  bool terminal = false;    // of escape sequences only colours pass (escapes.h); false: bytes unchanged
  bool bars_apart = false;  // lines that carriage returns rewrite are in bars(), and printed once they end
};

// If tasks have lines of their own, a progress bar gives way to another task's after this time: its line then ends
// where it is.
inline constexpr std::int64_t kBarPauseMs = 1000;

// Without prefixes and timestamps bytes pass unchanged. With them, lines of different tasks never mix. The agent cuts
// the log of a whole job after line ends: a chunk without one is the last of its line, unless it is marked as open,
// which means a progress bar, shown state by state.
class LogPrinter {
 public:
  using Sink = std::function<void(std::string_view)>;
  LogPrinter(LogStyle style, Sink sink) : style_(style), sink_(std::move(sink)) {}
  void add(const wire::LogChunk& chunk, std::string_view bytes);
  void finish();  // prints lines without an end
  // The newest state of each open line, without colours.
  std::vector<std::string> bars() const;

 private:
  struct Partial {
    std::uint32_t generation = 0, attempt = 0;
    std::string text;
    std::int64_t time_ms = 0;
    std::size_t shown = 0;  // bytes of `text` that are shown on the open line
    bool prefix = false;    // its lines have one
    bool left = false;      // that line had to be ended early
    EscapeFilter escapes;
  };
  using Key = std::pair<std::string, bool>;  // source and stream
  std::string head(const Key& key, const Partial& partial) const;
  void end_line(const Key& key, Partial& partial, std::string& out);
  void show_bar(const Key& key, Partial& partial, std::int64_t time_ms, std::string& out);
  void leave_bar(std::string& out);
  void reset_color(Partial& partial, std::string& out) const;

  LogStyle style_;
  Sink sink_;
  std::map<Key, Partial> partial_;
  std::optional<Key> bar_;  // whose line is open on the output
  std::int64_t bar_since_ = 0;
};

}  // namespace dtrain::ctl
