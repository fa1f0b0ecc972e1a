#include "agent/dtraind/relay_streams.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "agent/proc/outlet.h"
#include "common/base/duration_text.h"

namespace dtrain::daemon {
namespace {

static_assert(kRelayMessageRoom >= proc::kStreamMessageBytes && kRelayOutputBytes >= 2 * proc::kStreamMessageBytes &&
              kRelayAnswerBytes >= relay::kWindowBytes + proc::kStreamMessageBytes);

Error error_of(const wire::Message& message) {
  const auto reply = wire::decode<wire::ErrorReply>(message.payload);
  if (!reply || reply->errors.empty()) return {ErrorCode::internal, "could not read the answer of another host", ""};
  const wire::ErrorItem& first = reply->errors.front();
  return {first.code, first.message, first.next};
}

const Error kSilent{ErrorCode::unavailable, "was silent for " + duration_text(relay::kSilence),
                    "dtrainctl nodes shows how it is seen; try again"};
const Error kUnread{ErrorCode::limit, "takes nothing of what it is sent", "try again"};
const Error kGarbled{ErrorCode::damaged, "sent what is no answer", "its agent may run another version of dtrain"};

}  // namespace

RelayStreams::Stream* RelayStreams::find(node::ConnectionId id) const {
  const auto found = streams_.find(id);
  return found == streams_.end() ? nullptr : found->second.get();
}

void RelayStreams::add(std::unique_ptr<Stream> stream) {
  Stream& s = *stream;
  if (s.peer) by_address_[address_of(s)] = &s;
  if (s.client != 0) of_client_.insert({s.client, s.id});
  touched_.insert(s.id);
  sinks_.add(s.id, *this);
  if (s.own) sinks_.add(s.client, own_);
  streams_[s.id] = std::move(stream);
}

void RelayStreams::forget(Stream& s) {
  if (s.holds_client) sinks_.hold(s.client, false);
  if (s.peer) by_address_.erase(address_of(s));
  sinks_.remove(s.id);
  of_client_.erase({s.client, s.id});
  const auto other = of_client_.lower_bound({s.client, 0});
  if (s.own && (other == of_client_.end() || other->first != s.client)) sinks_.remove(s.client);
  touched_.erase(s.id);
  if (const auto timer = timer_of_.find(s.id); timer != timer_of_.end()) {
    timers_.erase({timer->second, s.id});
    timer_of_.erase(timer);
  }
  streams_.erase(s.id);
}

void RelayStreams::open(Instant now, node::OpenRelay effect) {
  auto s = std::make_unique<Stream>();
  s->id = effect.part;
  s->client = effect.connection;
  s->own = effect.own;
  s->request = effect.request;
  s->whole = effect.whole;
  s->peer = std::move(effect.peer);
  if (s->peer) {
    s->end = std::make_unique<relay::StreamEnd>(now, std::move(effect.open));
    auto query = wire::decode<wire::Message>(effect.query);
    if (query) s->end->write(wire::frame(*query));
  }
  add(std::move(s));
}

void RelayStreams::accept(Instant now, const node::AcceptRelay& effect) {
  auto s = std::make_unique<Stream>();
  s->id = effect.connection;
  s->peer = effect.peer;
  s->end = std::make_unique<relay::StreamEnd>(now, effect.stream, effect.allowed);
  add(std::move(s));
}

void RelayStreams::send_closed(const Stream& s, const wire::RelayClose& why) {
  if (!s.peer) return;
  wire::RelayClose close = why;
  close.stream = s.end->stream();
  close.opener = s.end->opener();
  world_.to_peer(*s.peer, close);
}

// A lost message is sent again when the other end mentions the stream.
void RelayStreams::close(node::ConnectionId id) {
  Stream* s = find(id);
  if (s == nullptr) return;
  const bool relayed = s->relayed();
  send_closed(*s, {});
  forget(*s);
  if (relayed) world_.on_relayed_closed(id);
}

void RelayStreams::lose(Stream& s, const Error& cause, bool say) {
  const node::ConnectionId id = s.id;
  const bool relayed = s.relayed();
  if (say) send_closed(s, {0, false, cause.code, cause.message, cause.next});
  forget(s);
  if (relayed) world_.on_relayed_closed(id);
  else world_.tell(node::RelayEnded{id, node::RelayEnded::How::lost, cause});
}

bool RelayStreams::received(Instant now, const node::RelayReceived& e) {
  struct Named {
    std::uint64_t stream;
    bool opener;  // the sender
  };
  const Named named = std::visit(
      [](const auto& m) {
        if constexpr (requires { m.opener; }) return Named{m.stream, m.opener};
        else return Named{m.stream, true};
      },
      e.message);
  const auto found = by_address_.find({e.header.sender, named.stream, !named.opener});
  if (found == by_address_.end()) return false;
  Stream& s = *found->second;
  if (const auto* close = std::get_if<wire::RelayClose>(&e.message)) {
    lose(s, {close->code, close->cause.empty() ? "ended the stream" : close->cause, close->next}, false);
    return true;
  }
  if (const auto* data = std::get_if<wire::RelayData>(&e.message)) s.end->receive(now, *data);
  else s.end->opened_again(now);
  touched_.insert(s.id);
  return true;
}

// The caller of write() is in the middle of its own work, so the end of the stream, which ends that work too, waits for dispatch().
void RelayStreams::write(Stream& s, const wire::Message& message) {
  touched_.insert(s.id);
  if (s.unread) return;
  s.end->write(wire::frame(message));
  s.unread = s.end->unacknowledged() > kRelayMostBytes;
}

bool RelayStreams::input(node::ConnectionId client, wire::ExecInput input) {
  for (auto at = of_client_.lower_bound({client, 0}); at != of_client_.end() && at->first == client; ++at) {
    Stream& s = *find(at->second);
    if (!s.whole || s.request != input.exec || !s.end) continue;
    input.exec = 1;
    write(s, wire::make_message(wire::MessageType::exec_input, 1, input));
    if (s.end->unacknowledged() > kRelayInputBytes && !std::exchange(s.holds_client, true)) sinks_.hold(client, true);
    return true;
  }
  return false;
}

void RelayStreams::wake(node::ConnectionId client) {
  for (auto at = of_client_.lower_bound({client, 0}); at != of_client_.end() && at->first == client; ++at) touched_.insert(at->second);
}

std::size_t RelayStreams::room(node::ConnectionId connection) {
  Stream* s = find(connection);
  if (s == nullptr) return 0;
  std::size_t room = 0;
  if (s->end) room = kRelayOutputBytes - std::min(kRelayOutputBytes, s->end->unacknowledged());
  else if (!s->held) room = sinks_.room(s->client);
  if (room < proc::kStreamMessageBytes) s->full = true;
  return room;
}

void RelayStreams::send(node::ConnectionId connection, const wire::Message& message) {
  Stream* s = find(connection);
  if (s == nullptr) return;
  if (s->end) write(*s, message);
  else answer(*s, message);
}

// Passes an answer to the client. Returns false if the part is over.
bool RelayStreams::answer(Stream& s, wire::Message message) {
  const bool last = message.last;
  const bool failed = message.type == wire::MessageType::error;
  message.request = s.request;
  if (s.whole || (!failed && !last)) sinks_.send(s.client, message);
  if (!last) return true;
  const node::ConnectionId id = s.id;
  send_closed(s, {});
  forget(s);
  using How = node::RelayEnded::How;
  world_.tell(node::RelayEnded{id, failed ? How::refused : How::done, failed ? error_of(message) : Error{}});
  return false;
}

// Handles what the other end sent, message by message. Returns false if the stream is gone.
bool RelayStreams::read(Stream& s) {
  const bool relayed = s.relayed();
  while (true) {
    if (!relayed && sinks_.room(s.client) < kRelayMessageRoom) return true;
    if (!s.held) {
      auto message = s.frames.next();
      if (!message) return lose(s, kGarbled, true), false;
      s.held = std::move(*message);
    }
    if (s.held) {
      wire::Message message = *std::exchange(s.held, std::nullopt);
      if (relayed) {
        const node::ConnectionId id = s.id;
        world_.on_relayed(id, std::move(message));
        if (find(id) == nullptr) return false;
      } else if (!answer(s, std::move(message))) {
        return false;
      }
      continue;
    }
    const std::string_view more = s.end->readable();
    if (more.empty()) return true;
    if (s.frames.buffered() + more.size() > (relayed ? kRelayRequestBytes : kRelayAnswerBytes)) return lose(s, kGarbled, true), false;
    s.frames.feed(more);
    s.end->consume(more.size());
  }
}

void RelayStreams::serve(Instant now, Stream& s) {
  if (s.end) {
    if (s.unread) return lose(s, kUnread, true);
    if (!read(s)) return;
    if (s.end->silent(now)) return lose(s, kSilent, true);
    while (const auto message = s.end->next(now)) world_.to_peer(*s.peer, *message);
    if (s.holds_client && s.end->unacknowledged() <= kRelayInputBytes / 2) {
      s.holds_client = false;
      sinks_.hold(s.client, false);
    }
  }
  const Instant next = s.end ? s.end->deadline() : kNever;
  const auto [timer, added] = timer_of_.emplace(s.id, next);
  if (!added) timers_.erase({timer->second, s.id});
  timer->second = next;
  timers_.insert({next, s.id});
  if (s.full && room(s.id) >= proc::kStreamMessageBytes) {
    s.full = false;
    world_.on_room(s.id);
  }
}

Instant RelayStreams::deadline() const {
  if (!touched_.empty()) return Instant{};
  return timers_.empty() ? kNever : timers_.begin()->first;
}

void RelayStreams::dispatch(Instant now) {
  std::set<node::ConnectionId> due = std::exchange(touched_, {});
  for (auto at = timers_.begin(); at != timers_.end() && at->first <= now; ++at) due.insert(at->second);
  for (const node::ConnectionId id : due)
    if (Stream* s = find(id)) serve(now, *s);
}

}  // namespace dtrain::daemon
