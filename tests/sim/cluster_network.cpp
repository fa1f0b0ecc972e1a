#include "tests/sim/cluster_network.h"

#include <algorithm>

#include "common/base/check.h"

namespace dtrain::sim {
namespace {

constexpr Duration kResolveTakes = 5ms;

}  // namespace

ClusterNetwork::ClusterNetwork(Timeline& timeline, Rng rng, Deliver deliver, Complain complain)
    : timeline_(timeline),
      deliver_(std::move(deliver)),
      complain_(std::move(complain)),
      network_(queue_, Rng(rng.next()), *this),
      links_(Rng(rng.next())) {}

wire::Endpoint ClusterNetwork::endpoint(std::size_t host) { return {membership::ip_text(slot(host) + 1), membership::SimNetwork::kPort}; }

std::size_t ClusterNetwork::host_at(const wire::Endpoint& endpoint) {
  const std::uint32_t address = membership::address_of(endpoint);
  return address == 0 ? kMostHosts : address - 1;
}

void ClusterNetwork::add_host() {
  CHECK(hosts_ < kMostHosts);
  network_.add_host(static_cast<std::uint32_t>(++hosts_));
  muted_.push_back(0);
  network_.cuts().resize(hosts_);
}

void ClusterNetwork::agent_starts(std::size_t host) {
  network_.advance(timeline_.now());
  network_.set_host_up(slot(host), true);
  network_.start_process(slot(host));
}

void ClusterNetwork::agent_ends(std::size_t host, bool host_too) {
  network_.advance(timeline_.now());
  if (host_too) network_.set_host_up(slot(host), false);
  if (network_.listening(slot(host))) network_.end_process(slot(host));
}

void ClusterNetwork::run_next() {
  const membership::Event event = queue_.pop();
  timeline_.advance_to(std::max(event.at, timeline_.now()));
  network_.advance(timeline_.now());
  network_.handle(event);
}

void ClusterNetwork::perform(std::size_t host, const gossip::Send& send) {
  network_.advance(timeline_.now());
  gossip::Send copy = send;
  if (crosses_as_bytes()) {
    auto read = wire::decode_gossip(send.header.type, wire::encode_gossip(send.body));
    if (!read) complain_("encoded_equal", "gossip could not be read back: " + read.error().text());
    else copy.body = std::move(*read);
  }
  network_.send(slot(host), std::move(copy));
}

void ClusterNetwork::perform(std::size_t host, const gossip::ResolveSeeds&) {
  network_.advance(timeline_.now());
  gossip::SeedsResolved seeds;
  for (std::size_t seed = 0; seed < seeds_; ++seed) seeds.endpoints.push_back(endpoint(seed));
  network_.tell(slot(host), kResolveTakes, seeds);
}

void ClusterNetwork::perform(std::size_t host, const node::SendLog& send) {
  const std::size_t to = host_at(send.to);
  if (to >= hosts_) return;
  const council::Links::Fate travels = fate(host, to);
  if (travels.first) deliver_log(to, send, *travels.first);
  if (travels.second) deliver_log(to, send, *travels.second);
}

council::Links::Fate ClusterNetwork::fate(std::size_t from, std::size_t to) {
  return blocked(from, to) ? council::Links::Fate{} : links_.fate(0, 0);  // links_ has no cuts of its own
}

void ClusterNetwork::perform(std::size_t host, std::size_t founder, const node::SendFormation& send) {
  node::FormationReceived event{send.header, send.report};
  if (crosses_as_bytes()) {
    auto read = wire::decode_formation(wire::encode_formation(send.report));
    if (!read) complain_("encoded_equal", "a founder's report could not be read back: " + read.error().text());
    else event.report = std::move(*read);
  }
  const council::Links::Fate times = fate(host, founder);
  for (const auto& travels : {times.first, times.second})
    if (travels) timeline_.after(*travels, [this, founder, event] { deliver_(founder, event); });
}

void ClusterNetwork::deliver_log(std::size_t to, const node::SendLog& send, Duration after) {
  node::LogReceived event{send.header, send.message};
  if (crosses_as_bytes()) {
    auto read = wire::decode_log(wire::type_of(send.message), send.header.sender, wire::encode_log(send.message));
    if (!read) complain_("encoded_equal", "a message of the log could not be read back: " + read.error().text());
    else event.message = std::move(*read);
  }
  timeline_.after(after, [this, to, event = std::move(event)] { deliver_(to, event); });
}

void ClusterNetwork::received(std::uint32_t slot, membership::Message&& message) {
  deliver_(slot, node::Gossiped{gossip::Received{message.header, std::move(message.body), message.reply,
                                                 membership::ip_text(network_.address(message.from))}});
}

void ClusterNetwork::happened(std::uint32_t slot, const gossip::Input& input) { deliver_(slot, node::Gossiped{input}); }

void ClusterNetwork::mute(std::size_t host, bool on) {
  muted_[host] += on ? 1 : -1;
  network_.cuts().mute(slot(host), muted_[host] > 0);
}

void ClusterNetwork::isolate(std::size_t host, bool on) { part(HostSet().set(host), on); }

void ClusterNetwork::part(const HostSet& group, bool on) {
  const auto begun = std::ranges::find(parts_, on ? HostSet() : group);
  if (begun == parts_.end()) return;  // too many partitions at once
  const auto partition = static_cast<unsigned>(begun - parts_.begin());
  *begun = on ? group : HostSet();
  for (std::size_t host = 0; host < hosts_; ++host)
    if (group.test(host)) network_.cuts().part(slot(host), partition, on);
}

void ClusterNetwork::set_loss(std::uint32_t per_mille) {
  network_.set_loss(per_mille);
  links_.set_loss(per_mille);
}

void ClusterNetwork::set_duplicates(std::uint32_t per_mille) {
  network_.set_duplicates(per_mille);
  links_.set_duplicates(per_mille);
}

void ClusterNetwork::heal() {
  set_loss(0);
  set_duplicates(0);
  links_.heal();
}

}  // namespace dtrain::sim
