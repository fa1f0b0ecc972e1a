#include "agent/net/private_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/base/small_file.h"
#include "agent/base/unique_fd.h"
#include "common/wire/key_file.h"

namespace dtrain::net {
Result<std::string> read_private_file(const std::string& path, const std::string& what, const std::string& make_next,
                                      std::optional<uid_t> owner) {
  const auto unreadable = [&](ErrorCode code, const std::string& cause, const std::string& next) {
    return fail(code, "could not read " + what + " " + path + ": " + cause, next);
  };
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) {
    const int cause = errno;
    if (cause == ENOENT) return unreadable(ErrorCode::not_found, ::strerror(cause), make_next);
    return unreadable(cause == EACCES || cause == EPERM ? ErrorCode::refused : ErrorCode::io, ::strerror(cause),
                      "make it readable for its user alone: chown, chmod 0600");
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return unreadable(ErrorCode::io, ::strerror(errno), "");
  if (!S_ISREG(status.st_mode)) return unreadable(ErrorCode::invalid, "it is no regular file", make_next);
  if ((status.st_mode & 077) != 0) return unreadable(ErrorCode::refused, "others than its owner may access it", "chmod 0600 " + path);
  if (owner && status.st_uid != *owner && status.st_uid != 0)
    return unreadable(ErrorCode::refused, "it is user id " + std::to_string(status.st_uid) + "'s, who knows what is in it",
                      "make a new key where that user is not to have it; else chown " + std::to_string(*owner) + " " + path);
  // One byte more than permitted shows "too long" without reading further.
  std::string text(wire::kKeyFileBytes + 1, '\0');
  if (!read_into(file.get(), text)) return unreadable(ErrorCode::io, ::strerror(errno), "");
  return text;
}

}  // namespace dtrain::net
