#include <gmock/gmock.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <fstream>
#include <thread>

#include "agent/net/peer_links.h"
#include "tests/unit/net/links_world.h"
#include "tests/unit/net/strangers.h"

namespace dtrain::net::testing {
namespace {

const KeyPair& cluster_pair() {
  static const ClusterKeys keys = one_key();
  return keys.pairs.front();
}

bool pong(Agent& a, Agent& b, Duration patience = kPatience) {
  const std::size_t before = a.count<wire::Pong>();
  a.ping(b);
  return run(
      {&a, &b}, [&] { return a.count<wire::Pong>() > before; }, patience);
}

// Sanitizers keep what was freed: there memory says nothing.
#ifdef DTRAIN_SANITIZED
constexpr std::size_t kMemorySlackKib = 1 << 30;
#else
constexpr std::size_t kMemorySlackKib = 16 << 10;
#endif

std::size_t resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::stoul(line.substr(6));
  return 0;
}

Duration cpu_time() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

// An insider: holds the key file, is known, and sends what it likes.
struct Insider {
  MemberId id{0xbad, 1};
  LooseDealer dealer;
  std::string header;
  explicit Insider(Agent& victim) : dealer((introduce_to(victim, id), victim.at), node_key(cluster_pair(), id), cluster_pair().public_key) {
    wire::PeerHeader head;
    head.cluster = victim.cluster;
    head.sender = id;
    head.type = static_cast<std::uint16_t>(wire::GossipBody(wire::Ping{}).index() + 1);
    header = wire::encode_header(head);
  }
  static void introduce_to(Agent& victim, const MemberId& id) {
    wire::Identity identity;
    identity.id = id;
    identity.address.ip = "127.0.0.1";
    victim.links->know(identity);
  }
};

TEST(PeerLinksAttack, WhatIsNoMessageIsDroppedAndCounted) {
  Agent a(1, one_key());
  Insider insider(a);
  const std::string body = wire::encode_gossip(wire::Ping{});
  const std::vector<std::vector<std::string>> wrong = {
      {""},
      {"one frame"},
      {insider.header},
      {insider.header, body, "a third"},
      {insider.header, body, "a third", "a fourth", ""},
      {std::string(200, '\xff'), body},
      {std::string(1000, '\0'), body},
      {insider.header, "\xc1 garbage"},
      {insider.header, std::string(5000, '\x94')},
      {insider.header, std::string("\xdf\xff\xff\xff\xff", 5)},
  };
  for (const auto& frames : wrong) ASSERT_TRUE(insider.dealer.send(frames));
  ASSERT_TRUE(insider.dealer.send({insider.header, body}));
  ASSERT_TRUE(run({&a}, [&] { return a.received.size() == 1; }));
  EXPECT_EQ(a.dropped.size(), wrong.size());
  EXPECT_EQ(a.links->counters().dropped, wrong.size());
  EXPECT_TRUE(a.was_dropped(wire::Drop::malformed));
  EXPECT_TRUE(a.was_dropped(wire::Drop::bad_body));
  // One line a minute for each reason and address, not one for each message.
  EXPECT_LE(a.log.lines.size(), 3u);
}

TEST(PeerLinksAttack, ATooLargeMessageCostsItsSenderTheConnection) {
  Agent a(1, one_key()), b(2, one_key());
  introduce({&a, &b});
  b.answer_pings();
  Insider insider(a);
  ASSERT_TRUE(insider.dealer.send({insider.header, std::string(wire::kGossipMessageBytes + 1, 'x')}));
  ASSERT_TRUE(run(
      {&a, &b}, [&] { return a.links->counters().handshakes_failed + a.links->counters().handshakes_incomplete == 0 && pong(a, b, 5s); }));
  EXPECT_TRUE(a.dropped.empty());
  // It connects again, and may speak where it keeps to the limits.
  ASSERT_TRUE(run({&a}, [&] {
    return insider.dealer.send({insider.header, wire::encode_gossip(wire::Ping{})}) && !a.received.empty() &&
           std::holds_alternative<wire::Ping>(a.received.back().body);
  }));
}

TEST(PeerLinksAttack, AFloodFromOneDoesNotSilenceTheOthers) {
  Agent a(1, one_key()), b(2, one_key());
  introduce({&a, &b});
  b.answer_pings();
  a.answer_pings();
  ASSERT_TRUE(pong(b, a));
  Insider insider(a);
  std::atomic<bool> stop = false;
  std::atomic<std::size_t> sent = 0;
  const std::string body = wire::encode_gossip(wire::Ping{});
  std::thread flood([&] {
    while (!stop) {
      if (insider.dealer.send({insider.header, body})) ++sent;
      else std::this_thread::yield();
    }
  });
  ASSERT_TRUE(run({&a}, [&] { return a.received.size() > 2000; }));
  const std::size_t before_kib = resident_kib();
  for (int i = 0; i < 50; ++i) {
    a.received.clear();
    b.received.clear();
    EXPECT_TRUE(pong(b, a, 5s)) << i;
  }
  EXPECT_LT(resident_kib(), before_kib + kMemorySlackKib);
  stop = true;
  flood.join();
  EXPECT_GT(sent, 2000u);
}

TEST(PeerLinksAttack, AThousandStrangersASecondDelayNoPongAndTakeNoMemory) {
  Agent a(1, one_key()), b(2, one_key());
  introduce({&a, &b});
  b.answer_pings();
  ASSERT_TRUE(pong(a, b));

  std::atomic<bool> stop = false;
  std::atomic<std::size_t> opened = 0;
  std::thread strangers([&] {
    const KeyPair own = make_pair(), other = make_pair();
    LooseDealer wrong_server(b.at, own, other.public_key), unknown_client(b.at, own, cluster_pair().public_key);
    wrong_server.send({"hello"});
    unknown_client.send({"hello"});
    const std::vector<std::string> words = {"",
                                            "GET / HTTP/1.0\r\n\r\n",
                                            greeting("NULL"),
                                            greeting("CURVE"),
                                            greeting("PLAIN"),
                                            greeting("CURVE") + std::string(202, '\7'),
                                            std::string(3000, '\xff')};
    std::deque<RawConnection> open;
    const Instant started = now();
    while (!stop) {
      const std::size_t due = static_cast<std::size_t>((now() - started) / 1ms);
      while (opened < due && !stop) {
        wire::Endpoint to = b.at;
        if (opened % 4 == 3) ++to.port;  // the bulk lane too
        open.emplace_back(to, words[opened++ % words.size()]);
        if (open.size() > 400) open.pop_front();
      }
      for (RawConnection& connection : open) connection.speak();
      std::this_thread::sleep_for(2ms);
    }
  });
  // The first second fills what is allowed to fill; from then on nothing may grow.
  run_for({&a, &b}, 1s);
  std::vector<Duration> times;
  std::size_t kib_before = 0;
  const Instant end = now() + 4s;
  for (std::uint64_t i = 0; now() < end; ++i) {
    const Instant sent = now();
    EXPECT_TRUE(pong(a, b, 5s));
    times.push_back(now() - sent);
    if (i == 40) kib_before = resident_kib();
    run_for({&a, &b}, 10ms);
  }
  const std::size_t kib_after = resident_kib();
  stop = true;
  strangers.join();
  std::sort(times.begin(), times.end());
  ASSERT_GT(times.size(), 41u);
  const Duration worst = times[times.size() * 99 / 100];
  RecordProperty("pong_p99_us", static_cast<int>(worst / 1us));
  RecordProperty("pong_max_us", static_cast<int>(times.back() / 1us));
  RecordProperty("strangers", static_cast<int>(opened.load()));
  RecordProperty("grown_kib", static_cast<int>(kib_after) - static_cast<int>(kib_before));
  std::printf("%zu pongs, p99 %lld us, max %lld us; %zu strangers; %zu -> %zu KiB\n", times.size(), static_cast<long long>(worst / 1us),
              static_cast<long long>(times.back() / 1us), opened.load(), kib_before, kib_after);
  EXPECT_LT(worst, 500ms);
  EXPECT_LT(kib_after, kib_before + kMemorySlackKib);
  const LinkCounters counters = b.links->counters();
  EXPECT_GT(counters.handshakes_failed, 50u);
  EXPECT_GT(counters.keys_refused, 0u);
  EXPECT_TRUE(b.log.have("net.refused reason=unknown-key", "sha256sum"));
  EXPECT_TRUE(b.log.have("net.refused reason=handshake", "sha256sum"));
  EXPECT_LT(b.log.lines.size(), 20u);
  EXPECT_TRUE(b.dropped.empty());
}

TEST(PeerLinksAttack, AFloodThatIsOverLeavesNoMemoryTaken) {
  Agent a(1, one_key());
  run_for({&a}, 50ms);
  const std::size_t before = resident_kib();
  std::size_t peak = 0;
  {
    std::vector<RawConnection> strangers;
    for (int i = 0; i < 1500; ++i) {
      strangers.emplace_back(a.at, greeting("CURVE"));
      if (i % 100 == 99) run_for({&a}, 5ms);
    }
    for (RawConnection& stranger : strangers) stranger.speak();
    run_for({&a}, 300ms);
    peak = resident_kib();
  }
  EXPECT_TRUE(run({&a}, [&] { return a.links->counters().handshakes_incomplete >= 1500; }));
  std::printf("%zu KiB, at its peak %zu, then %zu\n", before, peak, resident_kib());
#ifndef DTRAIN_SANITIZED           // a sanitizer keeps what is freed for a while
  EXPECT_GT(peak, before + 1500);  // it was a flood
  EXPECT_LT(resident_kib(), before + kMemorySlackKib / 2);
#endif
}

// Lowers the limit of open files to what is open now and `spare` more.
struct FewDescriptors {
  rlimit before{};
  explicit FewDescriptors(rlim_t spare) {
    ::getrlimit(RLIMIT_NOFILE, &before);
    // The lowest free number is the count, as long as there are no gaps.
    const int lowest = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(lowest);
    rlimit few = before;
    few.rlim_cur = static_cast<rlim_t>(lowest) + spare;
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before); }
};

TEST(PeerLinksAttack, WithoutDescriptorsItSaysSoDoesNotSpinAndRecovers) {
  Agent a(1, one_key()), b(2, one_key()), c(3, one_key());
  introduce({&a, &b, &c});
  b.answer_pings();
  c.answer_pings();
  a.links->keep({{{b.id, b.at, ""}}});
  ASSERT_TRUE(pong(a, b));
  std::vector<RawConnection> strangers(40);  // their own descriptors are not what runs out
  {
    const FewDescriptors few(12);
    for (RawConnection& stranger : strangers) stranger.connect(b.at);
    ASSERT_TRUE(run({&a, &b, &c}, [&] { return b.log.have("net.descriptors-exhausted", "LimitNOFILE"); }));
    // New links cannot be had now; that is said as a failure, and the old one works.
    a.ping(c);
    EXPECT_TRUE(pong(a, b));
    const Duration cpu = cpu_time();
    run_for({&a, &b, &c}, 1s);
    EXPECT_LT(cpu_time() - cpu, 500ms) << "it spins";
    EXPECT_TRUE(pong(a, b));
  }
  strangers.clear();
  const std::size_t before = a.count<wire::Pong>();
  EXPECT_TRUE(run({&a, &b, &c}, [&] {
    a.ping(c);
    run_for({&a, &b, &c}, 100ms);
    return a.count<wire::Pong>() > before;
  }));
}

}  // namespace
}  // namespace dtrain::net::testing
