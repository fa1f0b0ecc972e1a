#include "agent/store/checkpoint_hint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "agent/store/file.h"

namespace dtrain::store {
namespace {

constexpr mode_t kModeOfNew = 0600;

}  // namespace

Result<bool> write_hint(const transfer::Hint& hint, const HintHome& home, const std::string& relative, std::int64_t changed_ns,
                        bool only_first, const UniqueFd& to) {
  const std::string name(hint.name);
  const auto no = [&](int error_number) { return fail(ErrorCode::io, system_error(home.path + "/" + name, error_number).message); };
  struct stat before {};
  const bool there = ::fstatat(home.directory.get(), name.c_str(), &before, AT_SYMLINK_NOFOLLOW) == 0;
  if (!there && errno != ENOENT) return no(errno);
  if (there && S_ISDIR(before.st_mode)) return false;  // the user's own directory: no script finds a hint here
  std::string before_text;
  if (there) {
    // Only a file can be a hint.
    auto content = read_beneath(home.directory, name, hint.bytes);
    if (!content && content.error().code != ErrorCode::damaged) return fail(ErrorCode::io, content.error().message);
    if (content) before_text = std::move(content->bytes);
  }
  const auto text = hint.with(before_text, home.path, relative, changed_ns, only_first);
  if (!text) return false;
  const UniqueFd file(::openat(to.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kModeOfNew));
  if (!file || !write_all(file.get(), *text)) return no(errno);
  if (there && S_ISREG(before.st_mode) && ::fchmod(file.get(), before.st_mode & 0777) != 0) return no(errno);
  if (::fsync(file.get()) != 0) return no(errno);
  return true;
}

}  // namespace dtrain::store
