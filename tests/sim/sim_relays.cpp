#include "tests/sim/sim_relays.h"

#include <algorithm>

#include "tests/sim/cluster_world.h"

namespace dtrain::sim {
namespace {

constexpr Duration kHop = 2ms, kRead = 3ms, kUnknown = 1s, kSilence = 30s, kAgain = 500ms;
constexpr Duration kSlowestFind = 5ms, kSlowestWord = 20ms;  // for a package that is to be staged; that it is not here
constexpr std::size_t kCheckpointBytes = 64;
constexpr std::size_t kChunk = 24;  // bytes; every package has 64, which are its digest

}  // namespace

void SimRelays::later(std::size_t host, Duration after, node::Event event) {
  world_.timeline().after(after, [this, host, life = world_.host(host).lives(), event = std::move(event)] {
    if (world_.host(host).lives() == life) world_.host(host).post(event);
  });
}

Duration SimRelays::upto(Duration most) {
  return Duration(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(most.count())) + 1));
}

bool SimRelays::cut(const Stream& s) const { return world_.network().cut(s.opener, s.other); }

SimRelays::Streams::iterator SimRelays::of_number(std::uint64_t number) { return std::ranges::find(streams_, number, &Stream::number); }

SimRelays::Streams::iterator SimRelays::of_accepted(std::size_t host, node::ConnectionId connection) {
  return std::ranges::find_if(streams_, [&](const Stream& s) { return s.other == host && s.accepted == connection; });
}

void SimRelays::perform(std::size_t host, const node::Stage& e) {
  const Duration word = upto(kSlowestWord);
  world_.timeline().after(upto(kSlowestFind), [this, host, e, word, life = world_.host(host).lives()] {
    // An agent that has died begins nothing, even before its new life begins (three hosts, seed 16901).
    if (world_.host(host).lives() != life || world_.host(host).node() == nullptr) return;
    if (has(host, e.package_digest)) return world_.host(host).tasks().perform(e);
    later(host, word, node::Staged{e.id, fail(ErrorCode::not_found, "could not stage " + e.id.text() + ": its package is not here"), true});
  });
}

void SimRelays::perform(std::size_t host, const node::OpenRelay& e) {
  std::size_t other = world_.hosts();
  for (std::size_t i = 0; i < world_.hosts(); ++i)
    if (e.peer && ClusterNetwork::endpoint(i) == e.peer->to) other = i;  // no peer: the logs of this host, which are not simulated
  using How = node::RelayEnded::How;
  if (other == world_.hosts() || !world_.host(other).agent_runs())
    return later(host, kSilence, node::RelayEnded{e.part, How::lost, {ErrorCode::unavailable, "was silent", ""}});
  Stream& stream = streams_.emplace_back();
  stream.opener = host;
  stream.other = other;
  stream.open = e;
  stream.number = ++numbers_;
  open(stream.number);
  // An agent that has just started may not know the opener yet, and does not answer (seed 486 of three hosts).
  world_.timeline().after(kSilence, [this, number = stream.number] {
    const auto s = of_number(number);
    if (s != streams_.end() && s->accepted == 0) end(s, How::lost, {ErrorCode::unavailable, "was silent", ""}, Duration{});
  });
}

void SimRelays::open(std::uint64_t number) {
  const auto s = of_number(number);
  if (s == streams_.end()) return;
  if (cut(*s)) return world_.timeline().after(kAgain, [this, number] { open(number); });
  node::RelayReceived received;
  received.header = s->open.peer->header;
  received.message = s->open.open;
  later(s->other, kHop, received);
}

void SimRelays::perform(std::size_t host, const node::AcceptRelay& e) {
  for (Stream& s : streams_) {
    if (s.other != host || s.open.open.stream != e.stream || ClusterNetwork::endpoint(s.opener) != e.peer.to) continue;
    s.accepted = e.connection;
    return later(host, kHop, node::Request{e.connection, 1, s.open.query});
  }
  later(host, kHop, node::ConnectionClosed{e.connection});  // the opener of the stream is gone
}

void SimRelays::perform(std::size_t host, const node::CloseRelay& e) {
  const auto s = std::ranges::find_if(streams_, [&](const Stream& x) { return x.opener == host && x.open.part == e.part; });
  if (s == streams_.end()) return;
  if (s->accepted != 0) later(s->other, cut(*s) ? kSilence : kHop, node::ConnectionClosed{s->accepted});
  streams_.erase(s);
}

void SimRelays::end(Streams::iterator s, node::RelayEnded::How how, Error error, Duration after) {
  later(s->opener, after, node::RelayEnded{s->open.part, how, std::move(error)});
  if (s->accepted != 0) later(s->other, cut(*s) ? kSilence : kHop, node::ConnectionClosed{s->accepted});
  streams_.erase(s);
}

void SimRelays::answer(Streams::iterator s, std::optional<wire::Message> message) {
  s->pieces.push_back(std::move(message));
  if (s->pieces.size() == 1) world_.timeline().after(kHop, [this, number = s->number] { pass_on(number); });
}

void SimRelays::pass_on(std::uint64_t number) {
  const auto s = of_number(number);
  if (s == streams_.end()) return;
  const Error silent{ErrorCode::unavailable, "was silent", ""};
  if (cut(*s)) {
    if (!s->cut_since) s->cut_since = world_.now();
    if (world_.now() - *s->cut_since >= kSilence) return end(s, node::RelayEnded::How::lost, silent, Duration{});
    return world_.timeline().after(kAgain, [this, number] { pass_on(number); });
  }
  s->cut_since.reset();
  auto piece = std::move(s->pieces.front());
  s->pieces.pop_front();
  if (!piece) return end(s, node::RelayEnded::How::lost, silent, kSilence);
  if (!s->pieces.empty()) world_.timeline().after(kHop, [this, number] { pass_on(number); });
  arrives(s, std::move(*piece));
}

void SimRelays::arrives(Streams::iterator s, wire::Message message) {
  const bool own = s->open.own;
  message.request = s->open.request;
  if (own) {  // also when it closes the stream meanwhile
    later(s->opener, kHop, node::RelayAnswered{s->open.connection, wire::encode(message)});
  } else {  // a user's
    world_.timeline().after(kHop, [&client = world_.client(), connection = s->open.connection, body = wire::encode(message)] {
      client.receive(connection, body, 0);
    });
  }
  if (!message.last) return;
  using How = node::RelayEnded::How;
  if (!own || message.type != wire::MessageType::error) return end(s, How::done, {}, kHop);
  const auto errors = wire::decode<wire::ErrorReply>(message.payload)->errors;
  end(s, How::refused, {errors.front().code, errors.front().message, errors.front().next}, kHop);
}

bool SimRelays::replied(std::size_t host, const node::Reply& e) {
  const auto s = of_accepted(host, e.connection);
  if (s == streams_.end()) return false;
  if (auto message = wire::decode<wire::Message>(e.body)) answer(s, std::move(*message));
  return true;
}

void SimRelays::perform(std::size_t host, const node::SendBlob& e) {
  const auto s = of_accepted(host, e.connection);
  if (s == streams_.end()) return;
  if (!has(host, e.digest))
    return answer(s, wire::make_message(wire::MessageType::error, 1, wire::error_reply({ErrorCode::not_found, "it is not here", ""})));
  send(s, e.digest, e.offset);
}

void SimRelays::send(Streams::iterator s, std::string bytes, std::uint64_t offset) {
  if (!world_.calm() && rng_.chance(1, 12)) bytes.back() = '-';
  const bool breaks = !world_.calm() && rng_.chance(1, 6);
  for (std::size_t at = offset;; at += kChunk) {
    if (breaks && rng_.chance(1, 2)) return answer(s, std::nullopt);
    const bool last = at + kChunk >= bytes.size();
    answer(s, wire::make_message(wire::MessageType::blob_chunk, 1, wire::BlobChunk{at, bytes.substr(at, kChunk)}, last));
    if (last) return;
  }
}

void SimRelays::perform(std::size_t host, const node::WriteBlob& e) {
  const auto own = std::pair(host, e.connection);
  partial_[own] += e.bytes;
  if (!e.last) return;
  const bool right = partial_[own] == e.digest;
  partial_.erase(own);
  if (right) blobs_[host].insert(e.digest);
  later(host, kRead,
        node::BlobWritten{e.connection, e.request,
                          right ? Result<std::string>(e.digest) : Result<std::string>(fail(ErrorCode::damaged, "another digest"))});
}

// The bytes of a checkpoint are its digest; those of a damaged one differ.
void SimRelays::perform(std::size_t host, const node::SendCheckpoint& e) {
  const auto s = of_accepted(host, e.connection);
  if (s == streams_.end()) return;
  const SimCheckpoint* c = std::as_const(world_.host(host).files()).find(e.info.path);
  if (c == nullptr || c->info.digest != e.info.digest)
    return answer(s, wire::make_message(wire::MessageType::error, 1, wire::error_reply({ErrorCode::not_found, "it is not here", ""})));
  std::string bytes = e.info.digest;
  bytes.resize(kCheckpointBytes, '.');
  if (!c->good) bytes.front() = '-';
  answer(s, wire::make_message(wire::MessageType::checkpoint_files, 1, wire::CheckpointFiles{{{"weights.bin", kCheckpointBytes}}}, false));
  send(s, std::move(bytes), e.offset);
}

void SimRelays::perform(std::size_t host, const node::WriteCheckpoint& e) {
  const auto own = std::pair(host, e.writer);
  partial_[own] += e.bytes;
  if (!e.last) return;
  std::string right = e.info.digest;
  right.resize(kCheckpointBytes, '.');
  const bool good = partial_[own] == right;
  partial_.erase(own);
  if (!good) return later(host, kRead, node::CheckpointWritten{e.writer, fail(ErrorCode::damaged, "weights.bin does not have its hash")});
  SimCheckpoint copy;
  for (std::size_t i = 0; i < world_.hosts(); ++i)
    if (const SimCheckpoint* c = std::as_const(world_.host(i).files()).find(e.info.path); c != nullptr && c->info.digest == e.info.digest)
      copy = *c;
  if (copy.info.path.empty()) copy.info = e.info;  // the copy was removed meanwhile
  copy.good = true;
  world_.host(host).files().put(copy);
  later(host, kRead, node::CheckpointWritten{e.writer, {}});
}

void SimRelays::perform(std::size_t host, const node::DropCheckpoint& e) { partial_.erase({host, e.writer}); }

void SimRelays::perform(std::size_t host, const node::DropBlob& e) { partial_.erase({host, e.connection}); }

void SimRelays::perform(std::size_t host, const node::FindBlob& e) { later(host, kRead, node::BlobFound{e.digest, has(host, e.digest)}); }

void SimRelays::agent_ends(std::size_t host) {
  std::erase_if(partial_, [&](const auto& entry) { return entry.first.first == host; });
  for (auto s = streams_.begin(); s != streams_.end();) {
    const auto gone = s++;
    if (gone->other == host)
      later(gone->opener, kUnknown,
            node::RelayEnded{gone->open.part, node::RelayEnded::How::lost, {ErrorCode::unavailable, "was restarted", ""}});
    else if (gone->opener == host && gone->accepted != 0) later(gone->other, kSilence, node::ConnectionClosed{gone->accepted});
    else if (gone->opener != host) continue;
    streams_.erase(gone);
  }
}

}  // namespace dtrain::sim
