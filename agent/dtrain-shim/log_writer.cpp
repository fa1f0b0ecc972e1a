#include "agent/dtrain-shim/log_writer.h"

#include <sys/statvfs.h>

namespace dtrain::shim {

namespace {

constexpr size_t kNameBytes = 32;
constexpr uint64_t kLookEvery = 256 << 10;  // bytes written, at most

Text<kNameBytes> raw_name(uint32_t number) {
  Text<kNameBytes> name;
  name.add("log.").add(number);
  return name;
}
Text<kNameBytes> index_name(uint32_t number) {
  Text<kNameBytes> name = raw_name(number);
  name.add(".idx");
  return name;
}

bool write_all(int fd, uint64_t at, const void* bytes, size_t size) {
  const char* from = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t n = pwrite(fd, from, size, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    from += n;
    at += static_cast<uint64_t>(n);
    size -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

void LogWriter::configure(uint32_t first, uint64_t file_bytes, uint32_t files) {
  number_ = first;
  file_bytes_ = file_bytes;
  files_ = files > 0 ? files : 1;
}

// The oldest goes first: on a full disk its room is what the new file needs.
bool LogWriter::rotate() {
  if (number_ >= files_) {
    unlink(raw_name(number_ - files_).c_str());
    unlink(index_name(number_ - files_).c_str());
  }
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW;
  const int raw = open_file(raw_name(number_).c_str(), flags, 0600);
  const int index = raw < 0 ? -1 : open_file(index_name(number_).c_str(), flags, 0600);
  if (index < 0) {
    if (raw >= 0) close(raw);
    return false;
  }
  if (raw_ >= 0) close(raw_);
  if (index_ >= 0) close(index_);
  raw_ = raw;
  index_ = index;
  raw_at_ = index_at_ = 0;
  ++number_;
  return true;
}

// Nothing of what the disk must have left: f_bavail knows what is kept for root, too.
bool LogWriter::has_room(size_t size) {
  if (size > budget_) {
    struct statvfs disk {};
    if (fstatvfs(raw_, &disk) != 0) return true;
    const uint64_t part = static_cast<uint64_t>(disk.f_blocks) * disk.f_frsize / kLeftFreePart;
    const uint64_t left = part < kLeftFree ? part : kLeftFree, free = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
    const uint64_t spare = free > left ? free - left : 0;
    budget_ = spare < kLookEvery ? spare : kLookEvery;
    if (size > budget_) return false;
  }
  budget_ -= size;
  return true;
}

// Both or neither: bytes without their record would be taken for the output of a later write.
bool LogWriter::store(task::LogStream stream, uint32_t attempt, const char* bytes, size_t size) {
  task::LogIndexRecord record{};
  record.offset = raw_at_;
  record.wall_ns = wall_ns();
  record.length = static_cast<uint32_t>(size);
  record.attempt = attempt;
  record.stream = static_cast<uint8_t>(stream);
  if (!write_all(raw_, raw_at_, bytes, size) || !write_all(index_, index_at_, &record, sizeof(record))) {
    // Shrinking needs no room. Should it fail all the same, the next write lands on the same offset.
    (void)!ftruncate(raw_, static_cast<off_t>(raw_at_));
    (void)!ftruncate(index_, static_cast<off_t>(index_at_));
    return false;
  }
  raw_at_ += size;
  index_at_ += sizeof(record);
  return true;
}

void LogWriter::drop(size_t size) {
  dropped_ += size;
  dropped_total_ += size;
}

void LogWriter::append(task::LogStream stream, uint32_t attempt, const char* bytes, size_t size) {
  if ((raw_ < 0 || raw_at_ >= file_bytes_) && !rotate()) return drop(size);
  if (!has_room(size)) return drop(size);
  if (!note_drops(attempt) || !store(stream, attempt, bytes, size)) drop(size);
}

bool LogWriter::note_drops(uint32_t attempt) {
  if (dropped_ == 0) return true;
  if (raw_ < 0 && !rotate()) return false;
  Text<96> notice;
  notice.add("[dtrain: ").add(dropped_).add(" bytes of output were dropped here: no room on disk]\n");
  if (!store(task::LogStream::err, attempt, notice.c_str(), notice.size())) return false;
  dropped_ = 0;
  return true;
}

}  // namespace dtrain::shim
