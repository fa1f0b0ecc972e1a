#include "agent/dtraind/housekeeping.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/statvfs.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

namespace dtrain::daemon {
namespace {

struct Mapping {
  std::uintptr_t first = 0, last = 0;
  bool of_file = false, writable = true, clean = true;

  void drop() const {
    if (of_file && !writable && clean && last > first) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  }
};

// The first line of a mapping in smaps: "7f12-7f34 r-xp 00000000 08:01 4711   /usr/lib/x.so"
bool read_head(const char* line, Mapping& mapping) {
  unsigned long first = 0, last = 0, inode = 0;
  char flags[5] = {};
  if (std::sscanf(line, "%lx-%lx %4s %*x %*s %lu", &first, &last, flags, &inode) != 4) return false;
  mapping = {first, last, inode != 0 && std::strchr(line, '/') != nullptr, flags[1] == 'w', true};
  return true;
}

void drop_clean_file_pages() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> smaps(std::fopen("/proc/self/smaps", "re"), &std::fclose);
  if (!smaps) return;
  Mapping mapping;
  char line[4352];
  while (std::fgets(line, sizeof line, smaps.get())) {
    Mapping next;
    unsigned long kib = 0;
    char word[5] = {};
    if (read_head(line, next)) {
      mapping.drop();
      mapping = next;
    } else if (std::sscanf(line, "Private_Dirty: %lu", &kib) == 1 || std::sscanf(line, "Shared_Dirty: %lu", &kib) == 1 ||
               std::sscanf(line, "Anonymous: %lu", &kib) == 1 || std::sscanf(line, "Swap: %lu", &kib) == 1 ||
               std::sscanf(line, "Locked: %lu", &kib) == 1) {
      if (kib != 0) mapping.clean = false;
    } else if (std::sscanf(line, "VmFlags: %4s", word) == 1 && std::strstr(line, " lo ") != nullptr) {
      mapping.clean = false;
    }
  }
  mapping.drop();
}

}  // namespace

void trim_memory() {
  ::malloc_trim(0);
  drop_clean_file_pages();
}

void Housekeeping::turn(const Now& now) {
  watch_clock(now);
  if (now.boot >= next_look_) {
    next_look_ = now.boot + kLookEvery;
    look_at_disks();
  }
  if (now.boot < next_trim_) return;
  next_trim_ = now.boot + kTrimEvery;
  trim_memory();
}

void Housekeeping::watch_disks(std::vector<std::string> paths, DiskSink sink) {
  disks_ = std::move(paths);
  disk_sink_ = std::move(sink);
}

// A file system that does not report its space is judged only by operations that fail on it.
void Housekeeping::look_at_disks() const {
  for (const std::string& path : disks_) {
    struct statvfs disk {};
    if (::statvfs(path.c_str(), &disk) == 0 && disk.f_blocks > 0)
      disk_sink_({path, std::uint64_t{disk.f_bavail} * disk.f_frsize, std::uint64_t{disk.f_blocks} * disk.f_frsize});
  }
}

void Housekeeping::watch_clock(const Now& now) {
  const auto offset = now.wall.time_since_epoch() - std::chrono::duration_cast<std::chrono::milliseconds>(now.boot.time_since_epoch());
  if (offset_ && std::chrono::abs(offset - *offset_) >= kClockJump)
    log_.write(LogLevel::warn, "clock.jumped",
               {{"by_ms", std::to_string((offset - *offset_).count())},
                {"effect", "times shown to people change; nothing else depends on the wall clock"},
                {"next", "check the time service of this host"}});
  offset_ = offset;
}

}  // namespace dtrain::daemon
