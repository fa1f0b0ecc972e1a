// Helpers over plain system calls: no heap, no stdio, no locale.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace dtrain::shim {

// The bare system call: the C library's wrapper sets close-on-exec a second time.
inline int open_file(const char* path, int flags, mode_t mode = 0) {
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, mode));
}

// Not through the vDSO: a shim reads the clock only a few times, and finding and mapping those pages costs more.
inline int64_t clock_ns(clockid_t clock) {
  timespec t{};
  syscall(SYS_clock_gettime, clock, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}
inline int64_t wall_ns() { return clock_ns(CLOCK_REALTIME); }
inline int64_t boot_ns() { return clock_ns(CLOCK_BOOTTIME); }

// A short text that is assembled in place; what does not fit is cut.
template <size_t N>
class Text {
 public:
  Text() { bytes_[0] = '\0'; }
  Text& add(const char* s) {
    while (*s != '\0' && size_ + 1 < N) bytes_[size_++] = *s++;
    bytes_[size_] = '\0';
    return *this;
  }
  Text& add(uint64_t number) {
    char digits[21];
    size_t at = sizeof(digits) - 1;
    digits[at] = '\0';
    do {
      digits[--at] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    return add(digits + at);
  }
  const char* c_str() const { return bytes_; }
  char* data() { return bytes_; }
  size_t size() const { return size_; }

 private:
  char bytes_[N];  // not cleared: most of a long one is never used
  size_t size_ = 0;
};

// Reads a small file of /proc or /sys from its beginning; the text is NUL-terminated. Returns its length or -1.
inline ssize_t reread(int fd, char* buffer, size_t size) {
  const ssize_t n = pread(fd, buffer, size - 1, 0);
  buffer[n > 0 ? n : 0] = '\0';
  return n;
}

// The number after `key ` at the beginning of a line; -1 when there is none.
inline int64_t value_of(const char* text, const char* key) {
  const size_t length = strlen(key);
  for (const char* line = text; line != nullptr && *line != '\0';) {
    if (strncmp(line, key, length) == 0 && line[length] == ' ') {
      int64_t value = 0;
      for (const char* c = line + length + 1; *c >= '0' && *c <= '9'; ++c) value = value * 10 + (*c - '0');
      return value;
    }
    line = strchr(line, '\n');
    if (line != nullptr) ++line;
  }
  return -1;
}

}  // namespace dtrain::shim
