#include "agent/store/checkpoint_hint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "agent/store/file.h"
#include "common/transfer/tf_checkpoint_state.h"

namespace dtrain::store {
namespace {

constexpr mode_t kModeOfNew = 0600;
constexpr std::int64_t kNanoseconds = 1'000'000'000;

// The newest is the last of all, as TensorFlow writes it.
void name_newest(transfer::CheckpointState& state, const std::string& home, const std::string& relative, std::int64_t changed_ns) {
  const bool absolute = state.model_checkpoint_path.starts_with('/');
  auto& paths = state.all_model_checkpoint_paths;
  auto& times = state.all_model_checkpoint_timestamps;
  const bool timed = times.size() == paths.size() && (!paths.empty() || state.model_checkpoint_path.empty());
  (void)transfer::drop_from_state(state, home, home + "/" + relative, "");
  if (paths.size() >= transfer::kCheckpointStatePaths) {  // else nobody could read it
    paths.erase(paths.begin());
    if (!times.empty()) times.erase(times.begin());
  }
  state.model_checkpoint_path = absolute ? home + "/" + relative : relative;
  paths.push_back(state.model_checkpoint_path);
  if (timed) times.push_back(std::to_string(changed_ns / kNanoseconds));
  else times.clear();
}

}  // namespace

Result<bool> write_hint(const HintHome& home, const std::string& relative, std::int64_t changed_ns, bool only_first,
                        const FileDescriptor& to) {
  const std::string name(transfer::kCheckpointStateName);
  const auto no = [&](int error_number) { return fail(ErrorCode::io, system_error(home.path + "/" + name, error_number).message); };
  struct stat before {};
  const bool there = ::fstatat(home.directory.get(), name.c_str(), &before, AT_SYMLINK_NOFOLLOW) == 0;
  if (!there && errno != ENOENT) return no(errno);
  if (there && S_ISDIR(before.st_mode)) return false;  // somebody's own: no script finds a hint here
  transfer::CheckpointState state;
  if (there) {
    // What is no file, or cannot be parsed, hints at nothing.
    const auto content = read_beneath(home.directory, name, transfer::kCheckpointStateBytes);
    if (!content && content.error().code != ErrorCode::damaged) return fail(ErrorCode::io, content.error().message);
    if (content)
      if (auto parsed = transfer::parse_checkpoint_state(content->bytes)) state = std::move(*parsed);
  }
  if (only_first && !state.model_checkpoint_path.empty()) return false;
  name_newest(state, home.path, relative, changed_ns);
  const FileDescriptor file(::openat(to.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kModeOfNew));
  if (!file.valid() || !write_all(file.get(), transfer::render_checkpoint_state(state))) return no(errno);
  if (there && S_ISREG(before.st_mode) && ::fchmod(file.get(), before.st_mode & 0777) != 0) return no(errno);
  if (::fsync(file.get()) != 0) return no(errno);
  return true;
}

}  // namespace dtrain::store
