#include "agent/proc/shm_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/fanotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>
#include <sstream>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "agent/account/as_user.h"
#include "agent/base/boot_clock.h"
#include "agent/base/small_file.h"
#include "agent/proc/assignment_dir.h"
#include "agent/proc/task_of_process.h"

namespace dtrain::proc {

namespace {

constexpr const char* kRecord = "/shm";  // in the assignment's directory: a line for each, "INODE BIRTH NAME"
constexpr std::size_t kNoticesBytes = 16 << 10;
constexpr int kNoticeReadsAtOnce = 64;  // more than the kernel keeps

struct Mark {
  std::string text;  // identifies a file among later ones of the same name
  uid_t uid = 0;
};

std::optional<Mark> mark_of(int at, const char* path, int flags) {
  struct statx info {};
  if (::statx(at, path, flags, STATX_INO | STATX_BTIME | STATX_UID, &info) != 0) return std::nullopt;
  return Mark{std::to_string(info.stx_ino) + " " + std::to_string(info.stx_btime.tv_sec) + "." + std::to_string(info.stx_btime.tv_nsec),
              info.stx_uid};
}

constexpr std::size_t kHandleHead = sizeof(file_handle);  // its bytes follow

std::optional<Mark> mark_of(const std::string& path) { return mark_of(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW); }

// Of the file with this handle: another may have taken its name since the event. Without one, of whatever is there.
std::optional<Mark> mark_of(const std::string& path, const std::string& handle) {
  if (handle.empty()) return mark_of(path);
  const UniqueFd file(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  alignas(file_handle) char buffer[kHandleHead + MAX_HANDLE_SZ];
  auto* const found = new (buffer) file_handle;
  found->handle_bytes = MAX_HANDLE_SZ;
  int mount = 0;
  if (!file || ::name_to_handle_at(file.get(), "", found, &mount, AT_EMPTY_PATH) != 0) return std::nullopt;
  if (handle != std::string_view(buffer, kHandleHead + found->handle_bytes)) return std::nullopt;
  return mark_of(file.get(), "", AT_EMPTY_PATH);
}

// The part of an event of this type: what follows its head, a handle first; empty if there is none.
std::string_view part_of(std::string_view event, const fanotify_event_metadata& head, int type) {
  fanotify_event_info_fid info{};
  for (event.remove_prefix(head.metadata_len); event.size() >= sizeof info; event.remove_prefix(info.hdr.len)) {
    std::memcpy(&info, event.data(), sizeof info);
    if (info.hdr.len < sizeof info + kHandleHead || info.hdr.len > event.size()) break;
    if (info.hdr.info_type == type) return event.substr(sizeof info, info.hdr.len - sizeof info);
  }
  return {};
}

std::size_t handle_size(std::string_view part) {
  unsigned bytes = 0;
  std::memcpy(&bytes, part.data(), sizeof bytes);
  return std::min(kHandleHead + bytes, part.size());
}

// The name follows the handle of the directory, which is the watched one.
std::string name_of(std::string_view event, const fanotify_event_metadata& head) {
  std::string_view part = part_of(event, head, FAN_EVENT_INFO_TYPE_DFID_NAME);
  if (part.empty()) return "";
  part.remove_prefix(handle_size(part));
  return std::string(part.substr(0, part.find('\0')));
}

std::string handle_of(std::string_view event, const fanotify_event_metadata& head) {
  const std::string_view part = part_of(event, head, FAN_EVENT_INFO_TYPE_FID);
  return part.empty() ? "" : std::string(part.substr(0, handle_size(part)));
}

// Empty if the assignment is gone.
void note_name(const std::string& assignment, const std::string& mark, const std::string& name) {
  const UniqueFd file(::open((assignment + kRecord).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) return;
  const std::string line = mark + " " + name + "\n";
  if (static_cast<std::size_t>(info.st_size) + line.size() <= kShmRecordBytes) (void)!::write(file.get(), line.data(), line.size());
}

}  // namespace

ShmWatch::ShmWatch(std::string directory) : directory_(std::move(directory)) {
  if (::geteuid() != 0) return;
  constexpr unsigned kClass = FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK;
  fd_.reset(::fanotify_init(kClass | FAN_REPORT_DFID_NAME_TARGET, O_RDONLY));
  if (!fd_) fd_.reset(::fanotify_init(kClass | FAN_REPORT_DFID_NAME, O_RDONLY));  // before Linux 5.17
  constexpr unsigned kHow = FAN_MARK_ADD | FAN_MARK_ONLYDIR;
  constexpr std::uint64_t kWhat = FAN_CREATE | FAN_MOVED_TO | FAN_ONDIR;
  if (fd_ && ::fanotify_mark(fd_.get(), kHow, kWhat, AT_FDCWD, directory_.c_str()) != 0) fd_.reset();
}

std::vector<ShmWatch::Made> ShmWatch::read() {
  std::vector<Made> made;
  if (!fd_) return made;
  char buffer[kNoticesBytes];
  ssize_t left = ::read(fd_.get(), buffer, sizeof buffer);
  fanotify_event_metadata head{};  // copied: lengths are not multiples of its alignment
  for (const char* event = buffer; left >= static_cast<ssize_t>(sizeof head); event += head.event_len, left -= head.event_len) {
    std::memcpy(&head, event, sizeof head);
    if (head.event_len < sizeof head || head.event_len > left) break;
    const std::string_view bytes(event, head.event_len);
    std::string name = name_of(bytes, head);
    if (!name.empty() && name.find('\n') == std::string::npos) made.push_back({head.pid, std::move(name), handle_of(bytes, head)});
  }
  return made;
}

bool ShmWatch::may_look(uid_t user) {
  const std::int64_t second = boot_now().time_since_epoch() / 1s;
  if (second != second_) looks_.clear();
  second_ = second;
  return ++looks_[user] <= kShmLooksPerSecond;
}

bool ShmWatch::has_news() const {
  pollfd news{fd_.get(), POLLIN, 0};
  return fd_ && ::poll(&news, 1, 0) == 1;
}

void ShmWatch::note(const std::string& tasks_dir, const std::vector<Task>& tasks) {
  std::set<uid_t> users;
  std::unordered_map<pid_t, const Task*> shims, mains;
  for (const Task& task : tasks) {
    users.insert(task.uid);
    if (task.shim > 0) shims[task.shim] = &task;
    if (task.main > 0) mains[task.main] = &task;
  }
  const auto maker_of = [&](pid_t pid) -> const Task* {
    if (const auto shim = ancestor_of(pid, [&](pid_t one) { return shims.contains(one); })) return shims.at(*shim);
    const auto main = mains.find(pid);
    return main == mains.end() ? nullptr : main->second;
  };
  pid_t maker = -1;
  const Task* task = nullptr;
  for (int i = 0; i < kNoticeReadsAtOnce; ++i) {
    const std::vector<Made> news = read();
    if (news.empty()) return;
    for (const Made& made : news) {
      const auto mark = mark_of(directory_ + "/" + made.name, made.handle);  // none: it is gone already
      if (!mark || !users.contains(mark->uid) || !may_look(mark->uid)) continue;
      if (std::exchange(maker, made.pid) != made.pid) task = maker_of(made.pid);
      if (task != nullptr && task->uid == mark->uid) note_name(tasks_dir + "/" + task->id.text(), mark->text, made.name);
    }
  }
}

void ShmWatch::remove(const std::string& assignment, const account::HostUser& user) {
  if (!fd_) return;  // nothing was recorded
  const auto record = read_small_file(assignment + kRecord, kShmRecordBytes);
  if (!record) return;
  {
    const std::lock_guard lock(mutex_);
    if (removals_.size() >= kShmRemovals) return;
    removals_.push_back({*record, user});
  }
  ::unlink((assignment + kRecord).c_str());
  if (!thread_.joinable()) thread_ = std::thread([this] { remove_all(); });
  news_.notify_one();
}

ShmWatch::~ShmWatch() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  news_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void ShmWatch::remove_all() {
  std::unique_lock lock(mutex_);
  for (;;) {
    news_.wait(lock, [this] { return ending_ || !removals_.empty(); });
    if (removals_.empty()) return;
    const Removal next = std::move(removals_.front());
    removals_.pop_front();
    lock.unlock();
    remove_noted(next);
    lock.lock();
  }
}

void ShmWatch::remove_noted(const Removal& removal) const {
  const auto rights = account::AsUser::enter(removal.user, removal.user.name);
  if (!rights) return;
  std::istringstream lines(removal.record);
  std::string inode, birth, name;
  while (lines >> inode >> birth && lines.get() == ' ' && std::getline(lines, name)) {
    const std::string path = directory_ + "/" + name;
    const auto mark = mark_of(path);
    if (mark && mark->uid == removal.user.uid && mark->text == inode + " " + birth) (void)::remove(path.c_str());
  }
}

}  // namespace dtrain::proc
