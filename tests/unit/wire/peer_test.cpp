#include "common/wire/peer.h"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "common/wire/codec.h"
#include "tests/unit/wire/gossip_samples.h"

namespace dtrain::test {
namespace {

const MemberId kSelf{9, 9}, kOurs{0x1111111111111111, 0x2222222222222222}, kTheirs{5, 5};
constexpr std::uint16_t kJoinType = 1, kJoinReplyType = 2, kPingType = 3, kSyncRowsType = 11;

LinkAuth plain() { return {}; }
LinkAuth join_link() { return {true, true, {}}; }
LinkAuth key_of(const MemberId& node) { return {true, false, node}; }

PeerHeader header_of(std::uint16_t type, const MemberId& cluster = kOurs) {
  PeerHeader header = fixed_header();
  header.type = type;
  header.cluster = cluster;
  return header;
}
std::string verdict(const PeerHeader& header, const LinkAuth& auth, const MemberId& cluster = kOurs, std::size_t body = 10) {
  const CheckedHeader checked = check_header(encode_header(header), body, kSelf, cluster, auth);
  return checked.ok ? "ok" : to_string(checked.drop);
}

TEST(PeerHeader, HasItsGoldenBytes) {
  const auto path = std::filesystem::path(DTRAIN_SOURCE_DIR) / "tests/golden/gossip/header.msgpack";
  const std::string encoded = encode_header(fixed_header());
  if (std::getenv("DTRAIN_UPDATE_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << encoded;
  std::ifstream in(path, std::ios::binary);
  const std::string golden{std::istreambuf_iterator<char>(in), {}};
  EXPECT_TRUE(encoded == golden);
  EXPECT_EQ(golden.substr(0, 8), std::string("\x98\xce"
                                             "dtrn\x01\x03"));
  const CheckedHeader checked = check_header(golden, 10, kSelf, kOurs, plain());
  ASSERT_TRUE(checked.ok);
  EXPECT_EQ(checked.header.type, 3);
  EXPECT_EQ(checked.header.cluster, fixed_header().cluster);
  EXPECT_EQ(checked.header.sender, fixed_header().sender);
  EXPECT_EQ(checked.header.incarnation, 7u);
  EXPECT_EQ(checked.header.epoch, 300u);
  EXPECT_EQ(checked.header.correlation, 70'000u);
}

RC_GTEST_PROP(PeerHeader, SurvivesARoundTrip, (std::uint64_t seed)) {
  PeerHeader header = GossipSampler(seed).header();
  header.cluster = kOurs;
  const std::string encoded = encode_header(header);
  RC_ASSERT(encoded.size() <= kHeaderBytes);
  RC_ASSERT(encoded.size() == encoded_size(header));
  const CheckedHeader checked = check_header(encoded, 0, kSelf, kOurs, plain());
  RC_ASSERT(checked.ok || header.sender == kSelf);
  RC_ASSERT(encode_header(checked.header) == encoded);
}

TEST(PeerHeader, TheCommonWay) {
  EXPECT_EQ(verdict(header_of(kPingType), key_of(fixed_header().sender)), "ok");
  EXPECT_EQ(verdict(header_of(kPingType), plain()), "ok");
}

TEST(PeerHeader, OtherClustersAreDropped) {
  EXPECT_EQ(verdict(header_of(kPingType, kTheirs), plain()), "other-cluster");
  EXPECT_EQ(verdict(header_of(kPingType, {}), plain()), "other-cluster");
  EXPECT_EQ(verdict(header_of(kJoinReplyType, kTheirs), join_link()), "other-cluster");
  EXPECT_EQ(verdict(header_of(kJoinType, kTheirs), join_link()), "other-cluster");
}

TEST(PeerHeader, AJoinMayBelongToNoClusterYet) {
  EXPECT_EQ(verdict(header_of(kJoinType, {}), join_link()), "ok");
  EXPECT_EQ(verdict(header_of(kJoinType), join_link()), "ok");
}

TEST(PeerHeader, WithoutAClusterOnlyAJoinReplyPasses) {
  EXPECT_EQ(verdict(header_of(kJoinReplyType, kTheirs), join_link(), {}), "ok");
  EXPECT_EQ(verdict(header_of(kJoinReplyType, {}), join_link(), {}), "other-cluster");
  EXPECT_EQ(verdict(header_of(kJoinType, {}), join_link(), {}), "other-cluster");
  EXPECT_EQ(verdict(header_of(kPingType, kTheirs), key_of(fixed_header().sender), {}), "other-cluster");
}

TEST(PeerHeader, TheSenderHoldsItsKey) {
  EXPECT_EQ(verdict(header_of(kPingType), key_of({4, 4})), "not-the-key-holder");
  EXPECT_EQ(verdict(header_of(kJoinType), key_of({4, 4})), "not-the-key-holder");
  EXPECT_EQ(verdict(header_of(kPingType), key_of({})), "not-the-key-holder");
}

TEST(PeerHeader, OnAJoinLinkNothingElsePasses) {
  for (std::uint16_t type = 1; type <= kGossipTypes; ++type)
    EXPECT_EQ(verdict(header_of(type), join_link()), type <= kJoinReplyType ? "ok" : "join-link") << type;
}

TEST(PeerHeader, OurOwnIdIsNobodyElse) {
  PeerHeader header = header_of(kPingType);
  header.sender = kSelf;
  EXPECT_EQ(verdict(header, plain()), "self");
  EXPECT_EQ(verdict(header, key_of(kSelf)), "self");
}

TEST(PeerHeader, UnknownTypesAreNamed) {
  EXPECT_EQ(verdict(header_of(0), plain()), "unknown-type");
  EXPECT_EQ(verdict(header_of(kGossipTypes + 1), plain()), "unknown-type");
  EXPECT_EQ(verdict(header_of(65535), plain()), "unknown-type");
}

TEST(PeerHeader, UnknownFormatsAreNamedEvenWhenTheRestIsOther) {
  PeerHeader header = header_of(kPingType);
  for (const std::uint16_t format : {0, kPeerFormat + 1, 65535}) {
    header.format = format;
    EXPECT_EQ(verdict(header, plain()), "unknown-format");
  }
  Writer w;
  w.array(3);
  w.natural(kPeerMagic);
  w.natural(kPeerFormat + 1);
  w.map(0);
  EXPECT_EQ(check_header(w.take(), 0, kSelf, kOurs, plain()).drop, Drop::unknown_format);
}

TEST(PeerHeader, LongerBodiesThanTheLaneAllowsAreDropped) {
  EXPECT_EQ(verdict(header_of(kPingType), plain(), kOurs, kGossipMessageBytes), "ok");
  EXPECT_EQ(verdict(header_of(kPingType), plain(), kOurs, kGossipMessageBytes + 1), "too-large");
  EXPECT_EQ(verdict(header_of(kSyncRowsType), plain(), kOurs, kBulkMessageBytes), "ok");
  EXPECT_EQ(verdict(header_of(kSyncRowsType), plain(), kOurs, kBulkMessageBytes + 1), "too-large");
}

TEST(PeerHeader, MalformedOnesAreDropped) {
  const std::string good = encode_header(fixed_header());
  const auto drop = [](const std::string& bytes) {
    const CheckedHeader checked = check_header(bytes, 0, kSelf, kOurs, plain());
    EXPECT_FALSE(checked.ok);
    return checked.drop;
  };
  for (std::size_t size = 0; size < good.size(); ++size) EXPECT_EQ(drop(good.substr(0, size)), Drop::malformed) << size;
  EXPECT_EQ(drop(good + std::string(1, '\0')), Drop::malformed);
  EXPECT_EQ(drop("GET / HTTP/1.1\r\n\r\n"), Drop::malformed);
  std::string magic = good;
  magic[2] = 'D';
  EXPECT_EQ(drop(magic), Drop::malformed);
  PeerHeader nobody = fixed_header();
  nobody.sender = {};
  EXPECT_EQ(drop(encode_header(nobody)), Drop::malformed);
  Writer w;
  w.array(9);
  w.natural(kPeerMagic);
  w.natural(kPeerFormat);
  for (int i = 0; i < 6; ++i) w.natural(1);
  w.text(std::string(kHeaderBytes, 'x'));
  EXPECT_EQ(drop(w.take()), Drop::malformed);
}

TEST(PeerHeader, EveryDropHasAWord) {
  std::set<std::string> words;
  for (std::size_t i = 0; i < kDrops; ++i) words.insert(to_string(static_cast<Drop>(i)));
  EXPECT_EQ(words.size(), kDrops);
  EXPECT_FALSE(words.contains("unknown"));
}

}  // namespace
}  // namespace dtrain::test
