#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>

#include "agent/proc/exec_session.h"
#include "agent/proc/small_file.h"
#include "common/base/limits.h"

namespace dtrain::proc {

namespace {

bool add_to(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

Result<ExecSessions> ExecSessions::open() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  UniqueFd work(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll || !work || !add_to(epoll.get(), work.get()))
    return fail(ErrorCode::io, "could not prepare exec: " + cause_of(errno), "raise the limit of open files");
  return ExecSessions(std::move(epoll), std::move(work));
}

void ExecSessions::set_work(bool wanted) {
  if (wanted == work_set_) return;
  std::uint64_t value = 1;
  const ssize_t done =
      wanted ? ::write(work_.get(), &value, sizeof value) : ::read(work_.get(), &value, sizeof value);
  if (done == static_cast<ssize_t>(sizeof value)) work_set_ = wanted;
}

void ExecSessions::fail_later(const Key& key, const Error& error) {
  failed_.insert_or_assign(key, error);
  set_work(true);
}

void ExecSessions::open(node::ConnectionId connection, std::uint64_t request, const std::string& query,
                        const ExecPlace& place) {
  const Key key{connection, request};
  const auto decoded = wire::decode<wire::ExecRequest>(query);
  if (!decoded) return fail_later(key, decoded.error());
  if (sessions_.size() + leaving_.size() >= limits::kStreams)
    return fail_later(key, Error{ErrorCode::limit,
                                 "could not execute: this agent serves " + std::to_string(limits::kStreams) +
                                     " commands already",
                                 "end some, then try again"});
  auto session = ExecSession::start(*decoded, place);
  if (!session) return fail_later(key, session.error());
  if (!add_to(epoll_.get(), (*session)->fd()))
    return fail_later(
        key, Error{ErrorCode::io, "could not execute: " + cause_of(errno), "raise the limit of open files"});
  sessions_.insert_or_assign(key, std::move(*session));
}

void ExecSessions::input(Instant now, node::ConnectionId connection, const wire::ExecInput& input) {
  const Key key{connection, input.exec};
  const auto at = sessions_.find(key);
  if (at == sessions_.end()) return;
  if (Status taken = at->second->input(input); !taken) {
    close(now, connection, input.exec);
    fail_later(key, taken.error());
  }
}

void ExecSessions::close(Instant now, node::ConnectionId connection, std::uint64_t request) {
  const Key key{connection, request};
  failed_.erase(key);
  const auto at = sessions_.find(key);
  if (at == sessions_.end()) return;
  at->second->hang_up(now);
  leaving_.push_back(std::move(at->second));
  sessions_.erase(at);
}

void ExecSessions::close(Instant now, node::ConnectionId connection) {
  std::vector<Key> keys;
  for (const auto& [key, session] : sessions_)
    if (key.first == connection) keys.push_back(key);
  for (const auto& [key, error] : failed_)
    if (key.first == connection) keys.push_back(key);
  for (const Key& key : keys) close(now, key.first, key.second);
}

void ExecSessions::wake(node::ConnectionId connection) {
  for (auto at = sessions_.lower_bound(Key{connection, 0});
       at != sessions_.end() && at->first.first == connection; ++at)
    at->second->room_again();
  set_work(true);
}

Instant ExecSessions::deadline() const {
  Instant earliest = kNever;
  for (const auto& [key, session] : sessions_) earliest = std::min(earliest, session->deadline());
  for (const auto& session : leaving_) earliest = std::min(earliest, session->deadline());
  return earliest;
}

void ExecSessions::dispatch(Instant now, Outlet& outlet) {
  set_work(false);
  for (const auto& [key, error] : std::exchange(failed_, {}))
    outlet.send(key.first,
                wire::make_message(wire::MessageType::error, key.second, wire::error_reply(error)));
  for (auto at = sessions_.begin(); at != sessions_.end();) {
    if (at->second->turn(now, at->first.first, at->first.second, outlet))
      at = sessions_.erase(at);
    else
      ++at;
  }
  std::erase_if(leaving_, [&](const auto& session) { return session->leave(now); });
}

}  // namespace dtrain::proc
