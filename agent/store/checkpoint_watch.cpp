#include "agent/store/checkpoint_watch.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "common/transfer/selection.h"

namespace dtrain::store {
namespace {

constexpr std::uint32_t kMask =
    IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_CLOSE_WRITE | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_EXCL_UNLINK;
constexpr std::size_t kChangesBytes = 64 << 10;
constexpr int kAncestorTries = 8;  // an ancestor may be created while it is looked for

int add(const CheckpointWatch::Shared& inotify, const std::string& directory, std::uint32_t more = 0) {
  return ::inotify_add_watch(inotify->get(), directory.c_str(), kMask | more);
}

void note_failure(ArmedWatches& armed, const std::string& directory, int error_number) {
  armed.complete = false;
  if (armed.cause.empty()) armed.cause = system_error(directory, error_number).message;
}

// Watches the nearest existing ancestor for the one name that leads to `directory`. Returns true if `directory`
// itself exists now.
bool await_directory(const CheckpointWatch::Shared& inotify, const std::string& directory, ArmedWatches& armed) {
  std::string wanted = directory;
  for (;;) {
    const auto [parent, name] = split_path(wanted);
    if (parent == wanted) return false;
    const int watch = add(inotify, parent);
    if (watch >= 0) {
      armed.watches[watch] = name;
      // It was created between the two calls: continue from there.
      return ::access(wanted.c_str(), F_OK) == 0;
    }
    if (errno != ENOENT) {
      note_failure(armed, parent, errno);
      return false;
    }
    wanted = parent;
  }
}

void arm_children(const CheckpointWatch::Shared& inotify, const std::string& directory, ArmedWatches& armed) {
  const auto opened = open_directory(directory);
  const auto names = opened ? list_names(*opened) : fail(opened.error());
  if (!names) return;  // the scan itself reports that
  std::size_t count = 0;
  for (const auto& name : *names) {
    if (transfer::is_ignored_name(name)) continue;
    const int watch = add(inotify, directory + "/" + name, IN_DONT_FOLLOW);
    if (watch < 0 && (errno == ENOSPC || errno == ENOMEM)) {
      note_failure(armed, directory, errno);
      return;
    }
    if (watch < 0) continue;  // a file, or gone
    armed.watches[watch] = "";
    if (++count == kWatchedChildren) return;
  }
}

}  // namespace

CheckpointWatch::CheckpointWatch() : inotify_(std::make_shared<const UniqueFd>(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC))) {}

ArmedWatches CheckpointWatch::arm(const Shared& inotify, const std::string& path) {
  ArmedWatches armed;
  if (!*inotify) {
    armed.complete = false;
    armed.cause = "inotify is not available";
    return armed;
  }
  const std::string directory = without_trailing_slashes(path);
  for (int tries = 0; tries < kAncestorTries; ++tries) {
    const int watch = add(inotify, directory);
    if (watch >= 0) {
      armed.watches[watch] = "";
      arm_children(inotify, directory, armed);
      return armed;
    }
    if (errno != ENOENT) {
      note_failure(armed, directory, errno);
      return armed;
    }
    if (!await_directory(inotify, directory, armed)) return armed;
  }
  note_failure(armed, directory, EAGAIN);
  return armed;
}

void CheckpointWatch::set(JobId job, const ArmedWatches& armed) {
  std::set<int>& mine = watches_of_[job];
  for (const int watch : mine) {
    if (armed.watches.contains(watch)) continue;
    auto& jobs = jobs_of_[watch];
    jobs.erase(job);
    if (!jobs.empty()) continue;
    jobs_of_.erase(watch);
    ::inotify_rm_watch(inotify_->get(), watch);  // an error means that the kernel dropped it already
  }
  mine.clear();
  for (const auto& [watch, only_name] : armed.watches) {
    mine.insert(watch);
    jobs_of_[watch][job] = only_name;
  }
  if (mine.empty()) watches_of_.erase(job);
}

void CheckpointWatch::read(const std::function<void(JobId)>& changed, const std::function<void()>& unknown) {
  if (!available()) return;
  alignas(inotify_event) char buffer[kChangesBytes];
  const ssize_t size = ::read(inotify_->get(), buffer, sizeof buffer);
  for (ssize_t at = 0; at < size;) {
    inotify_event event;
    std::memcpy(&event, buffer + at, sizeof event);
    const std::string_view name = event.len > 0 ? std::string_view(buffer + at + sizeof event) : std::string_view();
    at += static_cast<ssize_t>(sizeof event + event.len);
    if (event.mask & IN_Q_OVERFLOW) {
      for (const auto& [job, watches] : watches_of_) changed(job);
      unknown();
      continue;
    }
    const auto found = jobs_of_.find(event.wd);
    if (found == jobs_of_.end()) {
      unknown();
      continue;
    }
    for (const auto& [job, only_name] : found->second)
      if (only_name.empty() || name.empty() || name == only_name) changed(job);
    if (event.mask & IN_IGNORED) {  // the kernel dropped the watch: its directory is gone
      for (const auto& [job, only_name] : found->second) watches_of_[job].erase(event.wd);
      jobs_of_.erase(found);
    }
  }
}

}  // namespace dtrain::store
