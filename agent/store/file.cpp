#include "agent/store/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace dtrain::store {
namespace {

tl::unexpected<Error> os_error(const std::string& what) {
  const int cause = errno;
  return fail(ErrorCode::io, "could not " + what + ": " + ::strerror(cause),
              cause == ENOSPC || cause == EDQUOT ? "free some space there" : "");
}

std::string parent_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

Status make_directories(const std::string& path, unsigned mode) {
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string parent = path.substr(0, slash);
    if (::mkdir(parent.c_str(), 0755) != 0 && errno != EEXIST) return os_error("create directory " + parent);
  }
  if (::mkdir(path.c_str(), mode) == 0) {
    if (::chmod(path.c_str(), mode) != 0) return os_error("set the mode of " + path);  // whatever the umask
    return {};
  }
  if (errno != EEXIST) return os_error("create directory " + path);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return os_error("read directory " + path);
  if (!S_ISDIR(info.st_mode)) {
    errno = ENOTDIR;
    return os_error("use " + path);
  }
  return {};
}

Status flush_directory(const std::string& path) {
  const UniqueFd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory || ::fsync(directory.get()) != 0) return os_error("flush directory " + path);
  return {};
}

Status write_file_atomically(const std::string& path, std::string_view bytes, unsigned mode) {
  const std::string temporary = path + ".tmp";
  UniqueFd file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!file) return os_error("create " + temporary);
  if (!write_all(file.get(), bytes) || ::fsync(file.get()) != 0) {
    const int cause = errno;
    ::unlink(temporary.c_str());
    errno = cause;
    return os_error("write " + temporary);
  }
  file.reset();
  if (::rename(temporary.c_str(), path.c_str()) != 0) return os_error("rename " + temporary + " to " + path);
  return flush_directory(parent_of(path));
}

Result<std::string> read_file(const std::string& path, std::size_t limit) {
  auto text = read_small_file(path, limit);
  if (text) return std::move(*text);
  if (errno == ENOENT) return fail(ErrorCode::not_found, "could not read " + path + ": it does not exist");
  if (errno == EFBIG) return fail(ErrorCode::limit, "could not read " + path + ": it has more than " + std::to_string(limit) + " bytes");
  return os_error("read " + path);
}

Status remove_tree(const std::string& path) {
  std::error_code failed;
  std::filesystem::remove_all(path, failed);
  if (failed) return fail(ErrorCode::io, "could not remove " + path + ": " + failed.message());
  return {};
}

}  // namespace dtrain::store
