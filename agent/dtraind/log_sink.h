// The agent's log: one line on stderr for each event,
//   time=2026-11-20T07:00:00.123Z level=info event=member.down node=n3 incarnation=7
// If stderr is systemd's journal, an entry with each field under its name instead (journal_entry()): journalctl
// DTRAIN_JOB=mnist finds the entries about that job. A reader that stops reading never stops the agent: what a pipe
// or the journal cannot take now is dropped and counted. (libsystemd's sd_journal_sendv() waits for a journal that
// does not read.)
#pragma once

#include <cstdint>
#include <string>

#include "agent/base/unique_fd.h"
#include "common/base/log.h"
#include "common/base/time.h"

namespace dtrain::daemon {

inline constexpr std::size_t kLogLineBytes = 4096;           // PIPE_BUF: a longer line is cut, so that lines never mix
inline constexpr std::size_t kJournalNameBytes = 64;         // of a field's name: the journal drops longer names
inline constexpr std::size_t kJournalEntryBytes = 64 << 10;  // a larger one goes to stderr, cut
inline constexpr const char* kJournalSocket = "/run/systemd/journal/socket";

class LogSink : public Log {
 public:
  LogSink(int fd, LogLevel level, std::string journal_socket = kJournalSocket);
  LogSink(const LogSink&) = delete;
  LogSink& operator=(const LogSink&) = delete;
  using Log::write;
  void write(LogLevel level, std::string_view event, std::span<const LogField> fields) override;
  void set_level(LogLevel level) { level_ = level; }

 private:
  enum class Sent : unsigned char { yes, not_now, no };
  Sent send_entry(const std::string& entry) const;
  bool write_lines(const std::string& lines) const;
  bool writable() const;

  int fd_;
  LogLevel level_;
  bool journal_;  // stderr is systemd's journal
  std::string journal_socket_;
  UniqueFd socket_;  // connected to the journal, for entries; none: there is none
  std::uint64_t dropped_ = 0;
};

// One line, without its end. Values with spaces, quotes, "=" or control characters are quoted.
std::string render_log_line(WallTime time, LogLevel level, std::string_view event, std::span<const LogField> fields, bool priorities);

// One datagram of the journal's native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL): MESSAGE is the line without
// time and level, DTRAIN_EVENT is the event and DTRAIN_<KEY> each field; task=J/T, as events name a task, becomes
// DTRAIN_JOB=J and DTRAIN_TASK=T.
std::string journal_entry(LogLevel level, std::string_view event, std::span<const LogField> fields);

}  // namespace dtrain::daemon
