#include <algorithm>
#include <cerrno>

#include "agent/base/small_file.h"
#include "agent/proc/exec_session.h"
#include "common/base/limits.h"

namespace dtrain::proc {

Result<ExecSessions> ExecSessions::open() {
  ExecSessions sessions;
  if (!sessions.epoll_ || !sessions.work_ || !sessions.epoll_.add(sessions.work_.fd()))
    return fail(ErrorCode::io, "could not prepare exec: " + cause_of(errno), "raise the limit of open files");
  return sessions;
}

void ExecSessions::fail_later(const Key& key, const Error& error) {
  failed_.insert_or_assign(key, error);
  work_.set(true);
}

void ExecSessions::open(node::ConnectionId connection, std::uint64_t request, const std::string& query, const ExecPlace& place) {
  const Key key{connection, request};
  const auto decoded = wire::decode<wire::ExecRequest>(query);
  if (!decoded) return fail_later(key, decoded.error());
  if (sessions_.size() + leaving_.size() >= limits::kStreams)
    return fail_later(
        key, Error{ErrorCode::limit, "could not execute: this agent serves " + std::to_string(limits::kStreams) + " commands already",
                   "end some, then try again"});
  auto session = ExecSession::start(*decoded, place);
  if (!session) return fail_later(key, session.error());
  if (!epoll_.add((*session)->fd()))
    return fail_later(key, Error{ErrorCode::io, "could not execute: " + cause_of(errno), "raise the limit of open files"});
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
  for (auto at = sessions_.lower_bound(Key{connection, 0}); at != sessions_.end() && at->first.first == connection; ++at)
    at->second->room_again();
  work_.set(true);
}

Instant ExecSessions::deadline() const {
  Instant earliest = kNever;
  for (const auto& [key, session] : sessions_) earliest = std::min(earliest, session->deadline());
  for (const auto& session : leaving_) earliest = std::min(earliest, session->deadline());
  return earliest;
}

void ExecSessions::dispatch(Instant now, Outlet& outlet) {
  work_.set(false);
  for (const auto& [key, error] : std::exchange(failed_, {}))
    outlet.send(key.first, wire::make_message(wire::MessageType::error, key.second, wire::error_reply(error)));
  for (auto at = sessions_.begin(); at != sessions_.end();) {
    if (at->second->turn(now, at->first.first, at->first.second, outlet)) at = sessions_.erase(at);
    else ++at;
  }
  std::erase_if(leaving_, [&](const auto& session) { return session->leave(now); });
}

}  // namespace dtrain::proc
