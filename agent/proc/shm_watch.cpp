#include "agent/proc/shm_watch.h"

#include <fcntl.h>
#include <sys/fanotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <sstream>
#include <utility>

#include "agent/account/as_user.h"
#include "agent/proc/assignment_dir.h"
#include "agent/proc/poller.h"
#include "agent/proc/small_file.h"
#include "agent/proc/task_of_process.h"

namespace dtrain::proc {

namespace {

constexpr const char* kRecord = "/shm";  // in the assignment's directory: a line for each, "INODE BIRTH NAME"
constexpr std::size_t kReadBytes = 16 << 10;
constexpr int kReadsAtOnce = 64;  // more than the kernel keeps

// What tells a file from a later one of its name.
std::string mark_of(const std::string& path) {
  struct statx info {};
  if (::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME, &info) != 0) return "";
  return std::to_string(info.stx_ino) + " " + std::to_string(info.stx_btime.tv_sec) + "." + std::to_string(info.stx_btime.tv_nsec);
}

// The name of an event: behind the handle of the directory, which is the one that is watched.
std::string name_of(const char* event, const fanotify_event_metadata& head) {
  const char* at = event + head.metadata_len;
  const char* end = event + head.event_len;
  fanotify_event_info_fid info{};
  if (end - at < static_cast<std::ptrdiff_t>(sizeof info + sizeof(file_handle))) return "";
  std::memcpy(&info, at, sizeof info);
  if (info.hdr.info_type != FAN_EVENT_INFO_TYPE_DFID_NAME) return "";
  unsigned handle_bytes = 0;
  std::memcpy(&handle_bytes, at + sizeof info, sizeof handle_bytes);
  at += sizeof info + sizeof(file_handle) + handle_bytes;
  return at < end ? std::string(at, ::strnlen(at, static_cast<std::size_t>(end - at))) : "";
}

// Nothing where it is gone already, or the assignment is.
void note_name(const std::string& assignment, const std::string& mark, const std::string& name) {
  const UniqueFd file(::open((assignment + kRecord).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct stat info {};
  if (mark.empty() || !file || ::fstat(file.get(), &info) != 0) return;
  const std::string line = mark + " " + name + "\n";
  if (static_cast<std::size_t>(info.st_size) + line.size() <= kShmRecordBytes) (void)!::write(file.get(), line.data(), line.size());
}

}  // namespace

ShmWatch::ShmWatch(std::string directory) : directory_(std::move(directory)) {
  if (::geteuid() != 0) return;
  fd_.reset(::fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_DFID_NAME | FAN_CLOEXEC | FAN_NONBLOCK, O_RDONLY));
  constexpr unsigned kHow = FAN_MARK_ADD | FAN_MARK_ONLYDIR;
  constexpr std::uint64_t kWhat = FAN_CREATE | FAN_MOVED_TO | FAN_ONDIR;
  if (fd_ && ::fanotify_mark(fd_.get(), kHow, kWhat, AT_FDCWD, directory_.c_str()) != 0) fd_.reset();
}

std::vector<ShmWatch::Made> ShmWatch::read() {
  std::vector<Made> made;
  if (!fd_) return made;
  char buffer[kReadBytes];
  ssize_t left = ::read(fd_.get(), buffer, sizeof buffer);
  fanotify_event_metadata head{};  // copied out: their lengths are no multiples of its alignment
  for (const char* event = buffer; left >= static_cast<ssize_t>(sizeof head); event += head.event_len, left -= head.event_len) {
    std::memcpy(&head, event, sizeof head);
    if (head.event_len < sizeof head || head.event_len > left) break;
    std::string name = name_of(event, head);
    if (!name.empty() && name.find('\n') == std::string::npos) made.push_back({head.pid, std::move(name)});
  }
  return made;
}

bool ShmWatch::may_look() {
  const std::int64_t second = boot_now().time_since_epoch() / 1s;
  if (second != second_) looks_ = 0;
  second_ = second;
  return ++looks_ <= kShmLooksPerSecond;
}

void ShmWatch::note(const std::string& tasks_dir, const OfMain& of_main) {
  pid_t maker = -1;
  std::optional<AssignmentId> id;
  for (int i = 0; i < kReadsAtOnce; ++i) {
    const std::vector<Made> news = read();
    if (news.empty()) return;
    for (const Made& made : news) {
      if (!may_look()) continue;
      if (std::exchange(maker, made.pid) != made.pid) {
        const auto name = task_of_process(made.pid, tasks_dir);
        id = name ? parse_assignment(*name) : of_main(made.pid);
      }
      if (id) note_name(tasks_dir + "/" + id->text(), mark_of(directory_ + "/" + made.name), made.name);
    }
  }
}

void ShmWatch::remove(const std::string& assignment, const account::HostUser& user) const {
  if (!fd_) return;  // nothing was noted, and nobody is to be become
  const auto record = read_small_file(assignment + kRecord, kShmRecordBytes);
  if (!record) return;
  if (const auto rights = account::AsUser::enter(user, user.name)) {
    std::istringstream lines(*record);
    std::string inode, birth, name;
    while (lines >> inode >> birth && lines.get() == ' ' && std::getline(lines, name)) {
      const std::string path = directory_ + "/" + name;
      if (mark_of(path) == inode + " " + birth) (void)::remove(path.c_str());
    }
  }
  ::unlink((assignment + kRecord).c_str());
}

}  // namespace dtrain::proc
