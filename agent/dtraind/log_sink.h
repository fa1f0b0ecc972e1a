// The agent's log: one line for each event on stderr,
//   time=2026-11-20T07:00:00.123Z level=info event=member.down node=n3 incarnation=7
// with <N> priorities in front under systemd. A reader that does not read never stops the agent: lines that a pipe
// cannot take are dropped and counted.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/log.h"
#include "common/base/time.h"

namespace dtrain::daemon {

inline constexpr std::size_t kLogLineBytes = 4096;  // PIPE_BUF: a longer line is cut, so that lines never mix

class LogSink : public Log {
 public:
  LogSink(int fd, LogLevel level);
  using Log::write;
  void write(LogLevel level, std::string_view event, std::span<const LogField> fields) override;
  void set_level(LogLevel level) { level_ = level; }

 private:
  bool writable() const;

  int fd_;
  LogLevel level_;
  bool journal_;               // stderr is systemd's journal
  std::uint64_t dropped_ = 0;
};

// One line, without its end. Values with spaces, quotes, "=" or control characters are quoted.
std::string render_log_line(WallTime time, LogLevel level, std::string_view event, std::span<const LogField> fields,
                            bool priorities);

}  // namespace dtrain::daemon
