#include "agent/dtrain-shim/log_writer.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <initializer_list>

namespace dtrain::shim {

namespace {

constexpr size_t kNameBytes = 32;
constexpr uint32_t kMostFiles = 1024;       // of one assignment on one host
constexpr uint64_t kReserve = 4096;         // kept free of output in each file: some forty lines about dropped bytes
constexpr uint64_t kRoomStep = 16 << 10;    // asked of the disk at a time
constexpr int kKeepSize = 1;                // FALLOC_FL_KEEP_SIZE: readers see nothing of it
constexpr uint64_t kLookEvery = 256 << 10;  // at most so many bytes between two checks

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

// Returns false if the disk is full. A file system that cannot reserve space is tried with each write.
bool LogWriter::File::reserve(uint64_t bytes) {
  const uint64_t wanted = at + bytes;
  if (wanted <= room) return true;
  for (const uint64_t more : {wanted - room + kRoomStep, wanted - room}) {
    if (syscall(SYS_fallocate, fd, kKeepSize, room, more) == 0) {
      room += more;
      return true;
    }
    if (errno != ENOSPC && errno != EDQUOT && errno != EINTR) {
      room = UINT64_MAX;
      return true;
    }
  }
  return false;
}

// Space for that much output, with its record and the reserve of both files.
bool LogWriter::has_room(size_t size) { return raw_.reserve(size + kReserve) && index_.reserve(sizeof(task::LogIndexRecord) + kReserve); }

// Every launch of a shim begins a file, so a small file must not push out what an earlier launch wrote: the newest files are kept as
// long as they fit into files_ files of full length, up to kMostFiles.
void LogWriter::forget_oldest() {
  uint64_t bytes = 0;
  bool forgets = false;
  for (uint32_t number = number_; number-- > 0;) {
    struct stat info {};
    if (stat(raw_name(number).c_str(), &info) != 0) return;
    const uint64_t size = static_cast<uint64_t>(info.st_size);
    bytes += size < file_bytes_ ? size : file_bytes_;
    forgets = forgets || bytes > (files_ - 1) * file_bytes_ || number_ - number >= kMostFiles;
    if (!forgets) continue;
    unlink(raw_name(number).c_str());
    unlink(index_name(number).c_str());
  }
}

// The oldest files are removed first: on a full disk the new file needs their space.
bool LogWriter::rotate() {
  forget_oldest();
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW;
  File raw, index;
  raw.fd = open_file(raw_name(number_).c_str(), flags, 0600);
  if (raw.fd >= 0) index.fd = open_file(index_name(number_).c_str(), flags, 0600);
  // A new file without space is useless; the present file has space for the line about it.
  if (index.fd < 0 || !raw.reserve(kReserve) || !index.reserve(kReserve)) {
    for (const int fd : {raw.fd, index.fd})
      if (fd >= 0) close(fd);
    unlink(raw_name(number_).c_str());
    unlink(index_name(number_).c_str());
    return false;
  }
  for (const File& old : {raw_, index_}) {
    if (old.fd < 0) continue;
    (void)!ftruncate(old.fd, static_cast<off_t>(old.at));  // returns the reserved space
    close(old.fd);
  }
  raw_ = raw;
  index_ = index;
  in_line_ = false;
  ++number_;
  return true;
}

// Keeps the free space that the disk must have: f_bavail excludes what is reserved for root.
bool LogWriter::leaves_room(size_t size) {
  if (size > budget_) {
    struct statvfs disk {};
    if (fstatvfs(raw_.fd, &disk) != 0) return true;
    const uint64_t part = static_cast<uint64_t>(disk.f_blocks) * disk.f_frsize / kLeftFreePart;
    const uint64_t left = part < kLeftFree ? part : kLeftFree, free = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
    const uint64_t spare = free > left ? free - left : 0;
    budget_ = spare < kLookEvery ? spare : kLookEvery;
    if (size > budget_) return false;
  }
  budget_ -= size;
  return true;
}

// Both or neither: bytes without their record would count as output of a later write.
bool LogWriter::store(const LogSource& source, const char* bytes, size_t size) {
  task::LogIndexRecord record{};
  record.offset = raw_.at;
  record.wall_ns = wall_ns();
  record.length = static_cast<uint32_t>(size);
  record.attempt = source.attempt;
  record.stream = static_cast<uint8_t>(source.stream);
  record.rank = source.rank;
  if (!write_all(raw_.fd, raw_.at, bytes, size) || !write_all(index_.fd, index_.at, &record, sizeof(record))) {
    // Shrinking needs no space. If it fails all the same, the next write goes to the same offset.
    (void)!ftruncate(raw_.fd, static_cast<off_t>(raw_.at));
    (void)!ftruncate(index_.fd, static_cast<off_t>(index_.at));
    return false;
  }
  raw_.at += size;
  index_.at += sizeof(record);
  in_line_ = bytes[size - 1] != '\n';
  return true;
}

void LogWriter::drop(size_t size) {
  dropped_ += size;
  dropped_total_ += size;
}

void LogWriter::append(const LogSource& source, const char* bytes, size_t size) {
  if ((raw_.fd < 0 || raw_.at >= file_bytes_) && !rotate()) return drop(size);
  if (!leaves_room(size) || !has_room(size)) return drop(size);
  note_drops(source.attempt);
  if (dropped_ != 0 || !store(source, bytes, size)) drop(size);
}

void LogWriter::note_drops(uint32_t attempt) {
  if (dropped_ == 0 || (raw_.fd < 0 && !rotate())) return;
  Text<96> notice;
  if (in_line_) notice.add("\n");
  notice.add("[dtrain: ").add(dropped_).add(" bytes of output were dropped here: no room on disk]\n");
  if (store({task::LogStream::err, 0, attempt}, notice.c_str(), notice.size())) dropped_ = 0;
}

}  // namespace dtrain::shim
