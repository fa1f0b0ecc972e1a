#include "agent/dtraind/log_sink.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "agent/loop/clock.h"
#include "common/base/steering.h"

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
  for (std::size_t i = 0; i < value.size(); ++i) {
    const char c = value[i];
    if (static_cast<unsigned char>(c) <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f || steering_bytes(value.substr(i)) > 0)
      return true;
  }
  return false;
}

void append_value(std::string& line, std::string_view value) {
  if (!needs_quotes(value)) {
    line += value;
    return;
  }
  line += '"';
  for (std::size_t i = 0; i < value.size(); ++i) {
    const char c = value[i];
    if (const std::size_t steering = steering_bytes(value.substr(i)); steering > 0) {
      line += steering_escape(value.substr(i, steering));
      i += steering - 1;
    } else if (c == '"' || c == '\\') {
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

// systemd names the stream that it reads: priorities have a meaning only if stderr still is that one.
bool is_journal(int fd) {
  const char* stream = ::getenv("JOURNAL_STREAM");
  unsigned long long device = 0, inode = 0;
  struct stat info {};
  return stream && std::sscanf(stream, "%llu:%llu", &device, &inode) == 2 && ::fstat(fd, &info) == 0 && info.st_dev == device &&
         info.st_ino == inode;
}

void append_fields(std::string& line, std::string_view event, std::span<const LogField> fields) {
  line += "event=";
  line += event;
  for (const LogField& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    append_value(line, field.value);
  }
}

// Names may have upper case letters, digits and underscores.
std::string journal_name(std::string_view key) {
  std::string name = "DTRAIN_";
  for (const char c : key) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    name += letter ? static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c) : '_';
  }
  name.resize(std::min(name.size(), kJournalNameBytes));
  return name;
}

// A value of several lines is preceded by its length: 64 bits, little endian.
void append_entry_field(std::string& entry, std::string_view name, std::string_view value) {
  entry += name;
  if (value.find('\n') == std::string_view::npos) {
    entry += '=';
  } else {
    entry += '\n';
    for (unsigned i = 0; i < 8; ++i) entry += static_cast<char>(value.size() >> (8 * i) & 0xff);
  }
  entry += value;
  entry += '\n';
}

}  // namespace

std::string journal_entry(LogLevel level, std::string_view event, std::span<const LogField> fields) {
  std::string entry, message;
  append_fields(message, event, fields);
  append_entry_field(entry, "MESSAGE", message);
  append_entry_field(entry, "PRIORITY", std::string_view(priority_of(level)).substr(1, 1));
  append_entry_field(entry, "SYSLOG_IDENTIFIER", "dtraind");
  append_entry_field(entry, "DTRAIN_EVENT", event);
  for (const LogField& field : fields) {
    const std::string_view value = field.value;
    const std::size_t slash = field.key == "task" ? value.find('/') : std::string_view::npos;
    if (slash != std::string_view::npos) append_entry_field(entry, journal_name("job"), value.substr(0, slash));
    append_entry_field(entry, journal_name(field.key), slash == std::string_view::npos ? value : value.substr(slash + 1));
  }
  return entry;
}

std::string render_log_line(WallTime time, LogLevel level, std::string_view event, std::span<const LogField> fields, bool priorities) {
  std::string line = priorities ? priority_of(level) : "";
  line += "time=" + to_rfc3339(time) + " level=" + name_of(level) + " ";
  append_fields(line, event, fields);
  return line;
}

LogSink::LogSink(int fd, LogLevel level, std::string journal_socket)
    : fd_(fd), level_(level), journal_(is_journal(fd)), journal_socket_(std::move(journal_socket)) {
  if (journal_) socket_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Addressed anew each time, because the journal may be restarted.
LogSink::Sent LogSink::send_entry(const std::string& entry) const {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (!socket_ || entry.size() > kJournalEntryBytes || journal_socket_.size() >= sizeof to.sun_path) return Sent::no;
  std::memcpy(to.sun_path, journal_socket_.data(), journal_socket_.size());
  ssize_t sent = -1;
  do {
    sent = ::sendto(socket_.get(), entry.data(), entry.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return Sent::yes;
  return errno == EAGAIN || errno == ENOBUFS ? Sent::not_now : Sent::no;
}

bool LogSink::writable() const {
  pollfd wait{fd_, POLLOUT, 0};
  return ::poll(&wait, 1, 0) == 1 && (wait.revents & POLLOUT);
}

void LogSink::write(LogLevel level, std::string_view event, std::span<const LogField> fields) {
  if (level < level_) return;
  if (journal_) {
    const LogField count{"lines", std::to_string(dropped_)};
    Sent sent = Sent::yes;
    if (dropped_ > 0) sent = send_entry(journal_entry(LogLevel::warn, "log.dropped", std::span(&count, 1)));
    if (sent == Sent::yes && dropped_ > 0) dropped_ = 0;
    if (sent == Sent::yes) sent = send_entry(journal_entry(level, event, fields));
    if (sent == Sent::not_now) ++dropped_;
    if (sent != Sent::no) return;  // otherwise as a line: the journal reads stderr, too
  }
  const WallTime now = loop::read_clocks().wall;
  std::string lines;
  if (dropped_ > 0) {
    const LogField count{"lines", std::to_string(dropped_)};
    lines = render_log_line(now, LogLevel::warn, "log.dropped", std::span(&count, 1), journal_) + "\n";
  }
  std::string line = render_log_line(now, level, event, fields, journal_);
  if (lines.size() + line.size() >= kLogLineBytes) line.resize(kLogLineBytes - 1 - lines.size());
  lines += line + "\n";
  dropped_ = write_lines(lines) ? 0 : dropped_ + 1;
}

// A pipe that is writable takes PIPE_BUF bytes without waiting.
bool LogSink::write_lines(const std::string& lines) const {
  ssize_t written = -1;
  if (writable()) {
    do {
      written = ::write(fd_, lines.data(), lines.size());
    } while (written < 0 && errno == EINTR);
  }
  return written >= 0;
}

}  // namespace dtrain::daemon
