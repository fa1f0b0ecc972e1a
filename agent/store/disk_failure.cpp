#include "agent/store/disk_failure.h"

#include <unistd.h>

#include "agent/store/file.h"

namespace dtrain::store {
namespace {

constexpr std::size_t kBytes = 256;

std::string path_in(const std::string& run_dir) { return run_dir + "/disk-failed"; }

}  // namespace

Status note_disk_failure(const std::string& run_dir, const std::string& boot_id) {
  return write_file_atomically(path_in(run_dir), boot_id, 0600);
}

bool disk_failed(const std::string& run_dir, const std::string& boot_id) {
  if (::access(path_in(run_dir).c_str(), F_OK) != 0) return false;
  const auto noted = read_file(path_in(run_dir), kBytes);
  return !noted || *noted == boot_id;
}

void forget_disk_failure(const std::string& run_dir) { ::unlink(path_in(run_dir).c_str()); }

}  // namespace dtrain::store
