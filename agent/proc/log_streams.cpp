#include "agent/proc/log_streams.h"

#include <sys/inotify.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "common/base/limits.h"

namespace dtrain::proc {

namespace {

constexpr std::size_t kBytesPerTurn = 256 << 10;  // sent by one stream in one dispatch
constexpr int kLooksPerTurn = 64;                 // steps of one stream in one dispatch
constexpr std::size_t kInotifyBytes = 64 << 10;   // read at once; what is left keeps fd() readable

constexpr std::uint32_t kDirectoryEvents = IN_CREATE | IN_MOVED_TO | IN_ONLYDIR;
constexpr std::uint32_t kFileEvents = IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_ONLYDIR;

Error error_of_system(const std::string& what) {
  return Error{ErrorCode::io, "could not " + what + ": " + std::strerror(errno), "raise fs.inotify limits or nofile"};
}

}  // namespace

Result<LogStreams> LogStreams::open(std::string tasks_dir) {
  LogStreams streams(std::move(tasks_dir));
  if (!streams.epoll_ || !streams.work_ || !streams.epoll_.add(streams.work_.fd())) return fail(error_of_system("prepare log streams"));
  return streams;
}

void LogStreams::set_work() { work_.set(!runnable_.empty() || !failed_.empty()); }

void LogStreams::open(const node::OpenLog& effect) {
  const Key key{effect.connection, effect.request};
  if (streams_.size() >= limits::kStreams) {
    failed_[key] = Error{ErrorCode::limit, "could not open log: this agent serves " + std::to_string(limits::kStreams) + " streams already",
                         "close some, then try again"};
  } else if (auto stream = LogStream::open(tasks_dir_, effect); !stream) {
    failed_[key] = stream.error();
  } else {
    const auto [at, added] = streams_.insert_or_assign(key, std::move(*stream));
    // Watched before the first read, so that a write in between is seen twice rather than never.
    if (Status followed = follow(key, at->second); !followed) {
      streams_.erase(at);
      unfollow(key);
      failed_[key] = followed.error();
    } else {
      runnable_.insert(key);
    }
  }
  set_work();
}

void LogStreams::update(const node::UpdateLog& effect) {
  const Key key{effect.connection, effect.request};
  const auto at = streams_.find(key);
  if (at == streams_.end()) return;
  at->second.update(effect.sources, effect.ended);
  if (Status followed = follow(key, at->second); !followed) {
    failed_[key] = followed.error();
  } else if (!full_.contains(key)) {
    runnable_.insert(key);
  }
  set_work();
}

void LogStreams::forget(const Key& key) {
  streams_.erase(key);
  failed_.erase(key);
  runnable_.erase(key);
  full_.erase(key);
  unfollow(key);
}

void LogStreams::close(node::ConnectionId connection, std::uint64_t request) {
  forget(Key{connection, request});
  set_work();
}

void LogStreams::close(node::ConnectionId connection) {
  std::vector<Key> keys;
  for (auto at = streams_.lower_bound(Key{connection, 0}); at != streams_.end() && at->first.first == connection; ++at)
    keys.push_back(at->first);
  for (const auto& [key, error] : failed_)
    if (key.first == connection) keys.push_back(key);
  for (const Key& key : keys) forget(key);
  set_work();
}

void LogStreams::wake(node::ConnectionId connection) {
  for (auto at = full_.lower_bound(Key{connection, 0}); at != full_.end() && at->first == connection;) {
    runnable_.insert(*at);
    at = full_.erase(at);
  }
  set_work();
}

Status LogStreams::ensure_inotify() {
  if (inotify_) return {};
  UniqueFd inotify(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!inotify || ::inotify_add_watch(inotify.get(), tasks_dir_.c_str(), kDirectoryEvents) < 0 || !epoll_.add(inotify.get()))
    return fail(error_of_system("follow logs in " + tasks_dir_));
  inotify_ = std::move(inotify);
  return {};
}

void LogStreams::watch_directory(const std::string& name, Watched& watched) {
  if (watched.descriptor >= 0) return;
  watched.descriptor = ::inotify_add_watch(inotify_.get(), (tasks_dir_ + "/" + name).c_str(), kFileEvents);
  if (watched.descriptor >= 0) names_[watched.descriptor] = name;
}

Status LogStreams::follow(const Key& key, const LogStream& stream) {
  if (!stream.follows()) return {};
  if (Status ready = ensure_inotify(); !ready) return ready;
  for (const AssignmentId& id : stream.sources()) {
    const std::string name = id.text();
    Watched& watched = watched_[name];
    watched.id = id;
    watched.streams.insert(key);
    watch_directory(name, watched);
    if (watched.descriptor < 0 && errno != ENOENT) return fail(error_of_system("follow logs in " + tasks_dir_ + "/" + name));
  }
  return {};
}

void LogStreams::unfollow(const Key& key) {
  for (auto at = watched_.begin(); at != watched_.end();) {
    at->second.streams.erase(key);
    if (!at->second.streams.empty()) {
      ++at;
      continue;
    }
    if (at->second.descriptor >= 0) {
      names_.erase(at->second.descriptor);
      ::inotify_rm_watch(inotify_.get(), at->second.descriptor);
    }
    at = watched_.erase(at);
  }
  if (watched_.empty()) inotify_.reset();  // closing takes it out of the epoll set
}

void LogStreams::read_inotify() {
  if (!inotify_) return;
  alignas(inotify_event) std::array<char, kInotifyBytes> buffer;
  const ssize_t got = ::read(inotify_.get(), buffer.data(), buffer.size());
  if (got <= 0) return;
  std::set<std::string> changed;
  bool everything = false;
  for (std::size_t at = 0; at < static_cast<std::size_t>(got);) {
    inotify_event event;
    std::memcpy(&event, buffer.data() + at, sizeof event);
    const std::string name = event.len > 0 ? std::string(buffer.data() + at + sizeof event) : std::string();
    at += sizeof event + event.len;
    if ((event.mask & IN_Q_OVERFLOW) != 0) {
      everything = true;
      continue;
    }
    if (const auto known = names_.find(event.wd); known != names_.end()) {
      changed.insert(known->second);
      if ((event.mask & IN_IGNORED) != 0) {  // the directory was removed
        watched_[known->second].descriptor = -1;
        names_.erase(known);
      }
    } else if (const auto appeared = watched_.find(name); appeared != watched_.end()) {
      watch_directory(name, appeared->second);
      changed.insert(name);
    }
  }
  for (auto& [name, watched] : watched_) {
    if (!everything && !changed.contains(name)) continue;
    watch_directory(name, watched);
    for (const Key& key : watched.streams) {
      streams_.at(key).touched(watched.id);
      if (!full_.contains(key)) runnable_.insert(key);
    }
  }
}

void LogStreams::fail_stream(const Key& key, const Error& error, Outlet& outlet) {
  outlet.send(key.first, wire::make_message(wire::MessageType::error, key.second, wire::error_reply(error)));
  forget(key);
}

void LogStreams::run_stream(const Key& key, Outlet& outlet) {
  LogStream& stream = streams_.at(key);
  std::size_t sent = 0;
  for (int looks = 0; looks < kLooksPerTurn && sent < kBytesPerTurn; ++looks) {
    if (outlet.room(key.first) < kStreamMessageBytes) {
      runnable_.erase(key);
      full_.insert(key);
      return;
    }
    const auto answer = stream.next();
    if (!answer) return fail_stream(key, answer.error(), outlet);
    if (answer->chunk) {
      sent += answer->chunk->bytes.size();
      outlet.send(key.first, wire::make_message(wire::MessageType::log_chunk, key.second, *answer->chunk, false));
    }
    if (answer->state == LogStream::State::waiting) {
      runnable_.erase(key);
      return;
    }
    if (answer->state == LogStream::State::finished) {
      outlet.send(key.first, wire::make_message(wire::MessageType::log_chunk, key.second, wire::LogChunk{}));
      forget(key);
      return;
    }
  }
}

void LogStreams::dispatch(Outlet& outlet) {
  read_inotify();
  const std::map<Key, Error> failed = std::exchange(failed_, {});
  for (const auto& [key, error] : failed) fail_stream(key, error, outlet);
  const std::set<Key> turn = runnable_;
  for (const Key& key : turn)
    if (runnable_.contains(key)) run_stream(key, outlet);
  set_work();
}

}  // namespace dtrain::proc
