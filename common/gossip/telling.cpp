// What is sent: rumours to the neighbours in batches, other messages, and the list of links to keep.
#include <algorithm>

#include "common/gossip/core.h"

namespace dtrain::gossip {

void Core::tell(wire::Rumour rumour) {
  if (!active() || table_.size() == 1) return;  // nobody is there; a joiner gets the whole table
  queue_.add(std::move(rumour));
  if (!timers_.waits(Timers::of(Wait::batch))) timers_.set(Timers::of(Wait::batch), std::max(now_, next_flush_));
}

// One round: `fanout` neighbours get the same rumours. They take turns, but neighbours that the least transmitted
// rumour has not reached come first: otherwise a rumour that is sent in every second round would meet the same half
// of them each time, and one member of 10,000 might never hear of it. The first news after a pause is sent at once.
// While news is endless (many are suspected and refute it), rounds are slower and fuller: otherwise sending would
// take the time in which pings are answered, and cause more suspicions. A node that runs late sends still less often.
void Core::flush() {
  const auto& neighbours = rings_.neighbours();
  timers_.cancel(Timers::of(Wait::batch));
  if (neighbours.empty()) return;
  const std::uint32_t round = queue_.next_round(options_.fanout, fan_turn_);
  fan_turn_ += options_.fanout;
  wire::Gossip gossip;
  queue_.take_round(options_.gossip_bytes, wire::kRumoursPerMessage, gossip.rumours, round);
  counters_.rumours_dropped = queue_.dropped();
  for (std::size_t neighbour = 0; neighbour < neighbours.size(); ++neighbour) {
    if ((round >> neighbour & 1) == 0) continue;
    const Slot slot = table_.find(neighbours[neighbour]);
    if (slot == kNone) continue;
    counters_.rumours_sent += gossip.rumours.size();
    send(table_.at(slot), gossip);
  }
  paced_ = std::max(paced_, now_ - options_.quick_rounds * options_.paced) + options_.paced;
  next_flush_ = std::max(now_ + options_.batch, paced_) + own_lag();
  if (!queue_.empty()) timers_.set(Timers::of(Wait::batch), next_flush_);
}

std::vector<wire::Rumour> Core::piggyback() {
  std::vector<wire::Rumour> rumours;
  if (!queue_.empty()) queue_.take(options_.piggyback_bytes, wire::kRumoursPerMessage, rumours);
  counters_.rumours_sent += rumours.size();
  return rumours;
}

void Core::send(const Member& to, wire::GossipBody body) { send(0, to.identity->address, to.identity->id, std::move(body)); }

void Core::answer(const Received& m, wire::GossipBody body) {
  wire::Endpoint to;
  if (m.reply == 0) {
    const Slot slot = table_.find(m.header.sender);
    if (slot == kNone) return;
    to = table_.at(slot).identity->address;
  }
  send(m.reply, to, m.header.sender, std::move(body), m.header.correlation);
}

void Core::send(ReplyPath reply, const wire::Endpoint& to, const MemberId& member, wire::GossipBody body, std::uint64_t correlation) {
  wire::PeerHeader header;
  header.type = static_cast<std::uint16_t>(body.index() + 1);
  header.cluster = cluster_;
  header.sender = id_;
  header.incarnation = incarnation_;
  header.correlation = correlation;
  out_->sends.push_back({reply, to, member, false, header, std::move(body)});
}

wire::Rumour Core::alive_rumour(const Member& member) const {
  return {wire::RumourKind::alive, member.identity->id, member.incarnation, {}, member.identity, nullptr, {}};
}

wire::Rumour Core::accusation_of(const Member& member) const {
  wire::Rumour rumour{wire::RumourKind::suspect, member.identity->id, member.incarnation, id_, nullptr, nullptr, {}};
  switch (member.state()) {
    case State::alive: return alive_rumour(member);
    case State::suspect:
      if (const auto found = suspicions_.find(rumour.subject); found != suspicions_.end()) rumour.from = found->second.accusers().front();
      break;
    case State::down: rumour.kind = wire::RumourKind::down; break;
    case State::dead: rumour.kind = wire::RumourKind::dead; break;
    case State::left: rumour.kind = wire::RumourKind::left; break;
  }
  return rumour;
}

void Core::keep_links() {
  std::vector<Peer> peers;
  const auto keep = [&](const Member& member) {
    const wire::Identity& who = *member.identity;
    if (std::ranges::none_of(peers, [&](const Peer& peer) { return peer.id == who.id; }))
      peers.push_back({who.id, who.address, who.key_print});
  };
  for (const MemberId& id : rings_.neighbours())
    if (const Slot slot = table_.find(id); slot != kNone) keep(table_.at(slot));
  const auto eligible = [this](Slot slot) { return slot != self_slot_ && table_.used(slot) && table_.at(slot).in_service(); };
  for (const Slot slot : order_.peek(table_.slots(), options_.warm_ahead, eligible)) keep(table_.at(slot));
  const auto same = [](const Peer& a, const Peer& b) { return a.id == b.id && a.address == b.address && a.key_print == b.key_print; };
  // An unkept link may be closed by this node at any time: its silence is no evidence any more.
  std::erase_if(
      up_, [&](const wire::Endpoint& to) { return std::ranges::none_of(peers, [&](const Peer& peer) { return peer.address == to; }); });
  if (std::ranges::equal(peers, kept_, same)) return;
  kept_ = peers;
  out_->links = KeepLinks{std::move(peers)};
}

void Core::links_changed() {
  if (!timers_.waits(Timers::of(Wait::links))) timers_.set(Timers::of(Wait::links), now_ + phase(kLinksSpread));
}

}  // namespace dtrain::gossip
