#include "common/node/streams.h"

#include <algorithm>
#include <limits>
#include <set>

#include "common/base/limits.h"
#include "common/node/cluster_members.h"
#include "common/node/coordinator.h"
#include "common/node/reply.h"
#include "common/node/views.h"

namespace dtrain::node {
namespace {

using wire::MessageType;

// A reply of events is cut after this many; the rest follows in further replies.
constexpr std::size_t kEventsPerReply = 1000;
constexpr std::size_t kEventBytes = 100;  // of one event, besides its texts
// The log's sources are named for so many newest generations; a host knows by itself what it has of older ones.
constexpr Generation kLogGenerations = 64;

}  // namespace

bool Streams::room(ConnectionId connection, std::uint64_t request) {
  if (watches_.size() + followers_.size() + logs_.size() < limits::kStreams) return true;
  reply_error(c_, connection, request,
              Error{ErrorCode::limit, "could not open stream: " + std::to_string(limits::kStreams) + " are open on this agent already",
                    "end some watch, logs -f or events -f"});
  return false;
}

void Streams::watch(ConnectionId connection, std::uint64_t request, const wire::WatchRequest& query, JobId job) {
  if (!room(connection, request)) return;
  Watch w;
  w.job = job;
  w.interval = std::chrono::milliseconds(std::clamp<std::uint32_t>(query.interval_ms, 10, 60'000));
  w.next = c_.now.boot;
  // The first update gives the state; `events` gives older history.
  w.seq = c_.ledger.events().empty() ? 0 : c_.ledger.events().back().seq;
  const Key key{connection, request};
  if (!push(key, w)) watches_[key] = w;
}

bool Streams::push(const Key& key, Watch& w) {
  wire::JobUpdate update;
  const cluster::JobRecord* job = c_.ledger.find(w.job);
  if (job == nullptr) {
    update.gone = update.final = true;
  } else {
    update.job = job_view(c_, *job);
    update.tasks = task_views(c_, *job);
    update.final = is_over(*job);
    update.waiting_for = waiting_for(c_, *job, coordinator_.waiting_for(w.job));
    // Until the next generation begins, what the last one restored says nothing.
    if (!job->needs_generation && job->state != cluster::JobState::suspended) update.restored = restored_view(*job);
    for (const auto s : job->passed) update.passed.push_back(title(to_string(s)));
  }
  const auto& events = c_.ledger.events();
  auto from = std::upper_bound(events.begin(), events.end(), w.seq, [](std::uint64_t seq, const auto& e) { return seq < e.seq; });
  for (; from != events.end(); ++from) {
    if (from->job == w.job && update.events.size() < kEventsPerReply) update.events.push_back(event_view(*from));
    w.seq = from->seq;
  }
  w.pending = false;
  w.over = update.final;
  w.next = c_.now.boot + w.interval;
  reply(c_, key.connection, key.request, MessageType::update, update, update.gone);
  return update.gone;
}

void Streams::send_events(const Key& key, Follower& f, bool last) {
  const auto& events = c_.ledger.events();
  auto from = std::upper_bound(events.begin(), events.end(), f.seq, [](std::uint64_t seq, const auto& e) { return seq < e.seq; });
  wire::EventsReply batch;
  std::size_t bytes = 0;
  const auto add = [&](wire::EventView event) {
    bytes += event.object.size() + event.reason.size() + event.message.size() + kEventBytes;
    batch.events.push_back(std::move(event));
    if (batch.events.size() < kEventsPerReply) return;
    reply(c_, key.connection, key.request, MessageType::events, batch, false);
    batch.events.clear();
  };
  // A follower reads as fast as it can; a client that asks once asks again for the rest.
  const auto full = [&] { return last && bytes >= limits::kAnswerPageBytes; };
  // This node's own events are placed where they happened: after the history's event that was the newest then.
  const auto& own = c_.members->local_events();
  auto next_own = std::upper_bound(own.begin(), own.end(), f.local, [](std::uint64_t local, const auto& e) { return local < e.local; });
  const auto add_own_before = [&](std::uint64_t seq) {
    for (; next_own != own.end() && next_own->seq < seq; ++next_own) {
      f.local = next_own->local;
      if (f.job == 0) add(*next_own);
    }
  };
  for (; from != events.end() && !full(); ++from) {
    add_own_before(from->seq);
    f.seq = from->seq;
    if (f.job == 0 || from->job == f.job) add(event_view(*from));
  }
  batch.more = from != events.end();
  if (!batch.more) add_own_before(std::numeric_limits<std::uint64_t>::max());
  if (!batch.events.empty() || last) reply(c_, key.connection, key.request, MessageType::events, batch, last);
}

void Streams::follow_events(ConnectionId connection, std::uint64_t request, const wire::EventsRequest& query, JobId job) {
  const Key key{connection, request};
  Follower f{job, query.after, query.after_local};
  if (!query.follow) return send_events(key, f, true);
  if (!room(connection, request)) return;
  send_events(key, f, false);
  followers_[key] = f;
}

std::vector<AssignmentId> Streams::log_sources(const cluster::JobRecord& job, const std::string& task) const {
  std::set<TaskId> tasks;
  for (const auto& [id, attempt] : job.former_tasks) tasks.insert(id);
  for (const auto& [id, t] : job.tasks) tasks.insert(id);
  std::vector<AssignmentId> sources;
  const Generation first = job.generation > kLogGenerations ? job.generation - kLogGenerations + 1 : 1;
  for (Generation g = first; g <= job.generation; ++g)
    for (const TaskId& id : tasks)
      if (task.empty() || id.text() == task) sources.push_back({job.id, g, id});
  return sources;
}

void Streams::open_log(ConnectionId connection, std::uint64_t request, const wire::LogsRequest& query, JobId id) {
  const cluster::JobRecord& job = *c_.ledger.find(id);
  auto sources = log_sources(job, query.task);
  const bool ended = is_over(job) || !query.follow;
  if (!ended) {
    if (!room(connection, request)) return;
    logs_[{connection, request}] = {id, query.task, sources.size()};
  }
  c_.emit(OpenLog{connection, request, wire::encode(query), std::move(sources), ended});
}

void Streams::cancel(ConnectionId connection, std::uint64_t request) {
  const Key key{connection, request};
  if (watches_.erase(key) > 0) reply(c_, connection, request, MessageType::ok, wire::Empty{});
  if (followers_.erase(key) > 0) reply(c_, connection, request, MessageType::ok, wire::Empty{});
  if (logs_.erase(key) > 0) c_.emit(UpdateLog{connection, request, {}, true});
}

void Streams::closed(ConnectionId connection) {
  const auto of_connection = [&](const auto& entry) { return entry.first.connection == connection; };
  std::erase_if(watches_, of_connection);
  std::erase_if(followers_, of_connection);
  std::erase_if(logs_, of_connection);
}

void Streams::changed(JobId id) {
  const cluster::JobRecord* job = c_.ledger.find(id);
  const bool over = job == nullptr || is_over(*job);
  for (auto it = watches_.begin(); it != watches_.end();) {
    auto& [key, w] = *it;
    if (w.job == id) w.pending = true;
    const bool due = w.next <= c_.now.boot || job == nullptr || (over && !w.over);
    const bool last = w.job == id && due && push(key, w);
    it = last ? watches_.erase(it) : std::next(it);
  }
  for (auto it = logs_.begin(); it != logs_.end();) {
    auto& [key, log] = *it;
    if (log.job != id) {
      ++it;
      continue;
    }
    auto sources = job == nullptr ? std::vector<AssignmentId>{} : log_sources(*job, log.task);
    if (over || sources.size() != log.sources) {
      log.sources = sources.size();
      c_.emit(UpdateLog{key.connection, key.request, std::move(sources), over});
    }
    it = over ? logs_.erase(it) : std::next(it);
  }
}

void Streams::new_events() {
  for (auto& [key, f] : followers_) send_events(key, f, false);
}

void Streams::tick() {
  for (auto it = watches_.begin(); it != watches_.end();) {
    auto& [key, w] = *it;
    const bool last = w.pending && w.next <= c_.now.boot && push(key, w);
    it = last ? watches_.erase(it) : std::next(it);
  }
}

Instant Streams::deadline() const {
  Instant d = kNever;
  for (const auto& [key, w] : watches_)
    if (w.pending) d = std::min(d, w.next);
  return d;
}

}  // namespace dtrain::node
