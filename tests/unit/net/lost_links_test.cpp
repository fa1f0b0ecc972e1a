// A link is lost, and comes back; whether who does not answer is gone.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <utility>
#include <vector>

#include "agent/net/dealer.h"
#include "agent/net/gone_checks.h"
#include "agent/net/peer_links.h"
#include "agent/net/peer_socket.h"
#include "tests/unit/net/links_world.h"

namespace dtrain::net::testing {
namespace {

// A process that listens and says nothing.
struct Listener {
  const wire::Endpoint at;
  int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  explicit Listener(wire::Endpoint where = free_endpoint()) : at(std::move(where)) {
    const int on = 1;  // connections of who listened there before may linger
    EXPECT_EQ(::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(at.port);
    EXPECT_EQ(::inet_pton(AF_INET, at.ip.c_str(), &address.sin_addr), 1);
    EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(fd, 8), 0);
  }
  ~Listener() { end(); }
  void end() {
    if (fd >= 0) ::close(std::exchange(fd, -1));
  }
  bool connected() const {
    pollfd waiting{fd, POLLIN, 0};
    return ::poll(&waiting, 1, 0) == 1;
  }
};

TEST(PeerLinks, LostWhenTheOtherSideCloses) {
  Agent a(1, one_key()), b(2, one_key());
  introduce({&a, &b});
  ASSERT_TRUE(exchange(a, b));
  b.links.reset();
  const Instant closed = now();
  ASSERT_TRUE(run({&a}, [&] { return a.lost.size() == 1; }));
  EXPECT_LT(now() - closed, 2s);
  EXPECT_EQ(a.lost.front(), b.at);
  a.links->check_gone({b.at});
  ASSERT_TRUE(run({&a}, [&] { return a.checked.size() == 1; }));
  EXPECT_EQ(a.checked.front().answer, gossip::GoneChecked::Answer::refused);
  // And up again by itself.
  b.open();
  b.links->know(a.identity());
  ASSERT_TRUE(run({&a, &b}, [&] { return a.up.size() == 2; }));
  EXPECT_TRUE(exchange(a, b));
}

// ZeroMQ would first come to the end of its handshake with who was there before, or of a pause that grows.
void expect_connected_once_heard(Duration away) {
  Agent a(1, one_key()), b(2, one_key());
  introduce({&a, &b});
  ASSERT_TRUE(exchange(a, b));
  b.links.reset();
  ASSERT_TRUE(run({&a}, [&] { return a.lost.size() == 1; }));
  Listener mute(b.at);
  std::vector<int> connections;
  const auto take = [&] {
    while (mute.connected()) connections.push_back(::accept(mute.fd, nullptr, nullptr));
  };
  run_for({&a}, away);
  take();
  ASSERT_TRUE(run({&a}, [&] { return mute.connected(); }));
  take();
  mute.end();
  b.open();
  b.links->know(a.identity());
  b.ping(a);
  const std::size_t before = a.count<wire::Ping>();
  ASSERT_TRUE(run({&a, &b}, [&] { return a.count<wire::Ping>() > before; }));
  EXPECT_TRUE(run(
      {&a, &b}, [&] { return a.up.size() == 2; }, std::chrono::milliseconds(kHandshakeMs) / 2));
  for (const int connection : connections) ::close(connection);
}

TEST(PeerLinks, WhoIsHeardAgainIsConnectedToAtOnce) { expect_connected_once_heard(0s); }
// The link was made anew meanwhile, in vain.
TEST(PeerLinks, WhoIsHeardAgainAfterLongIsConnectedToAtOnce) { expect_connected_once_heard(kStuckTime + 1s); }

// The link that is kept may wait for what TCP has lost on it.
TEST(PeerLinks, AMessageOfItsOwnConnectionDoesNotTakeTheOther) {
  Agent a(1, one_key()), b(2, one_key());
  introduce({&a, &b});
  a.links->keep({{{b.id, b.at, b.identity().key_print}}});
  ASSERT_TRUE(exchange(a, b));
  ASSERT_TRUE(run({&a, &b}, [&] { return a.links->counters().links == 1; }));
  const gossip::ReplyPath kept = b.received.back().reply;
  const auto ask = [&] {
    const std::size_t pings = b.count<wire::Ping>(), pongs = a.count<wire::Pong>();
    wire::Ping ping;
    ping.target = b.id;
    gossip::Send send = a.message(b, ping);
    send.anew = true;
    a.links->send(send);
    EXPECT_TRUE(run({&a, &b}, [&] { return b.count<wire::Ping>() > pings && a.count<wire::Pong>() > pongs; }));
    return b.received.back().reply;
  };
  const gossip::ReplyPath first = ask(), second = ask();
  EXPECT_NE(first, kept);
  EXPECT_NE(second, kept);
  EXPECT_NE(second, first);
  EXPECT_EQ(a.links->counters().links, 2u) << "one of its own at a time";
  ASSERT_TRUE(exchange(a, b));
  EXPECT_EQ(b.received.back().reply, kept);
  EXPECT_TRUE(run({&a, &b}, [&] { return a.links->counters().links == 1; })) << "closed when its answer would come too late";
  EXPECT_EQ(a.up.size(), 1u);
  EXPECT_TRUE(a.lost.empty());
}

TEST(PeerLinks, AFarewellLeavesBeforeTheEnd) {
  Agent a(1, one_key()), b(2, one_key());
  introduce({&a, &b});
  ASSERT_TRUE(exchange(a, b));
  const std::size_t before = b.received.size();
  for (std::uint64_t i = 0; i < 10; ++i) a.ping(b, 100 + i);
  a.links.reset();
  EXPECT_TRUE(run({&b}, [&] { return b.received.size() == before + 10; }));
}

TEST(PeerLinks, GoneChecksTellRefusedAcceptedAndSilent) {
  Agent a(1, one_key()), b(2, one_key());
  a.links->check_gone({b.at});
  wire::Endpoint nobody = b.at;
  nobody.port += 5;
  a.links->check_gone({nobody});
  // From a loopback address the kernel lets nothing out: a local error, and no evidence.
  a.links->check_gone({{"192.0.2.1", 7400}});
  a.links->check_gone({{"no address", 1}});
  ASSERT_TRUE(run({&a, &b}, [&] { return a.checked.size() == 4; }));
  for (const auto& checked : a.checked) {
    using Answer = gossip::GoneChecked::Answer;
    EXPECT_EQ(checked.answer, checked.to == b.at     ? Answer::accepts
                              : checked.to == nobody ? Answer::refused
                                                     : Answer::silent)
        << checked.to.text();
  }
  EXPECT_TRUE(a.log.have("net.check-failed"));
  run_for({&b}, 100ms);
  EXPECT_TRUE(b.log.lines.empty()) << b.log.lines.front();  // being looked at is nothing to tell
}

TEST(PeerLinks, AGoneCheckOfAProcessThatIsBeingEndedAsksAgain) {
  Agent a(1, one_key());
  Listener dying;
  a.links->check_gone({dying.at});
  ASSERT_TRUE(run({&a}, [&] { return dying.connected(); }));
  run_for({&a}, 20ms);
  dying.end();  // with it the connection that nobody took
  const Instant ended = now();
  ASSERT_TRUE(run({&a}, [&] { return a.checked.size() == 1; }));
  EXPECT_EQ(a.checked.front().answer, gossip::GoneChecked::Answer::refused);
  EXPECT_LT(now() - ended, kGoneCheckTime / 2);
}

TEST(PeerLinks, AGoneCheckOfAStoppedProcessFindsItThere) {
  Agent a(1, one_key());
  Listener stopped;
  a.links->check_gone({stopped.at});
  ASSERT_TRUE(run({&a}, [&] { return a.checked.size() == 1; }));
  EXPECT_EQ(a.checked.front().answer, gossip::GoneChecked::Answer::accepts);
}

TEST(PeerLinks, GoneChecksBeyondTheLimitAreAnsweredToo) {
  Agent a(1, one_key());
  constexpr std::size_t kMany = 1500;
  for (std::size_t i = 0; i < kMany; ++i) a.links->check_gone({{"127.0.0.1", static_cast<std::uint16_t>(40'000 + i)}});
  EXPECT_TRUE(run({&a}, [&] { return a.checked.size() == kMany; }));
}

}  // namespace
}  // namespace dtrain::net::testing
