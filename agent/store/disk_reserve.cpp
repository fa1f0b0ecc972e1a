#include "agent/store/disk_reserve.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace dtrain::store {
namespace {

constexpr std::uint64_t kFreeBeside = 4;  // this multiple of its size must be free before it takes more

}  // namespace

DiskReserve::DiskReserve(const std::string& path) : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) {
  struct stat info {};
  struct statvfs disk {};
  if (!file_ || ::fstat(file_.get(), &info) != 0 || ::fstatvfs(file_.get(), &disk) != 0) return;
  bytes_ = static_cast<std::uint64_t>(info.st_size);
  wanted_ = std::min(kReserveBytes, std::uint64_t{disk.f_blocks} * disk.f_frsize / kReservePart / kReserveStep * kReserveStep);
  refill();
}

bool DiskReserve::give() {
  if (bytes_ == 0) return false;
  const std::uint64_t left = bytes_ - std::min(bytes_, kReserveStep);
  if (::ftruncate(file_.get(), static_cast<off_t>(left)) != 0) return false;
  bytes_ = left;
  return true;
}

void DiskReserve::refill() {
  struct statvfs disk {};
  if (bytes_ >= wanted_ || ::fstatvfs(file_.get(), &disk) != 0) return;
  if (std::uint64_t{disk.f_bavail} * disk.f_frsize < kFreeBeside * wanted_) return;
  // Blocks, not a hole. Some file systems cannot do that: then there is no reserve.
  if (::fallocate(file_.get(), 0, static_cast<off_t>(bytes_), static_cast<off_t>(wanted_ - bytes_)) == 0) bytes_ = wanted_;
  else if (errno == EOPNOTSUPP) wanted_ = 0;
}

}  // namespace dtrain::store
