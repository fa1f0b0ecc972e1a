// How a member of world membership is told things, and how what it answers is done.
#include <cstdio>

#include "tests/sim/membership/membership_world.h"
#include "tests/sim/membership/trace_text.h"

namespace dtrain::sim::membership {
namespace {

constexpr std::uint32_t kTicksInPlace = 1000;  // deadlines in a row that have passed already: a busy loop
constexpr std::size_t kBookOfMany = 32;        // of a large cluster's members, on their simulated disks: memory
constexpr std::uint32_t kManyMembers = 200;
constexpr Duration kResolveTakes = 5ms;
}  // namespace

void MembershipWorld::mix(std::uint64_t value) {
  hash_ = (hash_ ^ value) * 0xff51afd7ed558ccdull;
  hash_ ^= hash_ >> 29;
}

void MembershipWorld::line(std::uint32_t slot, std::string_view mark, const std::string& text) {
  std::printf("%s %s %.*s %s\n", seconds_text(now_).c_str(), members_[slot].name.c_str(), static_cast<int>(mark.size()), mark.data(),
              text.c_str());
}

void MembershipWorld::note(std::string text) {
  for (const char c : text) mix(static_cast<unsigned char>(c));
  if (options_.trace) std::printf("%s == %s\n", seconds_text(now_).c_str(), text.c_str());
}

void MembershipWorld::step(std::uint32_t slot, const gossip::Input& input) {
  SimMember& member = members_[slot];
  mix(static_cast<std::uint64_t>(now_.time_since_epoch().count()) << 4 ^ input.index());
  mix(slot);
  if (options_.trace && !std::holds_alternative<gossip::Tick>(input)) line(slot, "<-", text_of(input));
  out_.sends.clear();
  out_.checks.clear();
  out_.changes.clear();
  out_.links.reset();
  out_.save.reset();
  out_.resolve_seeds = false;
  member.core->step(member.clock.local(now_), input, out_);
  if (!member.truth.admitted && !member.core->cluster_id().none()) {
    member.truth.admitted = true;
    if (member.truth.calm_since != kNever) member.truth.calm_since = now_;
  }
  perform(slot);
  if (member.core) schedule(slot);
}

void MembershipWorld::perform(std::uint32_t slot) {
  SimMember& member = members_[slot];
  for (const gossip::Change& change : out_.changes) {
    mix(static_cast<std::uint64_t>(change.kind) ^ change.id.low);
    mix(change.incarnation);
    if (options_.trace) line(slot, "**", text_of(change));
    if (change.kind == gossip::ChangeKind::frozen) ++figures_.frozen;
    for (const auto& checker : checkers_) checker->changed(slot, change);
  }
  if (out_.save) {
    member.unsaved = std::move(out_.save->record);
    if (options_.nodes > kManyMembers && member.unsaved.book.size() > kBookOfMany) {
      member.unsaved.book.resize(kBookOfMany);
      member.unsaved.book.shrink_to_fit();
    }
    if (!member.saving)
      queue_.push(now_ + Duration(static_cast<std::int64_t>(rng_.below(Duration(10ms).count()))), What::saved, slot,
                  network_.process(slot));
    member.saving = true;
  }
  for (gossip::Send& send : out_.sends) {
    ++figures_.messages;
    mix(send.body.index() ^ send.header.correlation << 4);
    if (options_.trace) line(slot, "->", (send.reply != 0 ? "answer" : send.to.text()) + " " + text_of(send.body));
    if (rng_.chance(1, encode_one_in_)) through_codec(send);
    network_.send(slot, std::move(send));
  }
  for (const gossip::CheckGone& check : out_.checks) network_.check_gone(slot, check.to);
  if (out_.links) network_.keep(slot, *out_.links);
  if (out_.resolve_seeds) resolve(slot);
}

void MembershipWorld::schedule(std::uint32_t slot) {
  SimMember& member = members_[slot];
  const Instant wanted = member.clock.world(member.core->deadline());
  if (wanted >= member.tick_at) return;
  member.tick_at = std::max(wanted, now_);
  queue_.push(member.tick_at, What::tick, slot, network_.process(slot));
}

void MembershipWorld::on_tick(const Event& event) {
  SimMember& member = members_[event.slot];
  if (!member.truth.runs || network_.process(event.slot) != event.a || event.at != member.tick_at) return;
  if (member.truth.paused) {  // resuming brings a Tick
    member.tick_at = kNever;
    return;
  }
  member.tick_at = kNever;
  if (member.core->deadline() > member.clock.local(now_)) {
    schedule(event.slot);
    return;
  }
  member.ticks_in_place = member.ticked == now_ ? member.ticks_in_place + 1 : 0;
  member.ticked = now_;
  if (member.ticks_in_place > kTicksInPlace) {
    violation("no_spinning", member.name + " asks for a tick at an instant that has passed, again and again");
    return;
  }
  step(event.slot, gossip::Tick{});
}

// Names are resolved to where their hosts are now; a name server may know nothing for once.
void MembershipWorld::resolve(std::uint32_t slot) {
  gossip::SeedsResolved resolved;
  if (!rng_.chance(1, 50)) {
    for (const std::string& seed : members_[slot].seeds) {
      const auto host = slots_by_host_.find(seed);
      if (host != slots_by_host_.end()) resolved.endpoints.push_back({ip_text(network_.address(host->second)), SimNetwork::kPort});
    }
  }
  network_.tell(slot, kResolveTakes, std::move(resolved));
}

// A share of the messages crosses the wire as bytes and must come back with the same meaning.
void MembershipWorld::through_codec(gossip::Send& send) {
  const std::string header = wire::encode_header(send.header), body = wire::encode_gossip(send.body);
  ++figures_.encoded;
  figures_.encoded_bytes += header.size() + body.size();
  const std::string kind = text_of(send.body);
  const std::size_t most = wire::lane_of(send.body) == wire::Lane::gossip ? wire::kGossipMessageBytes : wire::kBulkMessageBytes;
  if (body.size() > most || header.size() > wire::kHeaderBytes) {
    violation("message_fits", kind + " of " + std::to_string(body.size()) + " bytes, " + std::to_string(most) + " are read");
    return;
  }
  if (send.header.type != send.body.index() + 1)
    violation("header_names_body", kind + " is announced as type " + std::to_string(send.header.type));
  auto decoded = wire::decode_gossip(send.header.type, body);
  if (!decoded) {
    violation("encoded_equal", kind + " could not be read back: " + decoded.error().text());
  } else if (wire::encode_gossip(*decoded) != body) {
    violation("encoded_equal", kind + " is written to other bytes after it was read");
  } else {
    send.body = std::move(*decoded);
  }
}

// As wire/peer.h decides it; a share of the messages asks wire itself, which must say the same.
std::optional<wire::Drop> MembershipWorld::refused(std::uint32_t slot, const Message& message) {
  const SimMember& member = members_[slot];
  const MemberId& cluster = member.core->cluster_id();
  const bool join = message.body.index() == 0, answer = message.body.index() == 1;
  std::optional<wire::Drop> drop;
  if (options_.broken_rule != "other-cluster-dropped") {
    if (cluster.none() ? !answer || message.header.cluster.none()
                       : message.header.cluster != cluster && !(join && message.header.cluster.none()))
      drop = wire::Drop::other_cluster;
  }
  if (!drop && message.header.sender == member.disk.id) drop = wire::Drop::self;
  if (!drop && message.join_link && !join && !answer) drop = wire::Drop::join_link;
  if (rng_.chance(1, encode_one_in_) && options_.broken_rule.empty()) {
    const wire::LinkAuth auth{true, message.join_link, message.header.sender};
    const auto checked = wire::check_header(wire::encode_header(message.header), 0, member.disk.id, cluster, auth);
    if (checked.ok == drop.has_value() || (drop && checked.drop != *drop))
      violation("header_checked_alike", std::string("wire says ") + (checked.ok ? "ok" : to_string(checked.drop)) + ", the simulator " +
                                            (drop ? to_string(*drop) : "ok"));
  }
  return drop;
}

void MembershipWorld::received(std::uint32_t slot, Message&& message) {
  const std::string from = ip_text(network_.address(message.from));
  if (const auto drop = refused(slot, message)) {
    step(slot, gossip::Dropped{*drop, from});
    return;
  }
  step(slot, gossip::Received{message.header, std::move(message.body), message.reply, from});
}

}  // namespace dtrain::sim::membership
