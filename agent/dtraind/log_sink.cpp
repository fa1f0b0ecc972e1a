#include "agent/dtraind/log_sink.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "agent/loop/clock.h"

namespace dtrain::daemon {
namespace {

const char* name_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return "debug";
    case LogLevel::info: return "info";
    case LogLevel::warn: return "warn";
    case LogLevel::error: return "error";
  }
  return "error";
}

const char* priority_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return "<7>";
    case LogLevel::info: return "<6>";
    case LogLevel::warn: return "<4>";
    case LogLevel::error: return "<3>";
  }
  return "<3>";
}

bool needs_quotes(std::string_view value) {
  if (value.empty()) return true;
  for (const char c : value)
    if (static_cast<unsigned char>(c) <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f) return true;
  return false;
}

void append_value(std::string& line, std::string_view value) {
  if (!needs_quotes(value)) {
    line += value;
    return;
  }
  line += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      line += '\\';
      line += c;
    } else if (c == '\n') {
      line += "\\n";
    } else if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned char>(c));
      line += escape;
    } else {
      line += c;
    }
  }
  line += '"';
}

// systemd names the stream that it reads: only if stderr still is that one, priorities mean something.
bool is_journal(int fd) {
  const char* stream = ::getenv("JOURNAL_STREAM");
  unsigned long long device = 0, inode = 0;
  struct stat info{};
  return stream && std::sscanf(stream, "%llu:%llu", &device, &inode) == 2 && ::fstat(fd, &info) == 0 &&
         info.st_dev == device && info.st_ino == inode;
}

}  // namespace

std::string render_log_line(WallTime time, LogLevel level, std::string_view event, std::span<const LogField> fields,
                            bool priorities) {
  std::string line = priorities ? priority_of(level) : "";
  line += "time=" + to_rfc3339(time) + " level=" + name_of(level) + " event=";
  line += event;
  for (const LogField& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    append_value(line, field.value);
  }
  return line;
}

LogSink::LogSink(int fd, LogLevel level) : fd_(fd), level_(level), journal_(is_journal(fd)) {}

bool LogSink::writable() const {
  pollfd wait{fd_, POLLOUT, 0};
  return ::poll(&wait, 1, 0) == 1 && (wait.revents & POLLOUT);
}

void LogSink::write(LogLevel level, std::string_view event, std::span<const LogField> fields) {
  if (level < level_) return;
  const WallTime now = loop::read_clocks().wall;
  std::string lines;
  if (dropped_ > 0) {
    const LogField count{"lines", std::to_string(dropped_)};
    lines = render_log_line(now, LogLevel::warn, "log.dropped", std::span(&count, 1), journal_) + "\n";
  }
  std::string line = render_log_line(now, level, event, fields, journal_);
  if (lines.size() + line.size() >= kLogLineBytes) line.resize(kLogLineBytes - 1 - lines.size());
  lines += line + "\n";
  // A pipe that is writable takes PIPE_BUF bytes without waiting.
  ssize_t written = -1;
  if (writable()) {
    do {
      written = ::write(fd_, lines.data(), lines.size());
    } while (written < 0 && errno == EINTR);
  }
  dropped_ = written < 0 ? dropped_ + 1 : 0;
}

}  // namespace dtrain::daemon
