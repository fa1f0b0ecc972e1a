#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "common/wire/codec.h"
#include "tests/unit/wire/gossip_samples.h"

namespace dtrain::test {
namespace {

constexpr std::uint16_t kGossipType = 8, kSyncRowsType = 11, kNackType = 6;

std::string bytes_of(std::initializer_list<int> values) {
  std::string out;
  for (const int value : values) out.push_back(static_cast<char>(value));
  return out;
}
std::string id_bytes(const MemberId& id) {
  std::string out;
  for (int shift = 56; shift >= 0; shift -= 8) out.push_back(static_cast<char>(id.high >> shift));
  for (int shift = 56; shift >= 0; shift -= 8) out.push_back(static_cast<char>(id.low >> shift));
  return out;
}
// [kind, subject, ...tail] in a Gossip.
std::string gossip_with(std::uint8_t kind, std::uint32_t fields, const std::function<void(Writer&)>& tail) {
  Writer w;
  w.array(1);
  w.array(1);
  w.array(fields);
  w.natural(kind);
  w.binary(id_bytes({1, 2}));
  tail(w);
  return w.take();
}
void put_identity(Writer& w, const MemberId& id, const std::string& name, const std::string& ip, const std::string& boot) {
  w.array(9);
  w.binary(id_bytes(id));
  w.text(name);
  w.text(ip);
  w.natural(7400);
  w.text(boot);
  w.natural(1);
  w.natural(1);
  w.natural(1);
  w.text("");
}

// The bytes of a released message never change. After an intended addition of a field: run once with
// DTRAIN_UPDATE_GOLDEN=1 and say in the commit why an old peer still understands it.
void expect_golden(const std::string& name, const std::string& encoded) {
  const auto path = std::filesystem::path(DTRAIN_SOURCE_DIR) / "tests/golden/gossip" / (name + ".msgpack");
  if (std::getenv("DTRAIN_UPDATE_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << encoded;
  std::ifstream in(path, std::ios::binary);
  const std::string golden{std::istreambuf_iterator<char>(in), {}};
  EXPECT_TRUE(encoded == golden) << name << " is encoded differently from " << path;
}

TEST(GossipCodec, EveryBodyHasItsGoldenBytes) {
  const auto bodies = fixed_bodies();
  ASSERT_EQ(bodies.size(), kGossipTypes);
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    const auto& [name, body] = bodies[i];
    ASSERT_EQ(body.index(), i);
    const std::string encoded = encode_gossip(body);
    expect_golden(name, encoded);
    const auto decoded = decode_gossip(type_of(body), encoded);
    ASSERT_TRUE(decoded) << name << ": " << decoded.error().text();
    EXPECT_TRUE(same_body(*decoded, body)) << name;
  }
}

TEST(GossipCodec, APingReadsAsTheProtocolSays) {
  // [sequence 300, target, sent -1, one rumour [suspect, subject, incarnation 7, from]]
  const std::string expected = bytes_of({0x94, 0xcd, 0x01, 0x2c, 0xc4, 16}) + id_bytes({1, 2}) +
                               bytes_of({0xff, 0x91, 0x94, 0x01, 0xc4, 16}) + id_bytes({1, 2}) + bytes_of({0x07, 0xc4, 16}) +
                               id_bytes({3, 4});
  const Ping ping{300, {1, 2}, -1, {{RumourKind::suspect, {1, 2}, 7, {3, 4}, nullptr, nullptr, ""}}};
  EXPECT_EQ(encode_gossip(ping), expected);
}

TEST(GossipCodec, APingWithoutRumoursIsSmall) {
  const Ping ping{1'000'000, {~0ull, ~0ull}, 1'000'000'000'000'000'000, {}};
  PeerHeader header = fixed_header();
  header.correlation = 0;
  const std::size_t size = encode_gossip(ping).size() + encode_header(header).size();
  EXPECT_EQ(size, 82u);  // 49 and 33; three ids of 18 are 54 of them
}

TEST(GossipCodec, DefaultsAtTheEndAreLeftOut) {
  EXPECT_EQ(encode_gossip(Nack{}), bytes_of({0x90}));
  EXPECT_EQ(encode_gossip(Gossip{}), bytes_of({0x90}));
  EXPECT_EQ(encode_gossip(SyncRoot{5, {}, false}), bytes_of({0x91, 5}));
}

RC_GTEST_PROP(GossipCodec, EveryBodySurvivesARoundTrip, (std::uint64_t seed)) {
  GossipSampler sampler(seed);
  for (std::uint16_t type = 1; type <= kGossipTypes; ++type) {
    const GossipBody body = sampler.body(type);
    RC_ASSERT(type_of(body) == type);
    const std::string encoded = encode_gossip(body);
    RC_ASSERT(encoded.size() == encoded_size(body));
    const auto decoded = decode_gossip(type, encoded);
    if (!decoded) RC_FAIL(decoded.error().text());
    RC_ASSERT(same_body(*decoded, body));
    RC_ASSERT(encode_gossip(*decoded) == encoded);
  }
}

RC_GTEST_PROP(GossipCodec, SizesAddUp, (std::uint64_t seed)) {
  GossipSampler sampler(seed);
  Gossip gossip;
  SyncRows rows;
  std::size_t rumours_size = 0, rows_size = 0;
  for (int i = 0; i < 5; ++i) {
    gossip.rumours.push_back(sampler.rumour());
    rumours_size += encoded_size(gossip.rumours.back());
    rows.rows.push_back(sampler.row());
    rows_size += encoded_size(rows.rows.back());
  }
  RC_ASSERT(encode_gossip(gossip).size() == rumours_size + 2);
  RC_ASSERT(encode_gossip(rows).size() == rows_size + 2);
}

RC_GTEST_PROP(GossipCodec, CutOrChangedBytesAreReadOrRefused, (std::uint64_t seed)) {
  GossipSampler sampler(seed);
  Rng rng(seed);
  const auto type = static_cast<std::uint16_t>(1 + rng.below(kGossipTypes));
  std::string bytes = encode_gossip(sampler.body(type));
  if (rng.chance(1, 2)) {
    bytes.resize(rng.below(bytes.size()));
    RC_ASSERT(!decode_gossip(type, bytes));  // msgpack says how long it is: a part is never a whole
    return;
  }
  for (int i = 0; i < 3; ++i) bytes[rng.below(bytes.size())] = static_cast<char>(rng.below(256));
  const auto decoded = decode_gossip(type, bytes);
  if (!decoded) {
    RC_ASSERT(decoded.error().message.starts_with("could not decode "));
    return;
  }
  const std::string again = encode_gossip(*decoded);
  const auto back = decode_gossip(type, again);
  RC_ASSERT(back.has_value());
  RC_ASSERT(same_body(*back, *decoded));
}

TEST(GossipCodec, ALongerArrayIsCut) {
  Writer w;
  w.array(3);
  w.natural(9);
  w.text("of a later version");
  w.map(1);
  w.natural(1);
  w.boolean(true);
  const auto decoded = decode_gossip(kNackType, w.take());
  ASSERT_TRUE(decoded) << decoded.error().text();
  EXPECT_EQ(std::get<Nack>(*decoded).sequence, 9u);
}

TEST(GossipCodec, NilIsTheDefault) {
  Writer w;
  w.array(3);
  for (int i = 0; i < 3; ++i) w.nil();
  const auto decoded = decode_gossip(9, w.take());
  ASSERT_TRUE(decoded) << decoded.error().text();
  EXPECT_TRUE(same_body(*decoded, SyncRoot{}));
}

TEST(GossipCodec, ARumourOfUnknownKindIsSkippedWhateverItHolds) {
  Writer w;
  w.array(1);
  w.array(3);
  w.array(2);
  w.natural(1);
  w.binary(id_bytes({1, 2}));
  w.array(3);
  w.natural(static_cast<std::uint64_t>(enum_last(RumourKind{})) + 1);
  w.text("fields of another meaning");
  w.map(0);
  w.array(2);
  w.natural(4);
  w.binary(id_bytes({3, 4}));
  const auto decoded = decode_gossip(kGossipType, w.take());
  ASSERT_TRUE(decoded) << decoded.error().text();
  const auto& rumours = std::get<Gossip>(*decoded).rumours;
  ASSERT_EQ(rumours.size(), 2u);
  EXPECT_EQ(rumours[0].subject, (MemberId{1, 2}));
  EXPECT_EQ(rumours[1].kind, RumourKind::dead);
}

TEST(GossipCodec, AnUnknownFactIsSkippedInARumourAndInARow) {
  const auto unknown = [](Writer& w) {
    w.array(3);
    w.natural(kFactKeys);
    w.natural(1);
    w.binary("x");
  };
  const auto gossip = decode_gossip(kGossipType, gossip_with(6, 6, [&](Writer& w) {
                                      for (int i = 0; i < 3; ++i) w.nil();
                                      unknown(w);
                                    }));
  ASSERT_TRUE(gossip) << gossip.error().text();
  EXPECT_TRUE(std::get<Gossip>(*gossip).rumours.empty());
  Writer w;
  w.array(1);
  w.array(1);
  w.array(4);
  w.natural(0);
  w.natural(1);
  put_identity(w, {1, 2}, "n", "10.0.0.1", "b");
  w.array(2);
  w.array(3);
  w.natural(1);
  w.natural(5);
  w.binary("y");
  unknown(w);
  const auto rows = decode_gossip(kSyncRowsType, w.take());
  ASSERT_TRUE(rows) << rows.error().text();
  ASSERT_EQ(std::get<SyncRows>(*rows).rows.size(), 1u);
  ASSERT_EQ(std::get<SyncRows>(*rows).rows[0].facts.size(), 1u);
  EXPECT_EQ(std::get<SyncRows>(*rows).rows[0].facts[0]->value, "y");
}

TEST(GossipCodec, WhatAKindNeedsIsThere) {
  const auto refused = [](std::uint16_t type, const GossipBody& body, const char* why) {
    const auto decoded = decode_gossip(type, encode_gossip(body));
    ASSERT_FALSE(decoded) << why;
    EXPECT_NE(decoded.error().message.find(why), std::string::npos) << decoded.error().text();
    EXPECT_EQ(decoded.error().code, ErrorCode::damaged);
  };
  refused(8, Gossip{{{RumourKind::alive, {1, 2}, 1, {}, nullptr, nullptr, ""}}}, "rumours.0: an alive without an identity");
  refused(8, Gossip{{{RumourKind::fact, {1, 2}, 1, {}, nullptr, nullptr, ""}}}, "rumours.0: a fact without a value");
  refused(8, Gossip{{{RumourKind::dead, {}, 1, {}, nullptr, nullptr, ""}}}, "rumours.0: a rumour about nobody");
  refused(8, Gossip{{{RumourKind::alive, {1, 2}, 1, {}, fixed_identity(), nullptr, ""}}}, "a rumour with another's identity");
  refused(1, Join{"lab", {}}, "an identity");
  refused(5, PingRequest{}, "without a target");
  refused(7, ProbeNow{}, "a probe of nobody");
  refused(10, SyncSummaries{{}, {RowSummary{}}, false}, "rows.0: a summary of nobody");
  refused(11, SyncRows{{Row{}}, {}}, "rows.0: a row without an identity");
  Row twice = fixed_row();
  twice.facts.push_back(twice.facts.front());
  refused(11, SyncRows{{twice}, {}}, "rows.0: facts out of order");
  Identity nameless = *fixed_identity();
  nameless.name.clear();
  refused(7, ProbeNow{std::make_shared<const Identity>(nameless), 1}, "subject: an identity without a name");
}

TEST(GossipCodec, LimitsAreNamed) {
  const auto refused = [](std::uint16_t type, const GossipBody& body, const char* why) {
    const auto decoded = decode_gossip(type, encode_gossip(body));
    ASSERT_FALSE(decoded) << why;
    EXPECT_NE(decoded.error().message.find(why), std::string::npos) << decoded.error().text();
  };
  const Rumour suspect{RumourKind::suspect, {1, 2}, 1, {3, 4}, nullptr, nullptr, ""};
  Gossip full{std::vector<Rumour>(kRumoursPerMessage, suspect)};
  EXPECT_TRUE(decode_gossip(8, encode_gossip(full)));
  full.rumours.push_back(suspect);
  refused(8, full, "rumours: more than 512 elements");
  const auto with = [](auto change) {
    Identity identity = *fixed_identity();
    change(identity);
    return ProbeNow{std::make_shared<const Identity>(identity), 1};
  };
  EXPECT_TRUE(decode_gossip(7, encode_gossip(with([](Identity& x) { x.name = std::string(63, 'n'); }))));
  refused(7, with([](Identity& x) { x.name = std::string(64, 'n'); }), "subject.name: longer than 63 bytes");
  refused(7, with([](Identity& x) { x.name = "a b"; }), "subject.name: not printable");
  refused(7, with([](Identity& x) { x.name = "a\x1b[2J"; }), "subject.name: not printable");
  refused(7, with([](Identity& x) { x.address.ip = std::string(46, '1'); }), "subject.ip: longer than 45 bytes");
  refused(7, with([](Identity& x) { x.boot_id = std::string(65, 'b'); }), "subject.boot_id: longer than 64 bytes");
  refused(7, with([](Identity& x) { x.key_print = std::string(65, 'b'); }), "subject.key_print: longer than 64 bytes");
  Rumour fact{RumourKind::fact, {1, 2}, 0, {}, nullptr, nullptr, ""};
  fact.fact = std::make_shared<const Fact>(Fact{FactKey::free, 1, std::string(kFactBytes, 'v')});
  EXPECT_TRUE(decode_gossip(8, encode_gossip(Gossip{{fact}})));
  fact.fact = std::make_shared<const Fact>(Fact{FactKey::free, 1, std::string(kFactBytes + 1, 'v')});
  refused(8, Gossip{{fact}}, "rumours.0.fact.value: longer than 16384 bytes");
  fact.fact = std::make_shared<const Fact>(Fact{FactKey::free, 1, std::string(kFactBytes, 'v')});
  const auto large = decode_gossip(8, encode_gossip(Gossip{{fact, fact, fact, fact}}));
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, ErrorCode::limit);
  EXPECT_TRUE(decode_gossip(11, encode_gossip(SyncRows{{}, std::vector<MemberId>(kRowsPerMessage, {1, 2})})));
  EXPECT_FALSE(decode_gossip(11, encode_gossip(SyncRows{{}, std::vector<MemberId>(kRowsPerMessage + 1, {1, 2})})));
}

// Everybody would follow such a number to its end, where the next one is 0.
TEST(GossipCodec, NumbersThatOnlyGrowHaveAnEnd) {
  const auto refused = [](std::uint16_t type, const GossipBody& body, const char* why) {
    const auto decoded = decode_gossip(type, encode_gossip(body));
    if (decoded) return false;
    EXPECT_NE(decoded.error().message.find(why), std::string::npos) << decoded.error().text();
    EXPECT_EQ(decoded.error().code, ErrorCode::damaged);
    return true;
  };
  for (const std::uint64_t number : {kMostIncarnation, kMostIncarnation + 1, ~std::uint64_t{0}}) {
    const bool beyond = number > kMostIncarnation;
    for (const RumourKind kind : {RumourKind::suspect, RumourKind::dead, RumourKind::left}) {
      const Gossip gossip{{{kind, {1, 2}, number, {3, 4}, nullptr, nullptr, ""}}};
      EXPECT_EQ(refused(8, gossip, "rumours.0: a rumour's incarnation out of range"), beyond);
    }
    Row row = fixed_row();
    row.incarnation = number;
    EXPECT_EQ(refused(11, SyncRows{{row}, {}}, "rows.0: a row's incarnation out of range"), beyond);
    EXPECT_EQ(refused(1, Join{"lab", row}, "a row's incarnation out of range"), beyond);
    EXPECT_EQ(refused(2, JoinReply{"", {1, 2}, number, "", {}}, "the accused incarnation out of range"), beyond);
  }
  for (const std::uint64_t version : {std::uint64_t{1}, kMostFactVersion, std::uint64_t{0}, kMostFactVersion + 1, ~std::uint64_t{0}}) {
    const bool outside = version == 0 || version > kMostFactVersion;
    const auto fact = std::make_shared<const Fact>(Fact{FactKey::free, version, "v"});
    EXPECT_EQ(refused(8, Gossip{{{RumourKind::fact, {1, 2}, 0, {}, nullptr, fact, ""}}}, "rumours.0.fact: a fact's version out of range"),
              outside);
    Row row = fixed_row();
    row.facts = {fact};
    EXPECT_EQ(refused(11, SyncRows{{row}, {}}, "a fact's version out of range"), outside);
  }
}

TEST(GossipCodec, ReasonsAreCutAndMadePrintable) {
  const Rumour left{RumourKind::left, {1, 2}, 1, {}, nullptr, nullptr, "a\nb" + std::string(100, 'x')};
  const std::string encoded = encode_gossip(Gossip{{left}});
  EXPECT_EQ(encoded.size(), encoded_size(GossipBody(Gossip{{left}})));
  const auto decoded = decode_gossip(kGossipType, encoded);
  ASSERT_TRUE(decoded) << decoded.error().text();
  EXPECT_EQ(std::get<Gossip>(*decoded).rumours[0].reason, "a?b" + std::string(61, 'x'));
}

TEST(GossipCodec, HostileBytesAreRefused) {
  const std::string deep(100, '\x91');
  for (const std::string& bytes :
       {std::string(), bytes_of({0xc0}), bytes_of({0x80}), bytes_of({0xc1}), bytes_of({0xdd, 0xff, 0xff, 0xff, 0xff}),
        bytes_of({0x91, 0xdd, 0xff, 0xff, 0xff, 0xff}), bytes_of({0x91, 0xc6, 0xff, 0xff, 0xff, 0xff}), bytes_of({0xd4, 0x01, 0x00}),
        deep + bytes_of({0xc0}), bytes_of({0x90, 0x90})})
    for (std::uint16_t type = 1; type <= kGossipTypes; ++type) EXPECT_FALSE(decode_gossip(type, bytes)) << type;
  for (const std::uint16_t type : {std::uint16_t{0}, std::uint16_t{12}, std::uint16_t{64}, std::uint16_t{65535}})
    EXPECT_FALSE(decode_gossip(type, bytes_of({0x90}))) << type;
  EXPECT_FALSE(decode_gossip(kNackType, bytes_of({0x91, 0xff})));                         // negative
  EXPECT_FALSE(decode_gossip(kNackType, bytes_of({0x91, 0xca, 0x3f, 0x80, 0, 0})));       // a float
  EXPECT_FALSE(decode_gossip(10, bytes_of({0x91, 0x91, 0xce, 0x00, 0x01, 0x00, 0x00})));  // a bucket above 65535
  EXPECT_FALSE(decode_gossip(3, bytes_of({0x92, 0x01, 0xc4, 3, 1, 2, 3})));               // an id of 3 bytes
}

TEST(GossipCodec, LanesAreOfTheType) {
  for (const auto& [name, body] : fixed_bodies()) {
    const bool bulk = name == "join" || name == "join_reply" || name.starts_with("sync");
    EXPECT_EQ(lane_of(body), bulk ? Lane::bulk : Lane::gossip) << name;
    EXPECT_EQ(lane_of(type_of(body)), lane_of(body)) << name;
  }
  EXPECT_FALSE(lane_of(std::uint16_t{0}));
  EXPECT_FALSE(lane_of(static_cast<std::uint16_t>(kGossipTypes + 1)));
}

TEST(Endpoint, Text) {
  EXPECT_EQ((Endpoint{"10.0.0.11", 7400}.text()), "10.0.0.11:7400");
  EXPECT_EQ((Endpoint{"fd00::1", 7400}.text()), "[fd00::1]:7400");
}

TEST(MemberState, Words) {
  EXPECT_STREQ(to_string(MemberState::alive), "alive");
  EXPECT_STREQ(to_string(MemberState::left), "left");
}

}  // namespace
}  // namespace dtrain::test
