#include "agent/dtrain-shim/journal_copy.h"

#include <sys/socket.h>

namespace dtrain::shim {

// Returns the number of bytes that were taken.
size_t JournalCopy::send_some(const char* bytes, size_t size) {
  size_t sent = 0;
  while (sent < size) {
    const ssize_t n = send(fd_, bytes + sent, size - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      if (n < 0 && errno == EAGAIN) break;
      close(fd_);  // journald is gone for good: a restarted one keeps its streams
      fd_ = -1;
      break;
    }
    sent += static_cast<size_t>(n);
  }
  if (sent > 0) line_open_ = bytes[sent - 1] != '\n';
  return sent;
}

bool JournalCopy::note_drops() {
  if (dropped_ == 0) return true;
  Text<128> notice;
  notice.add(line_open_ ? "\n" : "").add("[dtrain: ").add(dropped_).add(" bytes of output are left out here; dtrainctl logs has them]\n");
  if (send_some(notice.c_str(), notice.size()) < notice.size()) return false;
  dropped_ = 0;
  return true;
}

void JournalCopy::append(task::LogStream stream, const char* bytes, size_t size) {
  if (fd_ < 0) return;
  if (stream != stream_) end_line();  // the journal has only one stream for both
  stream_ = stream;
  dropped_ += size - (note_drops() ? send_some(bytes, size) : 0);
}

void JournalCopy::end_line() {
  if (fd_ < 0 || !note_drops() || !line_open_) return;
  (void)send_some("\n", 1);
}

}  // namespace dtrain::shim
