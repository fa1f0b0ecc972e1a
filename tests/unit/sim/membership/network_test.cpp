// The simulated network behaves as sockets and kernels do.
#include <gtest/gtest.h>

#include "tests/sim/membership/sim_network.h"

namespace dtrain::sim::membership {
namespace {

struct Seen {
  Instant at{};
  std::uint32_t slot = 0;
  std::uint64_t correlation = 0;  // of a message
  std::optional<gossip::Input> input;
  gossip::ReplyPath reply = 0;
};

struct Net : testing::Test, NetworkUser {
  EventQueue queue;
  SimNetwork network{queue, Rng(3), *this};
  std::vector<Seen> seen;
  Instant now{};

  void SetUp() override {
    for (std::uint32_t address = 1; address <= 3; ++address) network.start_process(network.add_host(address));
  }
  void received(std::uint32_t slot, Message&& message) override {
    seen.push_back({now, slot, message.header.correlation, std::nullopt, message.reply});
  }
  void happened(std::uint32_t slot, const gossip::Input& input) override { seen.push_back({now, slot, 0, input, 0}); }
  void run_for(Duration length) {
    const Instant end = now + length;
    while (queue.next() <= end) {
      const Event event = queue.pop();
      now = event.at;
      network.advance(now);
      network.handle(event);
    }
    now = end;
    network.advance(now);
  }
  static wire::Endpoint at(std::uint32_t address) { return {ip_text(address), SimNetwork::kPort}; }
  void send(std::uint32_t from, std::uint32_t to_address, std::uint64_t correlation, gossip::ReplyPath reply = 0, bool anew = false) {
    gossip::Send message;
    message.anew = anew;
    message.reply = reply;
    message.to = at(to_address);
    message.member = {1, to_address};
    message.header.correlation = correlation;
    message.body = wire::Gossip{};
    network.send(from, std::move(message));
  }
  std::vector<std::uint64_t> messages(std::uint32_t slot) const {
    std::vector<std::uint64_t> out;
    for (const Seen& one : seen)
      if (one.slot == slot && !one.input) out.push_back(one.correlation);
    return out;
  }
  template <class T>
  std::size_t inputs(std::uint32_t slot) const {
    std::size_t count = 0;
    for (const Seen& one : seen) count += one.slot == slot && one.input && std::holds_alternative<T>(*one.input);
    return count;
  }
  gossip::GoneChecked::Answer check(std::uint32_t from, std::uint32_t address) {
    seen.clear();
    network.check_gone(from, at(address));
    run_for(3s);
    for (const Seen& one : seen)
      if (one.input)
        if (const auto* checked = std::get_if<gossip::GoneChecked>(&*one.input)) return checked->answer;
    ADD_FAILURE() << "no answer";
    return {};
  }
};

TEST_F(Net, AddressesAreReadAsWritten) {
  for (const std::uint32_t address : {1u, 255u, 256u, 70'000u, 0xffffffu}) EXPECT_EQ(address_of(at(address)), address);
  EXPECT_EQ(address_of({"192.168.0.1", 7400}), 0u);
  EXPECT_EQ(address_of({"10.0.0.1", 7402}), 0u);
  EXPECT_EQ(address_of({"gpu01", 7400}), 0u);
}

TEST_F(Net, MessagesWaitForTheLinkAndComeInOrder) {
  for (std::uint64_t i = 1; i <= 50; ++i) send(0, 2, i);
  EXPECT_TRUE(messages(1).empty());
  run_for(1s);
  ASSERT_EQ(messages(1).size(), 50u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end(), [](const Seen& a, const Seen& b) { return a.correlation < b.correlation; }));
  EXPECT_EQ(inputs<gossip::LinkUp>(0), 1u);
  EXPECT_EQ(inputs<gossip::LinkUp>(1), 0u);
}

TEST_F(Net, AnAnswerTakesTheSameConnection) {
  send(0, 2, 7);
  run_for(1s);
  gossip::ReplyPath path = 0;
  for (const Seen& one : seen)
    if (one.reply != 0) path = one.reply;
  ASSERT_NE(path, 0u);
  send(1, 0, 8, path);
  run_for(1s);
  EXPECT_EQ(messages(0), std::vector<std::uint64_t>{8});
  network.end_process(0);
  network.start_process(0);
  send(1, 0, 9, path);  // the connection ended with the process
  run_for(3s);
  EXPECT_EQ(messages(0), std::vector<std::uint64_t>{8});
}

TEST_F(Net, LossDelaysAndKeepsTheOrder) {
  send(0, 2, 0);
  run_for(1s);
  seen.clear();
  network.set_loss(300);
  for (std::uint64_t i = 1; i <= 60; ++i) send(0, 2, i);
  const Instant begin = now;
  run_for(20s);
  const auto got = messages(1);
  ASSERT_GT(got.size(), 20u);
  EXPECT_TRUE(std::is_sorted(got.begin(), got.end()));
  EXPECT_GT(seen.back().at - begin, 190ms);
}

TEST_F(Net, AKilledProcessResetsAndRefuses) {
  send(0, 2, 1);
  run_for(1s);
  EXPECT_EQ(check(0, 2), gossip::GoneChecked::Answer::accepts);
  network.end_process(1);
  run_for(50ms);
  EXPECT_EQ(inputs<gossip::LinkLost>(0), 1u);
  EXPECT_EQ(check(0, 2), gossip::GoneChecked::Answer::refused);
}

TEST_F(Net, AVanishedHostSaysNothing) {
  send(0, 2, 1);
  run_for(1s);
  network.set_host_up(1, false);
  network.end_process(1);
  run_for(3s);
  EXPECT_EQ(inputs<gossip::LinkLost>(0), 0u);
  EXPECT_EQ(check(0, 2), gossip::GoneChecked::Answer::silent);
  send(0, 2, 2);  // what is sent now gets no answer, and TCP gives up
  run_for(15s);
  EXPECT_EQ(inputs<gossip::LinkLost>(0), 1u);
}

TEST_F(Net, AStoppedProcessAcceptsAndReadsLater) {
  send(0, 2, 1);
  run_for(1s);
  network.pause(1);
  send(0, 2, 2);
  send(2, 2, 3);  // a new link: no handshake
  run_for(2s);
  EXPECT_EQ(messages(1), std::vector<std::uint64_t>{1});
  EXPECT_EQ(inputs<gossip::LinkUp>(2), 0u);
  EXPECT_EQ(check(0, 2), gossip::GoneChecked::Answer::accepts);
  EXPECT_EQ(inputs<gossip::LinkLost>(0), 0u);
  network.resume(1);
  EXPECT_EQ(messages(1), std::vector<std::uint64_t>{2});
  run_for(6s);
  EXPECT_EQ(inputs<gossip::LinkUp>(2), 1u);
}

TEST_F(Net, AShortCutDelaysALongOneBreaks) {
  send(0, 2, 1);
  run_for(1s);
  network.cuts().part(0, 2, true);
  send(0, 2, 2);
  run_for(1s);
  EXPECT_EQ(messages(1), std::vector<std::uint64_t>{1});
  network.cuts().part(0, 2, false);
  run_for(2s);
  EXPECT_EQ(messages(1), (std::vector<std::uint64_t>{1, 2}));
  network.cuts().part(0, 2, true);
  send(0, 2, 3);
  run_for(15s);
  EXPECT_EQ(inputs<gossip::LinkLost>(0), 1u);
}

// What was sent into the cut is tried again at 0.2, 0.6, 1.4, 3.0 s; at 5.2 s the connection is given up, also when the cut is over.
TEST_F(Net, ACutOfFourSecondsBreaksWhatIsSentIntoIt) {
  send(0, 2, 1);
  run_for(1s);
  network.cuts().part(0, 2, true);
  send(0, 2, 2);
  run_for(4s);
  network.cuts().part(0, 2, false);
  send(0, 2, 3);
  run_for(1100ms);
  EXPECT_EQ(messages(1), std::vector<std::uint64_t>{1});
  EXPECT_EQ(inputs<gossip::LinkLost>(0), 0u);
  run_for(150ms);
  EXPECT_EQ(inputs<gossip::LinkLost>(0), 1u);
  run_for(1s);
  EXPECT_EQ(inputs<gossip::LinkUp>(0), 2u);
  send(0, 2, 4);
  run_for(1s);
  EXPECT_EQ(messages(1), (std::vector<std::uint64_t>{1, 4}));
}

TEST_F(Net, AConnectionMadeAnewDoesNotWaitForTheOther) {
  send(0, 2, 1);
  run_for(1s);
  network.cuts().part(0, 2, true);
  send(0, 2, 2);
  run_for(4s);
  network.cuts().part(0, 2, false);
  send(0, 2, 3, 0, true);
  run_for(100ms);
  EXPECT_EQ(messages(1), (std::vector<std::uint64_t>{1, 3}));
  gossip::ReplyPath path = seen.back().reply;
  send(1, 0, 4, path);
  run_for(100ms);
  EXPECT_EQ(messages(0), std::vector<std::uint64_t>{4});
  EXPECT_EQ(inputs<gossip::LinkUp>(0), 1u);  // it says nothing of the link that is kept
  send(0, 2, 5, 0, true);                    // each on its own
  run_for(100ms);
  EXPECT_EQ(messages(1), (std::vector<std::uint64_t>{1, 3, 5}));
  EXPECT_NE(seen.back().reply, path);
}

TEST_F(Net, AOneWayCutLetsTheFirstThroughAndThenBreaks) {
  send(0, 2, 1);
  run_for(1s);
  network.cuts().deaf(0, true);  // the answers to what it sends are lost
  send(0, 2, 2);
  run_for(1s);
  EXPECT_EQ(messages(1), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(inputs<gossip::LinkLost>(0), 0u);
  run_for(6s);
  EXPECT_EQ(inputs<gossip::LinkLost>(0), 1u);
}

TEST_F(Net, AFullQueueIsASendFailure) {
  network.set_host_up(1, false);
  for (std::uint64_t i = 0; i < 100; ++i) send(0, 2, i);
  run_for(0s);
  EXPECT_EQ(inputs<gossip::SendFailed>(0), 36u);
}

TEST_F(Net, LinksNobodyKeepsAreClosedWhenTheyAreMany) {
  for (std::uint32_t address = 4; address <= 203; ++address) network.start_process(network.add_host(address));
  gossip::KeepLinks keep;
  for (std::uint32_t address = 4; address < 12; ++address) keep.peers.push_back({{1, address}, at(address), ""});
  network.keep(0, keep);
  for (std::uint32_t address = 12; address <= 203; ++address) {
    send(0, address, address);
    run_for(100ms);
  }
  EXPECT_LE(network.links(0), 64u + 8u);
  EXPECT_GE(network.links(0), 64u);
  EXPECT_EQ(inputs<gossip::LinkLost>(0), 0u);
}

TEST(EventQueue, IsOrderedByTimeThenByAsking) {
  EventQueue queue;
  Rng rng(5);
  for (std::uint32_t i = 0; i < 2000; ++i) queue.push(Instant{} + Duration(static_cast<std::int64_t>(rng.below(300))), What::tick, i);
  Instant last{};
  std::uint32_t slot = 0;
  for (int i = 0; i < 2000; ++i) {
    const Event event = queue.pop();
    EXPECT_GE(event.at, last);
    if (event.at == last && i > 0) {
      EXPECT_GT(event.slot, slot);
    }
    last = event.at;
    slot = event.slot;
  }
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace dtrain::sim::membership
