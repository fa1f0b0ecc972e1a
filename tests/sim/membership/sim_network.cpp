#include "tests/sim/membership/sim_network.h"

#include <algorithm>
#include <charconv>

namespace dtrain::sim::membership {
namespace {

constexpr Duration kLatencyLeast = 100us, kLatencySpread = 900us;  // one way
constexpr Duration kSlowExtra = 18ms;                              // one packet in a hundred is up to this much slower
constexpr Duration kRetransmit = 200ms;                            // Linux' least retransmission timeout; doubles
constexpr Duration kGiveUp = kRetransmit + 5s;  // TCP_MAXRT of agent/net, which Linux counts from the first time that it tries again
constexpr Duration kConnectTimeout = 1s;
constexpr Duration kReconnectLeast = 100ms, kReconnectMost = 1s;
constexpr Duration kHandshakeStep = 250ms;    // a stopped peer is looked at this often
constexpr std::uint8_t kHandshakeSteps = 10;  // and that many times: HANDSHAKE_IVL
constexpr Duration kQueuedMost = 5s;          // a message waits at most this long for its link
constexpr std::size_t kQueued = 64;           // at most this many messages wait: the high-water mark
constexpr std::size_t kIdleLinks = 64;        // besides the links to keep
constexpr Duration kIdleTime = 60s;           // a link that is not to be kept is given up when unused for this long
constexpr Duration kAnewTime = 5s;            // the same for a link made for a single message
constexpr std::size_t kHeld = 20'000;         // messages that the kernel buffers of a stopped process hold
constexpr std::size_t kStalled = 4096;

enum class LinkKind : std::uint8_t { gossip, bulk, anew };  // anew: made for one message
constexpr std::uint32_t kLinkKinds = 3;
constexpr std::uint32_t key_of(std::uint32_t address, LinkKind kind) { return address * 4 + static_cast<std::uint32_t>(kind); }
constexpr std::uint32_t address_in(std::uint32_t key) { return key / 4; }
// only these links report that they are up or lost
constexpr bool reported(std::uint32_t key) { return key == key_of(address_in(key), LinkKind::gossip); }

std::uint64_t pack(std::uint32_t owner, std::uint32_t key, std::uint32_t connection) {
  return (std::uint64_t{owner} + 1) << 40 | std::uint64_t{key} << 12 | (connection & 0xfff);
}

}  // namespace

std::string ip_text(std::uint32_t address) {
  return "10." + std::to_string(address >> 16 & 255) + "." + std::to_string(address >> 8 & 255) + "." + std::to_string(address & 255);
}

std::uint32_t address_of(const wire::Endpoint& endpoint) {
  std::uint32_t parts[4] = {};
  const char *at = endpoint.ip.data(), *end = at + endpoint.ip.size();
  for (std::uint32_t& part : parts) {
    const auto [next, error] = std::from_chars(at, end, part);
    if (error != std::errc{} || part > 255) return 0;
    at = next == end ? next : next + 1;
  }
  return parts[0] == 10 && endpoint.port == SimNetwork::kPort ? parts[1] << 16 | parts[2] << 8 | parts[3] : 0;
}

Duration SimNetwork::latency() {
  Duration length = kLatencyLeast + Duration(static_cast<std::int64_t>(rng_.below(kLatencySpread.count())));
  if (rng_.chance(1, 100)) length += Duration(static_cast<std::int64_t>(rng_.below(kSlowExtra.count())));
  return length;
}

Duration SimNetwork::late() {
  Duration extra{0}, timeout = kRetransmit;
  while (lost() && extra <= kGiveUp) {
    extra += timeout;
    timeout *= 2;
  }
  return extra;
}

std::uint32_t SimNetwork::add_host(std::uint32_t address) {
  const auto slot = static_cast<std::uint32_t>(ports_.size());
  ports_.emplace_back();
  cuts_.resize(ports_.size());
  move_host(slot, address);
  return slot;
}

void SimNetwork::move_host(std::uint32_t slot, std::uint32_t address) {
  Port& port = ports_[slot];
  if (port.address != 0 && slot_at(port.address) == slot) at_[port.address] = kNobody;
  port.address = address;
  if (at_.size() <= address) at_.resize(address + 1, kNobody);
  at_[address] = slot;
}

void SimNetwork::start_process(std::uint32_t slot) {
  Port& port = ports_[slot];
  port.listening = true;
  port.paused = false;
  ++port.process;
}

void SimNetwork::end_process(std::uint32_t slot) {
  Port& port = ports_[slot];
  const std::uint32_t ended = port.process;
  port.listening = port.paused = false;
  ++port.process;
  for (Link& link : port.links) drop_waiting(link);
  port.links.clear();
  port.kept.clear();
  for (const Event& event : port.held) {
    if (event.what == What::message) messages_.drop(event.a);
    if (event.what == What::input) told_.drop(event.a);
  }
  port.held.clear();
  std::sort(port.inbound.begin(), port.inbound.end());
  port.inbound.erase(std::unique(port.inbound.begin(), port.inbound.end()), port.inbound.end());
  for (const std::uint32_t owner : port.inbound) {
    for (std::uint32_t kind = 0; kind < kLinkKinds; ++kind) {
      const Link* link = find(owner, key_of(port.address, static_cast<LinkKind>(kind)));
      if (link == nullptr || link->state != State::up || link->peer != slot || link->peer_process != ended) continue;
      if (!cut(slot, owner) && !lost()) queue_.push(now_ + latency(), What::reset, owner, link->key, link->connection);
    }
  }
  port.inbound.clear();
  port.inbound_compact = 64;
}

void SimNetwork::resume(std::uint32_t slot) {
  ports_[slot].paused = false;
  const std::uint32_t process = ports_[slot].process;
  std::vector<Event> held;
  held.swap(ports_[slot].held);
  for (const Event& event : held) {
    if (ports_[slot].process == process) {
      handle(event);
    } else if (event.what == What::message) {
      messages_.drop(event.a);
    } else if (event.what == What::input) {
      told_.drop(event.a);
    }
  }
}

SimNetwork::Link* SimNetwork::find(std::uint32_t slot, std::uint32_t key) {
  auto& links = ports_[slot].links;
  const auto at = std::lower_bound(links.begin(), links.end(), key, [](const Link& link, std::uint32_t k) { return link.key < k; });
  return at != links.end() && at->key == key ? &*at : nullptr;
}

SimNetwork::Link* SimNetwork::find(std::uint32_t slot, std::uint32_t key, std::uint32_t connection) {
  Link* link = find(slot, key);
  return link != nullptr && link->connection == connection ? link : nullptr;
}

SimNetwork::Link& SimNetwork::open(std::uint32_t slot, std::uint32_t key) {
  close_idle(slot);
  Port& port = ports_[slot];
  Link fresh;
  fresh.key = key;
  fresh.used = now_;
  fresh.connection = ++port.connections;
  const auto at = std::lower_bound(port.links.begin(), port.links.end(), key, [](const Link& l, std::uint32_t k) { return l.key < k; });
  Link& link = *port.links.insert(at, std::move(fresh));
  queue_.push(now_ + latency(), What::connect, slot, key, link.connection);
  return link;
}

void SimNetwork::drop_waiting(Link& link) {
  for (const std::uint32_t message : link.queued) messages_.drop(message);
  link.queued.clear();
  for (Pipe* pipe : {&link.out, &link.back}) {
    if (pipe->stall)
      for (const std::uint32_t message : pipe->stall->messages) messages_.drop(message);
    *pipe = {};
  }
}

void SimNetwork::close(std::uint32_t slot, Link& link) {
  drop_waiting(link);
  auto& links = ports_[slot].links;
  links.erase(links.begin() + (&link - links.data()));
}

// Closes the least recently used link that nobody asked to keep when there are too many.
void SimNetwork::close_idle(std::uint32_t slot) {
  Port& port = ports_[slot];
  if (port.links.size() < kIdleLinks) return;
  Link* oldest = nullptr;
  std::size_t others = 0;
  for (Link& link : port.links) {
    if (std::binary_search(port.kept.begin(), port.kept.end(), link.key)) continue;
    ++others;
    if (oldest == nullptr || link.used < oldest->used) oldest = &link;
  }
  if (others >= kIdleLinks) close(slot, *oldest);
}

void SimNetwork::keep(std::uint32_t slot, const gossip::KeepLinks& links) {
  Port& port = ports_[slot];
  port.kept.clear();
  for (const gossip::Peer& peer : links.peers)
    if (const std::uint32_t address = address_of(peer.address); address != 0) port.kept.push_back(key_of(address, LinkKind::gossip));
  std::sort(port.kept.begin(), port.kept.end());
  port.kept.erase(std::unique(port.kept.begin(), port.kept.end()), port.kept.end());
  for (const std::uint32_t key : port.kept)
    if (find(slot, key) == nullptr) open(slot, key);
}

void SimNetwork::send(std::uint32_t slot, gossip::Send&& send) {
  const bool join_link = send.reply == 0 && send.member.none();
  Message message{send.header, std::move(send.body), 0, slot, join_link};
  if (send.reply != 0) {
    const auto owner = static_cast<std::uint32_t>((send.reply >> 40) - 1);
    Link* link = find(owner, static_cast<std::uint32_t>(send.reply >> 12 & 0xfffffff));
    // The connection is gone, so the answer has no receiver.
    if (link == nullptr || link->state != State::up || (link->connection & 0xfff) != (send.reply & 0xfff) || link->peer != slot ||
        link->peer_process != ports_[slot].process)
      return;
    transmit(owner, *link, false, messages_.put(std::move(message)));
    return;
  }
  const std::uint32_t address = address_of(send.to);
  if (address == 0) {
    tell(slot, 0ns, gossip::SendFailed{send.to});
    return;
  }
  const bool bulk = wire::lane_of(message.body) == wire::Lane::bulk;
  const std::uint32_t key = key_of(address, send.anew ? LinkKind::anew : bulk ? LinkKind::bulk : LinkKind::gossip);
  Link* link = find(slot, key);
  if (send.anew && link != nullptr) {
    close(slot, *link);
    link = nullptr;
  }
  if (link == nullptr) link = &open(slot, key);
  link->used = now_;
  if (link->state == State::up) {
    message.reply = pack(slot, key, link->connection);
    transmit(slot, *link, true, messages_.put(std::move(message)));
  } else if (link->queued.size() >= kQueued) {
    tell(slot, 0ns, gossip::SendFailed{send.to});
  } else {
    if (link->queued.empty()) link->queued_since = now_;
    link->queued.push_back(messages_.put(std::move(message)));
  }
}

void SimNetwork::transmit(std::uint32_t owner, Link& link, bool forward, std::uint32_t message) {
  Pipe& pipe = forward ? link.out : link.back;
  const std::uint32_t from = forward ? owner : link.peer, to = forward ? link.peer : owner;
  if (pipe.stall) {
    if (pipe.stall->messages.size() < kStalled) pipe.stall->messages.push_back(message);
    else messages_.drop(message);
    return;
  }
  if (cut(from, to)) {
    pipe.stall = std::make_unique<Stall>(Stall{now_, 0, {message}});
    queue_.push(now_ + kRetransmit, What::retransmit, owner, link.key, link.connection, forward);
    return;
  }
  if (ports_[link.peer].process != link.peer_process) {  // the peer restarted or is gone: its kernel does not know the connection
    messages_.drop(message);
    queue_.push(now_ + 2 * latency(), What::reset, owner, link.key, link.connection);
    return;
  }
  arrive(owner, link, forward, message);
}

void SimNetwork::arrive(std::uint32_t owner, Link& link, bool forward, std::uint32_t message) {
  Pipe& pipe = forward ? link.out : link.back;
  const std::uint32_t from = forward ? owner : link.peer, to = forward ? link.peer : owner;
  const Duration extra = late();
  if (extra > kGiveUp) {
    messages_.drop(message);
    queue_.push(now_ + kGiveUp, What::reset, owner, link.key, link.connection);
    return;
  }
  pipe.last = std::max(pipe.last, now_ + latency() + extra);
  queue_.push(pipe.last, What::message, to, message, ports_[to].process);
  if (duplicates_ > 0 && rng_.chance(duplicates_, 1000)) {
    const Duration later(static_cast<std::int64_t>(rng_.below(Duration(5s).count())));
    queue_.push(pipe.last + later, What::message, to, messages_.put(messages_[message]), ports_[to].process);
  }
  if (!pipe.unanswered && cut(to, from)) {
    pipe.unanswered = true;
    queue_.push(now_ + kGiveUp, What::unanswered, owner, link.key, link.connection, forward);
  }
}

// Treats the connection as gone: tries again at once and reports the loss to the owner.
void SimNetwork::lose(std::uint32_t slot, Link& link) {
  const std::uint32_t key = link.key;
  drop_waiting(link);
  link.tries = 0;
  try_again(slot, link, 0ns);
  if (reported(key)) tell(slot, 0ns, gossip::LinkLost{{ip_text(address_in(key)), kPort}});
}

void SimNetwork::break_by_sender(std::uint32_t slot, Link& link, bool forward) {
  if (forward) {
    lose(slot, link);
    return;
  }
  drop_waiting(link);
  link.peer_process = 0;  // the owner learns of it when it sends next
}

// Reconnects as libzmq does, as long as somebody wants the link.
void SimNetwork::try_again(std::uint32_t slot, Link& link, Duration after) {
  if (!link.queued.empty() && now_ - link.queued_since > kQueuedMost) {
    for (const std::uint32_t message : link.queued) messages_.drop(message);
    link.queued.clear();
  }
  const auto& kept = ports_[slot].kept;
  if (now_ - link.used >= (key_of(address_in(link.key), LinkKind::anew) == link.key ? kAnewTime : kIdleTime) &&
      !std::binary_search(kept.begin(), kept.end(), link.key)) {
    close(slot, link);
    return;
  }
  link.state = State::waiting;
  link.connection = ++ports_[slot].connections;
  const Duration pause = std::min(kReconnectMost, kReconnectLeast * (1 << std::min<int>(link.tries, 6)));
  if (link.tries < 100) ++link.tries;
  const Duration jitter(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(pause.count()))));
  queue_.push(now_ + after + pause + jitter, What::connect, slot, link.key, link.connection);
}

void SimNetwork::on_connect(const Event& event) {
  Link* link = find(event.slot, event.a, event.b);
  if (link == nullptr) return;
  link->state = State::connecting;
  const std::uint32_t peer = slot_at(address_in(event.a));
  if (peer == kNobody || cut(event.slot, peer) || cut(peer, event.slot) || lost() || lost()) {
    try_again(event.slot, *link, kConnectTimeout);
    return;
  }
  if (!ports_[peer].listening) {
    try_again(event.slot, *link, latency());
    return;
  }
  link->peer = peer;
  link->peer_process = ports_[peer].process;
  Duration length = 4 * latency();
  for (int packet = 0; packet < 4; ++packet) length += late();
  queue_.push(now_ + length, What::handshake, event.slot, event.a, event.b);
}

void SimNetwork::on_handshake(const Event& event) {
  Link* link = find(event.slot, event.a, event.b);
  if (link == nullptr) return;
  Port& peer = ports_[link->peer];
  if (peer.process != link->peer_process || cut(event.slot, link->peer) || cut(link->peer, event.slot)) {
    try_again(event.slot, *link, 0ns);
    return;
  }
  if (peer.paused) {
    if (event.detail < kHandshakeSteps) {
      queue_.push(now_ + kHandshakeStep, What::handshake, event.slot, event.a, event.b, event.detail + 1);
    } else {
      try_again(event.slot, *link, 0ns);
    }
    return;
  }
  link->state = State::up;
  link->tries = 0;
  link->out = {};
  link->back = {};
  peer.inbound.push_back(event.slot);
  if (peer.inbound.size() > peer.inbound_compact) {
    std::sort(peer.inbound.begin(), peer.inbound.end());
    peer.inbound.erase(std::unique(peer.inbound.begin(), peer.inbound.end()), peer.inbound.end());
    peer.inbound_compact = 2 * peer.inbound.size() + 64;
  }
  std::vector<std::uint32_t> queued;
  queued.swap(link->queued);
  if (reported(event.a)) tell(event.slot, 0ns, gossip::LinkUp{{ip_text(address_in(event.a)), kPort}});
  for (const std::uint32_t message : queued) {
    messages_[message].reply = pack(event.slot, event.a, link->connection);
    transmit(event.slot, *link, true, message);
  }
}

void SimNetwork::on_retransmit(const Event& event) {
  Link* link = find(event.slot, event.a, event.b);
  if (link == nullptr || link->state != State::up) return;
  const bool forward = event.detail != 0;
  Pipe& pipe = forward ? link->out : link->back;
  if (!pipe.stall) return;
  const std::uint32_t from = forward ? event.slot : link->peer, to = forward ? link->peer : event.slot;
  if (now_ - pipe.stall->since >= kGiveUp) {
    break_by_sender(event.slot, *link, forward);
    return;
  }
  if (cut(from, to)) {
    // Linux shortens the last pause in order to give up in time (tcp_clamp_rto_to_user_timeout).
    ++pipe.stall->attempt;
    const Instant next = std::min(now_ + kRetransmit * (1 << pipe.stall->attempt), pipe.stall->since + kGiveUp);
    queue_.push(next, What::retransmit, event.slot, event.a, event.b, event.detail);
    return;
  }
  if (ports_[link->peer].process != link->peer_process) {
    queue_.push(now_ + 2 * latency(), What::reset, event.slot, event.a, event.b);
    return;
  }
  const auto stall = std::move(pipe.stall);
  for (const std::uint32_t message : stall->messages) arrive(event.slot, *link, forward, message);
}

void SimNetwork::on_unanswered(const Event& event) {
  Link* link = find(event.slot, event.a, event.b);
  if (link == nullptr || link->state != State::up) return;
  const bool forward = event.detail != 0;
  (forward ? link->out : link->back).unanswered = false;
  const std::uint32_t from = forward ? event.slot : link->peer, to = forward ? link->peer : event.slot;
  if (cut(to, from)) break_by_sender(event.slot, *link, forward);
}

void SimNetwork::on_message(const Event& event) {
  Port& port = ports_[event.slot];
  if (!port.listening || port.process != event.b) {
    messages_.drop(event.a);
    return;
  }
  user_.received(event.slot, messages_.take(event.a));
}

void SimNetwork::check_gone(std::uint32_t slot, const wire::Endpoint& to) {
  using Answer = gossip::GoneChecked::Answer;
  const std::uint32_t address = address_of(to), peer = address == 0 ? kNobody : slot_at(address);
  const bool silent = peer == kNobody || cut(slot, peer) || cut(peer, slot) || lost() || lost();
  const Answer answer = silent ? Answer::silent : ports_[peer].listening ? Answer::accepts : Answer::refused;
  tell(slot, silent ? kConnectTimeout : 2 * latency(), gossip::GoneChecked{to, answer});
}

void SimNetwork::tell(std::uint32_t slot, Duration after, gossip::Input input) {
  queue_.push(now_ + after, What::input, slot, told_.put({std::move(input), ports_[slot].process}));
}

void SimNetwork::handle(const Event& event) {
  Port& port = ports_[event.slot];
  const bool of_process =
      event.what == What::message || event.what == What::input || event.what == What::connect || event.what == What::handshake;
  if (port.paused && of_process) {
    if (port.held.size() < kHeld) port.held.push_back(event);
    else if (event.what == What::message) messages_.drop(event.a);
    else if (event.what == What::input) told_.drop(event.a);
    return;
  }
  switch (event.what) {
    case What::message: return on_message(event);
    case What::connect: return on_connect(event);
    case What::handshake: return on_handshake(event);
    case What::retransmit: return on_retransmit(event);
    case What::unanswered: return on_unanswered(event);
    case What::reset:
      if (Link* link = find(event.slot, event.a, event.b); link != nullptr && link->state == State::up) lose(event.slot, *link);
      return;
    case What::input: {
      const Told told = told_.take(event.a);
      if (port.listening && port.process == told.process) user_.happened(event.slot, told.input);
      return;
    }
    default: return;
  }
}

}  // namespace dtrain::sim::membership
