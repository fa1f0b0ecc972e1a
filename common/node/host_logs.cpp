#include "common/node/host_logs.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/limits.h"
#include "common/node/host_capacities.h"
#include "common/node/reply.h"
#include "common/node/views.h"

namespace dtrain::node {
namespace {

using wire::MessageType;

bool means(const wire::LogsRequest& query, const TaskId& task) { return query.task.empty() || task.text() == query.task; }

// True if the query may be about attempts on hosts that the task has left, or about tasks that were scaled away.
bool of_the_past(const wire::LogsRequest& query, const cluster::JobRecord& job) {
  return query.all_attempts || query.attempt > 0 || query.previous ||
         std::any_of(job.former_tasks.begin(), job.former_tasks.end(), [&](const auto& t) { return means(query, t.first); });
}

std::string could_not(const wire::LogsRequest& query) {
  return "could not read all logs of " + query.job + (query.task.empty() ? "" : " " + query.task);
}

}  // namespace

bool HostLogs::wanted(const wire::LogsRequest& query, const cluster::JobRecord& job) const {
  if (!c_.replicated || c_.replicated->alone()) return false;
  if ((query.follow && !is_over(job)) || of_the_past(query, job)) return true;
  return std::any_of(job.tasks.begin(), job.tasks.end(),
                     [&](const auto& t) { return means(query, t.first) && t.second.place.node != c_.facts.id; });
}

std::map<NodeId, HostLogs::Wanted> HostLogs::hosts(const Log& log, const cluster::JobRecord& job) const {
  std::map<NodeId, Wanted> found;
  for (const auto& [id, t] : job.tasks)
    if (means(log.query, id) && !t.place.node.empty()) found.try_emplace(t.place.node, Wanted{id.text(), true});
  if (!of_the_past(log.query, job)) return found;
  // Every host with a copy of the ledger may have had tasks. Its answer counts; that it is away does not.
  const raft::Configuration& all = c_.replicated->raft().configuration();
  for (const auto* members : {&all.voters, &all.learners})
    for (const MemberId& id : *members) found.try_emplace(id.text(), Wanted{});
  return found;
}

bool HostLogs::needed(const Log& log, const NodeId& host) const {
  const cluster::JobRecord* job = c_.ledger.find(log.job);
  if (job == nullptr) return false;
  const auto wanted = hosts(log, *job);
  const auto found = wanted.find(host);
  return found != wanted.end() && found->second.needed;
}

bool HostLogs::goes_on(const Log& log) const {
  const cluster::JobRecord* job = c_.ledger.find(log.job);
  return log.query.follow && job != nullptr && !is_over(*job);
}

void HostLogs::open(ConnectionId connection, std::uint64_t request, const Caller& caller, const wire::LogsRequest& query, JobId job) {
  const Key key{connection, request};
  if (logs_.contains(key))
    return reply_error(c_, connection, request,
                       {ErrorCode::invalid, "could not open stream: request " + std::to_string(request) + " of this connection is one",
                        "give each request of a connection a number of its own"});
  if (logs_.size() >= limits::kStreams)
    return reply_error(c_, connection, request,
                       {ErrorCode::limit, "could not open stream: " + std::to_string(limits::kStreams) + " are open on this agent already",
                        "end some logs -f"});
  Log& log = logs_[key];
  log.job = job;
  log.query = query;
  log.caller = caller;
  // The ledger knows which attempt is the previous one; a host knows only the attempts that it had.
  const cluster::JobRecord* record = c_.ledger.find(job);
  if (query.previous && !query.task.empty() && record != nullptr)
    for (const auto& [id, t] : record->tasks)
      if (means(query, id) && t.attempt > 1) {
        log.query.previous = false;
        log.query.attempt = t.attempt - 1;
      }
  advance(key, log);
}

void HostLogs::note(const Key& key, std::string text) {
  wire::LogChunk chunk;
  chunk.note = std::move(text);
  reply(c_, key.connection, key.request, MessageType::log_chunk, chunk, false);
}

void HostLogs::report_missed(const Key& key, Missed& missed, const std::string& cause) {
  if (!std::exchange(missed.told, true)) note(key, cause + "; the log goes on when that host is back, or where its tasks are begun anew");
}

bool HostLogs::advance(const Key& key, Log& log) {
  const cluster::JobRecord* job = c_.ledger.find(log.job);
  const bool going_on = goes_on(log);
  const auto wanted = job == nullptr ? std::map<NodeId, Wanted>{} : hosts(log, *job);
  const bool began = !log.asked.empty() || !log.missed.empty();
  for (const auto& [host, what] : wanted) {
    const auto missed = log.missed.find(host);
    const bool was_lost = missed != log.missed.end() && missed->second.lost;
    const auto away = was_lost ? relays_.away(host) : std::nullopt;
    if (was_lost && !away) {
      if (missed->second.told) note(key, "host " + host_name(c_, host) + " is back");
      c_.emit(CloseConnection{key.connection});  // because the client knows what it has printed
      return false;
    }
    if (was_lost && what.needed) report_missed(key, missed->second, away->message);
    if (was_lost || log.asked.contains(host) || (log.idle.contains(host) && !what.needed)) continue;
    const auto part = relays_.open({key.connection, key.request, log.caller, MessageType::logs, wire::encode(log.query)}, host, false);
    if (part) {
      log.parts[*part] = host;
      if (host == c_.facts.id) streams_.open_log(*part, 1, log.query, log.job);
      const std::string who = log.query.task.empty() ? "tasks of " + log.query.job + " go" : what.task + " goes";
      if (began && what.needed) note(key, who + " on at host " + host_name(c_, host));
      log.missed.erase(host);
      log.idle.erase(host);
    } else if (going_on && (part.error().code != ErrorCode::limit || !what.needed)) {
      if (what.needed) report_missed(key, log.missed[host], what.task + " cannot be followed: " + part.error().message);
      continue;
    } else if (what.needed && !log.failed) {
      log.failed = Error{part.error().code, could_not(log.query) + ": " + part.error().message, part.error().next};
    }
    log.asked.insert(host);
  }
  // A client that follows is told at once; otherwise what there is comes first.
  if (!log.parts.empty() && !(going_on && log.failed)) return true;
  // The log of one task without other attempts is complete before its job is over.
  const bool complete = !log.query.task.empty() && log.any && log.missed.empty();
  if (going_on && !complete && !log.failed) return true;
  for (const auto& [host, missed] : log.missed) {
    const auto what = wanted.find(host);
    if (missed.lost && what != wanted.end() && what->second.needed && !log.failed)
      log.failed = Error{ErrorCode::unavailable, could_not(log.query) + ": host " + host_name(c_, host) + " was lost",
                         "dtrainctl nodes shows whether it is back; ask again then"};
  }
  end(key, log);
  return false;
}

void HostLogs::end(const Key& key, const Log& log) {
  if (log.failed) reply_error(c_, key.connection, key.request, *log.failed);
  else if (log.refused && !log.any) reply_error(c_, key.connection, key.request, *log.refused);
  else reply(c_, key.connection, key.request, MessageType::log_chunk, wire::LogChunk{});
  drop(logs_.find(key));
}

void HostLogs::lose(const Key& key, Log& log, const NodeId& host, const Error& cause) {
  const bool is_needed = needed(log, host);
  if (!goes_on(log)) {
    if (is_needed && !log.failed) log.failed = Error{cause.code, could_not(log.query) + ": " + cause.message, cause.next};
    return;
  }
  log.asked.erase(host);
  // A host that never had a task of the job has sent nothing, and may simply be asked again.
  if (!is_needed && !c_.ledger.find(log.job)->ran.contains(host)) {
    log.idle.insert(host);
    return;
  }
  Missed& missed = log.missed[host];
  missed.lost = true;
  if (is_needed) report_missed(key, missed, cause.message);
}

void HostLogs::refuse(Log& log, const NodeId& host, const Error& error) {
  if (!needed(log, host)) {
    if (!goes_on(log)) return;
    log.asked.erase(host);
    log.idle.insert(host);
    // a host that never had the attempt is no failure while another host has it
  } else if (error.code != ErrorCode::not_found && !log.failed) {
    log.failed = error;
  }
}

void HostLogs::relay_ended(const RelayEnded& e) {
  for (auto& [key, log] : logs_) {
    const auto found = log.parts.find(e.part);
    if (found == log.parts.end()) continue;
    const NodeId host = std::move(found->second);
    log.parts.erase(found);
    if (host == c_.facts.id) streams_.closed(e.part);
    const Error cause{e.error.code, "host " + host_name(c_, host) + " " + e.error.message, e.error.next};
    switch (e.how) {
      case RelayEnded::How::done: log.any = true; break;
      case RelayEnded::How::refused:
        if (!log.refused) log.refused = e.error;
        refuse(log, host, e.error);
        break;
      case RelayEnded::How::lost:
        // The host has too many streams open; asked again at once, it would refuse again.
        if (cause.code == ErrorCode::limit) refuse(log, host, {cause.code, could_not(log.query) + ": " + cause.message, cause.next});
        else lose(key, log, host, cause);
        break;
    }
    advance(key, log);
    return;
  }
}

void HostLogs::members_changed() {
  std::vector<Key> keys;
  for (const auto& [key, log] : logs_) keys.push_back(key);
  for (const Key& key : keys) {
    Log& log = logs_.at(key);
    for (auto it = log.parts.begin(); it != log.parts.end();) {
      const auto [id, host] = *it++;
      const auto cause = relays_.away(host);
      if (!cause) continue;
      relays_.close(id);
      log.parts.erase(id);
      lose(key, log, host, *cause);
    }
    advance(key, log);
  }
}

void HostLogs::changed(JobId job) {
  std::vector<Key> keys;
  for (const auto& [key, log] : logs_)
    if (log.job == job) keys.push_back(key);
  for (const Key& key : keys) advance(key, logs_.at(key));
}

void HostLogs::close_parts(const Log& log) {
  for (const auto& [part, host] : log.parts) {
    relays_.close(part);
    if (host == c_.facts.id) streams_.closed(part);
  }
}

void HostLogs::drop(Logs::iterator log) {
  close_parts(log->second);
  logs_.erase(log);
}

void HostLogs::cancel(ConnectionId connection, std::uint64_t request) {
  const auto log = logs_.find({connection, request});
  if (log != logs_.end()) drop(log);
}

void HostLogs::closed(ConnectionId connection) {
  while (true) {
    const auto log = std::ranges::find_if(logs_, [&](const auto& l) { return l.first.connection == connection; });
    if (log == logs_.end()) return;
    drop(log);
  }
}

}  // namespace dtrain::node
