// Several PeerLinks in one process, each on a loopback address of its own, turned by hand until something has
// happened.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sodium.h>
#include <time.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "agent/base/boot_clock.h"
#include "agent/net/peer_links.h"

namespace dtrain::net::testing {

constexpr Duration kPatience = 20s;

inline Instant now() { return boot_now(); }

inline KeyPair make_pair() {
  KeyPair pair;
  EXPECT_EQ(::crypto_box_keypair(pair.public_key.data(), pair.secret_key.data()), 0);
  return pair;
}

struct Lines : Log {
  using Log::write;
  void write(LogLevel, std::string_view event, std::span<const LogField> fields) override {
    std::string line(event);
    for (const LogField& field : fields) line += " " + std::string(field.key) + "=" + field.value;
    lines.push_back(line);
  }
  bool have(std::string_view part, std::string_view also = "") const {
    for (const std::string& line : lines)
      if (line.find(part) != line.npos && line.find(also) != line.npos) return true;
    return false;
  }
  std::vector<std::string> lines;
};

// Unused below the range that the kernel draws client ports from.
inline wire::Endpoint free_endpoint() {
  static std::uint32_t next = ::randombytes_uniform(8000);
  const std::uint32_t n = next++ % 8000;
  return {"127." + std::to_string(9 + ::getpid() % 90) + "." + std::to_string(n / 250) + "." + std::to_string(n % 250 + 1),
          static_cast<std::uint16_t>(20'000 + 2 * n % 10'000)};
}

struct Agent {
  MemberId id;
  wire::Endpoint at = free_endpoint();
  std::optional<ClusterKeys> keys;
  Lines log;
  std::unique_ptr<PeerLinks> links;
  std::vector<gossip::Received> received;
  std::vector<gossip::Dropped> dropped;
  std::vector<node::LogReceived> log_received;
  std::vector<node::FormationReceived> reports;
  std::vector<node::RelayReceived> relayed;
  std::vector<wire::Endpoint> up, lost, failed;
  std::vector<gossip::GoneChecked> checked;
  std::function<void(const gossip::Received&)> at_message;

  explicit Agent(std::uint64_t number, std::optional<ClusterKeys> with = {}) : id{0xabc, number}, keys(std::move(with)) { open(); }

  void open() {
    auto opened = PeerLinks::open({at, id, keys}, log);
    ASSERT_TRUE(opened) << opened.error().text();
    links = std::move(*opened);
    links->set_cluster(cluster);
  }
  wire::Identity identity() const {
    wire::Identity identity;
    identity.id = id;
    identity.name = "n" + std::to_string(id.low);
    identity.address = at;
    if (keys) identity.key_print = key_print(keys->pairs.front().public_key);
    return identity;
  }
  void take(gossip::Input input) {
    if (auto* message = std::get_if<gossip::Received>(&input)) {
      if (at_message) at_message(*message);
      received.push_back(std::move(*message));
    } else if (auto* drop = std::get_if<gossip::Dropped>(&input)) {
      dropped.push_back(*drop);
    } else if (auto* link = std::get_if<gossip::LinkUp>(&input)) {
      up.push_back(link->to);
    } else if (auto* broken = std::get_if<gossip::LinkLost>(&input)) {
      lost.push_back(broken->to);
    } else if (auto* send = std::get_if<gossip::SendFailed>(&input)) {
      failed.push_back(send->to);
    } else if (auto* check = std::get_if<gossip::GoneChecked>(&input)) {
      checked.push_back(*check);
    }
  }
  // As the daemon's loop does it: only when the descriptor or the deadline says so.
  void turn() {
    pollfd waiting{links->fd(), POLLIN, 0};
    if (::poll(&waiting, 1, 0) > 0 || links->deadline() <= now())
      links->dispatch(now(), [this](node::Event event) {
        if (auto* gossiped = std::get_if<node::Gossiped>(&event)) return take(std::move(gossiped->input));
        if (auto* report = std::get_if<node::FormationReceived>(&event)) return reports.push_back(std::move(*report));
        if (auto* relay = std::get_if<node::RelayReceived>(&event)) return relayed.push_back(std::move(*relay));
        log_received.push_back(std::get<node::LogReceived>(std::move(event)));
      });
  }
  gossip::Send message(const Agent& to, wire::GossipBody body) const {
    gossip::Send send;
    send.to = to.at;
    send.member = to.id;
    send.header.cluster = cluster;
    send.header.sender = id;
    send.body = std::move(body);
    return send;
  }
  void ping(const Agent& to, std::uint64_t sequence = 1) {
    wire::Ping ping;
    ping.sequence = sequence;
    ping.target = to.id;
    links->send(message(to, ping));
  }
  void join(const Agent& to) {
    wire::Join join;
    join.cluster_name = "lab";
    join.self.identity = std::make_shared<wire::Identity>(identity());
    gossip::Send send = message(to, join);
    send.member = {};
    links->send(send);
  }
  void answer(const gossip::Received& question, wire::GossipBody body) {
    gossip::Send send;
    send.reply = question.reply;
    send.header.cluster = cluster;
    send.header.sender = id;
    send.body = std::move(body);
    links->send(send);
  }
  // Answers each ping with a pong on its connection.
  void answer_pings() {
    at_message = [this](const gossip::Received& message) {
      if (const auto* ping = std::get_if<wire::Ping>(&message.body)) {
        wire::Pong pong;
        pong.sequence = ping->sequence;
        pong.target = id;
        answer(message, pong);
      }
    };
  }
  template <class Body>
  std::size_t count() const {
    std::size_t n = 0;
    for (const auto& message : received) n += std::holds_alternative<Body>(message.body);
    return n;
  }
  bool was_dropped(wire::Drop why) const {
    for (const auto& drop : dropped)
      if (drop.why == why) return true;
    return false;
  }

  MemberId cluster{0xc0ffee, 1};
};

// Sleeps until one of the agents has something to do, at most `most`.
inline void turn(const std::vector<Agent*>& agents, Duration most) {
  std::vector<pollfd> waiting;
  for (Agent* agent : agents) {
    if (!agent->links) continue;
    waiting.push_back({agent->links->fd(), POLLIN, 0});
    const Instant deadline = agent->links->deadline();
    if (deadline != kNever) most = std::min(most, std::max(deadline - now(), Duration::zero()));
  }
  ::poll(waiting.data(), waiting.size(), static_cast<int>((most + 999'999ns) / 1ms));
  for (Agent* agent : agents)
    if (agent->links) agent->turn();
}

// Until `done`; false when patience ran out.
inline bool run(const std::vector<Agent*>& agents, const std::function<bool()>& done, Duration patience = kPatience) {
  const Instant end = now() + patience;
  while (!done()) {
    if (now() >= end) return false;
    turn(agents, std::min<Duration>(end - now(), 1s));
  }
  return true;
}

// For things that must not happen: long enough for them to have happened.
inline void run_for(const std::vector<Agent*>& agents, Duration time) {
  run(
      agents, [] { return false; }, time);
}

inline void introduce(const std::vector<Agent*>& agents) {
  for (Agent* a : agents)
    for (Agent* b : agents)
      if (a != b) a->links->know(b->identity());
}

inline ClusterKeys one_key() {
  static const ClusterKeys keys{{make_pair()}};
  return keys;
}

inline bool exchange(Agent& a, Agent& b, std::vector<Agent*> all = {}) {
  if (all.empty()) all = {&a, &b};
  b.answer_pings();
  // Messages are lost where links are made anew: ask again, as Membership does.
  const std::size_t before = a.count<wire::Pong>();
  for (int i = 0; i < 40; ++i) {
    a.ping(b);
    if (run(
            all, [&] { return a.count<wire::Pong>() > before; }, 500ms))
      return true;
  }
  return false;
}

}  // namespace dtrain::net::testing
