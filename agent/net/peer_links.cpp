#include "agent/net/peer_links.h"

#include <sodium.h>

#include <algorithm>
#include <set>
#include <utility>

#include "agent/net/dealers.h"
#include "agent/net/descriptors.h"
#include "agent/net/gate.h"
#include "agent/net/gone_checks.h"
#include "agent/net/ip_address.h"
#include "agent/net/key_ring.h"
#include "agent/net/peer_socket.h"
#include "agent/net/poller.h"
#include "agent/net/router.h"
#include "agent/net/zap.h"
#include "common/node/proposals.h"

namespace dtrain::net {
namespace {

static_assert(2 * node::kForwards <= kPeerHighWater, "beside the commands there is room for what else goes to the leader");

class ZmqPeerLinks final : public PeerLinks {
 public:
  ZmqPeerLinks(PeerLinksOptions options, Log& log, ZmqContext context, Poller poller)
      : log_(log),
        context_(std::move(context)),
        poller_(std::move(poller)),
        keys_(std::move(options.keys), options.self),
        gate_(options.self, log),
        listen_(options.listen),
        source_ip_(is_any(listen_.ip) ? "" : listen_.ip),
        gone_(poller_, source_ip_),
        dealers_(DealerWorld{context_, poller_, keys_, gate_}) {}

  Status start();

  int fd() const override { return poller_.fd(); }
  Instant deadline() const override;
  void dispatch(Instant now, const Sink& sink) override;
  void set_cluster(const MemberId& cluster) override { gate_.set_cluster(cluster); }
  void know(const wire::Identity& member) override;
  void send(const gossip::Send& message) override;
  void send(const node::SendLog& message) override;
  void send(const node::RelayPeer& to, const wire::RelayMessage& message) override;
  void send(const wire::Endpoint& to, const node::SendFormation& message) override;
  void keep(const gossip::KeepLinks& links) override { dealers_.keep(links.peers); }
  void check_gone(const gossip::CheckGone& check) override;
  Status rekey(ClusterKeys keys) override;
  LinkCounters counters() const override;

 private:
  bool serve(Instant now, const PollTag& tag);
  bool plain_would_leave_host(const wire::Endpoint& to);
  void reply(const gossip::Send& message, std::string header, std::string body);

  Log& log_;
  ZmqContext context_;
  Poller poller_;
  KeyRing keys_;
  Gate gate_;
  const wire::Endpoint listen_;
  const std::string source_ip_;
  std::optional<Zap> zap_;  // opened before the routers, so that nobody gets in unchecked
  std::unique_ptr<Router> gossip_, bulk_;
  GoneChecks gone_;
  Dealers dealers_;
  std::set<PollTag> unfinished_;        // there is more to do for these; their descriptors may stay silent
  std::vector<gossip::Input> results_;  // results of calls between two dispatches
  Instant now_{};
  std::uint64_t unsent_ = 0;
};

Status ZmqPeerLinks::start() {
  auto zap = Zap::open(context_);
  if (!zap) return fail(zap.error());
  zap_.emplace(std::move(*zap));
  if (auto added = poller_.add(zap_->fd(), /*EPOLLIN*/ 1, {PollTag::Kind::zap, 0}); !added) return added;
  auto gossip = Router::open(context_, poller_, listen_, wire::Lane::gossip, keys_);
  if (!gossip) return fail(gossip.error());
  gossip_ = std::move(*gossip);
  auto bulk = Router::open(context_, poller_, listen_, wire::Lane::bulk, keys_);
  if (!bulk) return fail(bulk.error());
  bulk_ = std::move(*bulk);
  // A descriptor signals only after its socket was looked at once.
  for (const auto kind : {PollTag::Kind::router, PollTag::Kind::router_monitor})
    for (const wire::Lane lane : {wire::Lane::gossip, wire::Lane::bulk}) unfinished_.insert({kind, static_cast<std::uint64_t>(lane)});
  unfinished_.insert({PollTag::Kind::zap, 0});
  return {};
}

Instant ZmqPeerLinks::deadline() const {
  if (!unfinished_.empty() || !results_.empty() || gate_.any_others() || dealers_.touched()) return Instant{};
  return std::min({zap_->deadline(), gone_.deadline(), dealers_.deadline(), gossip_->deadline(), bulk_->deadline()});
}

bool ZmqPeerLinks::serve(Instant now, const PollTag& tag) {
  Router& router = tag.serial == static_cast<std::uint64_t>(wire::Lane::gossip) ? *gossip_ : *bulk_;
  switch (tag.kind) {
    case PollTag::Kind::zap: return zap_->serve(now, keys_, gate_.quiet());
    case PollTag::Kind::router: return router.receive(now, gate_, results_);
    case PollTag::Kind::router_monitor: return router.watch(now, gate_.quiet());
    case PollTag::Kind::dealer: return dealers_.examine(now, tag.serial, results_);
    case PollTag::Kind::dealer_monitor: dealers_.watch(now, tag.serial); return false;
    case PollTag::Kind::gone_check: gone_.examine(tag.serial, results_); return false;
    case PollTag::Kind::pipe:  // used by doors and their clients only
    case PollTag::Kind::stop: return false;
  }
  return false;
}

void ZmqPeerLinks::dispatch(Instant now, const Sink& sink) {
  now_ = now;
  std::set<PollTag> todo = std::exchange(unfinished_, {});
  for (const PollTag& tag : poller_.ready()) todo.insert(tag);
  for (const std::uint64_t serial : dealers_.take_touched()) todo.insert({PollTag::Kind::dealer, serial});
  if (zap_->deadline() <= now) todo.insert({PollTag::Kind::zap, 0});
  for (const PollTag& tag : todo)
    if (serve(now, tag)) unfinished_.insert(tag);
  for (const gossip::Input& input : results_)
    if (const auto* received = std::get_if<gossip::Received>(&input)) dealers_.heard(received->header.sender);
  gossip_->service(now, keys_);
  bulk_->service(now, keys_);
  gone_.service(now, gate_.quiet(), results_);
  if (dealers_.deadline() <= now || !todo.empty()) dealers_.service(now);
  const auto trouble = dealers_.take_trouble();
  if (trouble && trouble->code != ErrorCode::limit)
    gate_.quiet().warn(now, "net.link-not-opened", trouble->message, listen_.text(),
                       "it is tried again; if this goes on, restart the agent");
  else if (trouble)
    gate_.quiet().warn(now, "net.descriptors-exhausted", "too many open files", listen_.text(),
                       "idle links are closed and others opened later: raise LimitNOFILE of the agent");
  // Only now, because the sink may send, open and close.
  for (gossip::Input& input : std::exchange(results_, {})) sink(node::Gossiped{std::move(input)});
  for (node::Event& received : gate_.take_others()) sink(std::move(received));
}

void ZmqPeerLinks::know(const wire::Identity& member) {
  if (!keys_.know(member)) return;
  zap_->retry(keys_);
  if (const auto pair = keys_.pair_of_print(member.key_print)) dealers_.use_pair(member.id, *pair);
}

bool ZmqPeerLinks::plain_would_leave_host(const wire::Endpoint& to) {
  if (!keys_.plain() || is_loopback(to.ip)) return false;
  gate_.quiet().warn(now_, "net.no-key", "plain links stay on this host", to.text(),
                     "make a key with `dtrainctl keygen FILE`, copy it to all hosts, give it with --key-file");
  return true;
}

void ZmqPeerLinks::reply(const gossip::Send& message, std::string header, std::string body) {
  const wire::Lane lane = Router::is_path(message.reply, wire::Lane::gossip) ? wire::Lane::gossip : wire::Lane::bulk;
  Router& router = lane == wire::Lane::gossip ? *gossip_ : *bulk_;
  // The queue is full because the other side does not read. It will ask again, or become suspected itself.
  if (!router.reply(message.reply, header, body)) ++unsent_;
  if (router.readable()) unfinished_.insert({PollTag::Kind::router, static_cast<std::uint64_t>(lane)});
}

void ZmqPeerLinks::send(const gossip::Send& message) {
  wire::PeerHeader head = message.header;
  head.type = static_cast<std::uint16_t>(message.body.index() + 1);
  std::string header = wire::encode_header(head);
  std::string body = wire::encode_gossip(message.body);
  const wire::Lane lane = wire::lane_of(message.body);
  const std::size_t limit = lane == wire::Lane::gossip ? wire::kGossipMessageBytes : wire::kBulkMessageBytes;
  if (body.size() > limit) {
    // The other side would close the connection because of it.
    log_.write(LogLevel::error, "net.message-too-large",
               {{"to", message.to.text()},
                {"type", std::to_string(head.type)},
                {"bytes", std::to_string(body.size())},
                {"next", "this is a defect of dtrain: report it with this line"}});
    ++unsent_;
    return;
  }
  if (message.reply != 0) return reply(message, std::move(header), std::move(body));
  const DealerTarget target{message.to, lane, message.member.none(), message.anew};
  if (plain_would_leave_host(message.to) || !dealers_.send(target, message.member, std::move(header), std::move(body))) {
    ++unsent_;
    results_.push_back(gossip::SendFailed{message.to});
  }
}

void ZmqPeerLinks::send(const node::SendLog& message) {
  wire::PeerHeader head = message.header;
  head.type = wire::type_of(message.message);
  std::string body = wire::encode_log(message.message);
  const DealerTarget target{message.to, wire::lane_of(message.message, body.size()), false};
  if (plain_would_leave_host(message.to) || !dealers_.send(target, message.member, wire::encode_header(head), std::move(body))) ++unsent_;
}

void ZmqPeerLinks::send(const node::RelayPeer& to, const wire::RelayMessage& message) {
  wire::PeerHeader head = to.header;
  head.type = wire::type_of(message);
  const DealerTarget target{to.to, wire::Lane::bulk, false};
  if (plain_would_leave_host(to.to) || !dealers_.send(target, to.member, wire::encode_header(head), wire::encode_relay(message))) ++unsent_;
}

// Like a Join, and on the same connection: the node key there is not known before the cluster is formed.
void ZmqPeerLinks::send(const wire::Endpoint& to, const node::SendFormation& message) {
  wire::PeerHeader head = message.header;
  head.type = wire::kFormationType;
  const DealerTarget target{to, wire::Lane::bulk, true};
  if (plain_would_leave_host(to) || !dealers_.send(target, {}, wire::encode_header(head), wire::encode_formation(message.report)))
    ++unsent_;
}

void ZmqPeerLinks::check_gone(const gossip::CheckGone& check) { gone_.ask(check.to); }

Status ZmqPeerLinks::rekey(ClusterKeys keys) {
  if (keys_.plain() || keys.pairs.empty())
    return fail(ErrorCode::refused, "could not take over the new cluster key: this agent runs without one",
                "restart it with --key-file; its tasks go on");
  std::vector<std::string> before;
  for (std::size_t i = 0; i < keys_.pairs(); ++i) before.push_back(keys_.print(i));
  keys_.replace(std::move(keys));
  dealers_.renumber_pairs(before);
  log_.write(LogLevel::info, "net.keys-replaced", {{"serves", keys_.print(0)}, {"pairs", std::to_string(keys_.pairs())}});
  // Inbound connections end with the listening key. They also end when a pair was removed, which may have been
  // stolen: peers with another pair connect again.
  const bool all_stay = std::all_of(before.begin(), before.end(), [&](const auto& print) { return keys_.pair_of_print(print); });
  if (all_stay && keys_.print(0) == before.front()) return {};
  // The new keys are in force whether or not there is a descriptor to listen anew at once.
  for (Router* router : {gossip_.get(), bulk_.get()})
    if (auto served = router->serve(keys_); !served)
      log_.write(LogLevel::error, "net.not-listening",
                 {{"error", served.error().text()}, {"next", "it is tried again every second; free descriptors"}});
  return {};
}

LinkCounters ZmqPeerLinks::counters() const {
  LinkCounters counters;
  counters.received = gate_.passed();
  counters.dropped = gate_.dropped();
  counters.unsent = unsent_;
  counters.keys_refused = zap_->refused();
  counters.handshakes_failed = gossip_->handshakes_failed() + bulk_->handshakes_failed();
  counters.handshakes_incomplete = gossip_->handshakes_incomplete() + bulk_->handshakes_incomplete();
  counters.turned_away = gossip_->turned_away() + bulk_->turned_away();
  counters.links = dealers_.size();
  return counters;
}

}  // namespace

Result<std::unique_ptr<PeerLinks>> PeerLinks::open(PeerLinksOptions options, Log& log) {
  if (!options.keys && !is_loopback(options.listen.ip))
    return fail(ErrorCode::refused, "could not listen on " + options.listen.text() + ": no cluster key",
                "make one with `dtrainctl keygen FILE`, copy it to all hosts, give it with --key-file");
  if (options.keys && options.keys->pairs.empty())
    return fail(ErrorCode::invalid, "could not listen on " + options.listen.text() + ": the key file holds no key");
  if (options.listen.port == 0 || options.listen.port == 65'535)
    return fail(ErrorCode::invalid, "could not listen on " + options.listen.text() + ": the bulk port is one above",
                "choose a port from 1 to 65534 with --listen");
  if (::sodium_init() < 0) return fail(ErrorCode::internal, "could not set up cryptography");
  if (const std::size_t files = raise_descriptor_limit(); files < kDescriptorsNeeded)
    log.write(
        LogLevel::warn, "net.few-descriptors",
        {{"limit", std::to_string(files)}, {"wanted", std::to_string(kDescriptorsNeeded)}, {"next", "raise LimitNOFILE of the agent"}});
  auto context = ZmqContext::open(kIoThreads, kMaxSockets);
  if (!context) return fail(context.error());
  auto poller = Poller::open();
  if (!poller) return fail(poller.error());
  auto links = std::make_unique<ZmqPeerLinks>(std::move(options), log, std::move(*context), std::move(*poller));
  if (auto started = links->start(); !started) return fail(started.error());
  return links;
}

}  // namespace dtrain::net
