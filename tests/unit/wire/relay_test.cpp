#include "common/wire/relay.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "common/base/rng.h"
#include "common/wire/gossip.h"
#include "common/wire/peer.h"

namespace dtrain::test {
namespace {

using namespace wire;

const RelayOpen kOpen{(3ull << 32) + 5, "alice", 1000, 77, 262'144};
const RelayData kData{(3ull << 32) + 5, true, 70'000, std::string("a\0b\xff", 4), 1234, 263'378, true};
const RelayClose kClose{(3ull << 32) + 5, true, ErrorCode::limit, "it serves 128 already", "try again in a moment"};

std::uint16_t type(int which) { return static_cast<std::uint16_t>(kFirstRelayType + which); }
void expect_refused(int which, std::string_view bytes) {
  const auto decoded = decode_relay(type(which), bytes);
  ASSERT_FALSE(decoded);
  EXPECT_FALSE(decoded.error().message.empty());
}

// After an intended addition of a field: run once with DTRAIN_UPDATE_GOLDEN=1 and say in the commit why an old peer still
// understands it.
TEST(RelayCodec, GoldenBytes) {
  for (const auto& [name, message] : {std::pair<const char*, RelayMessage>{"open", kOpen}, {"data", kData}, {"close", kClose}}) {
    const std::string encoded = encode_relay(message);
    const auto path = std::filesystem::path(DTRAIN_SOURCE_DIR) / "tests/golden/relay" / (std::string(name) + ".msgpack");
    if (std::getenv("DTRAIN_UPDATE_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << encoded;
    std::ifstream in(path, std::ios::binary);
    const std::string golden{std::istreambuf_iterator<char>(in), {}};
    EXPECT_TRUE(encoded == golden) << name << " is encoded differently from " << path;
    const auto decoded = decode_relay(type_of(message), encoded);
    ASSERT_TRUE(decoded) << decoded.error().text();
    EXPECT_EQ(*decoded, message);
  }
}

TEST(RelayCodec, OnlyItsTypes) {
  for (std::uint16_t t = 0; t < 200; ++t) EXPECT_EQ(is_relay_type(t), t >= 132 && t <= 134);
  EXPECT_FALSE(decode_relay(131, encode_relay(kOpen)));
  EXPECT_FALSE(decode_relay(135, encode_relay(kOpen)));
}

TEST(RelayCodec, LimitsAreChecked) {
  RelayData data = kData;
  data.bytes.assign(kRelaySegmentBytes, 'x');
  const std::string most = encode_relay(data);
  EXPECT_LE(most.size(), kRelayMessageBytes);
  EXPECT_TRUE(decode_relay(type(1), most));
  data.bytes += 'x';
  expect_refused(1, encode_relay(data));
  data.bytes.assign(kRelayMessageBytes, 'x');
  expect_refused(1, encode_relay(data));
  RelayOpen open = kOpen;
  open.user.assign(kRelayUserBytes + 1, 'u');
  expect_refused(0, encode_relay(open));
  RelayClose close = kClose;
  close.cause.assign(2 * kRelayTextBytes, 'c');  // cut by the writer
  const auto cut = decode_relay(type(2), encode_relay(close));
  ASSERT_TRUE(cut);
  EXPECT_EQ(std::get<RelayClose>(*cut).cause.size(), kRelayTextBytes);
}

TEST(RelayCodec, WhatCannotBeIsRefused) {
  for (int which : {0, 1, 2}) expect_refused(which, "\x90");  // no stream
  RelayData data = kData;
  data.offset = ~0ull;
  expect_refused(1, encode_relay(data));
  for (int which : {0, 1, 2})
    for (const std::string& bytes : {std::string(), std::string("\xc0"), std::string("\x80"), std::string("\xdd\xff\xff\xff\xff"),
                                     std::string(100, '\x91'), std::string("\x92\xa1x")})
      expect_refused(which, bytes);
}

TEST(RelayCodec, OlderAndNewerPeersAreUnderstood) {
  const auto shorter = decode_relay(type(1), "\x91\x05");
  ASSERT_TRUE(shorter) << shorter.error().text();
  EXPECT_EQ(std::get<RelayData>(*shorter), (RelayData{5, false, 0, "", 0, 0, false}));
  std::string longer = encode_relay(kData);
  ASSERT_EQ(longer[0], '\x97');
  longer[0] = '\x98';
  const auto decoded = decode_relay(type(1), longer + "\xa1x");
  ASSERT_TRUE(decoded) << decoded.error().text();
  EXPECT_EQ(std::get<RelayData>(*decoded), kData);
}

TEST(RelayCodec, CutOrChangedBytesAreReadOrRefused) {
  Rng rng(5);
  const RelayMessage samples[]{kOpen, kData, kClose};
  for (int i = 0; i < 20'000; ++i) {
    const RelayMessage& sample = samples[rng.below(3)];
    std::string bytes = encode_relay(sample);
    EXPECT_FALSE(decode_relay(type_of(sample), bytes.substr(0, rng.below(bytes.size()))));
    bytes[rng.below(bytes.size())] = static_cast<char>(rng.next());
    const auto decoded = decode_relay(type_of(sample), bytes);
    if (!decoded) continue;
    const auto again = decode_relay(type_of(sample), encode_relay(*decoded));
    ASSERT_TRUE(again);
    EXPECT_EQ(*again, *decoded);
  }
}

// The header's checks: among members only, and no longer than a relay's message may be.
TEST(RelayCodec, OnlyMembersAreHeard) {
  const MemberId self{1, 1}, other{2, 2}, cluster{9, 9};
  PeerHeader header;
  header.sender = other;
  header.cluster = cluster;
  for (int which : {0, 1, 2}) {
    header.type = type(which);
    const std::string bytes = encode_header(header);
    EXPECT_TRUE(check_header(bytes, 10, self, cluster, {true, false, other}).ok);
    const auto refusal = [&](std::size_t body, const MemberId& ours, const LinkAuth& auth) {
      const auto checked = check_header(bytes, body, self, ours, auth);
      EXPECT_FALSE(checked.ok);
      return checked.drop;
    };
    EXPECT_EQ(refusal(10, cluster, {true, true, {}}), Drop::join_link);
    EXPECT_EQ(refusal(10, cluster, {true, false, {3, 3}}), Drop::not_the_key_holder);
    EXPECT_EQ(refusal(10, {8, 8}, {true, false, other}), Drop::other_cluster);
    EXPECT_EQ(refusal(10, {}, {true, false, other}), Drop::other_cluster);
    EXPECT_EQ(refusal(kRelayMessageBytes + 1, cluster, {true, false, other}), Drop::too_large);
  }
}

}  // namespace
}  // namespace dtrain::test
