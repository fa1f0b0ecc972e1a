#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "common/wire/peer.h"
#include "tests/unit/wire/formation_samples.h"

namespace dtrain::test {
namespace {

using namespace wire;

std::string refusal(const std::function<void(FormationReport&)>& change) {
  FormationReport report = fixed_report();
  change(report);
  const auto decoded = decode_formation(encode_formation(report));
  return decoded ? "accepted" : decoded.error().text();
}
void expect_refused(const std::string& why, const std::function<void(FormationReport&)>& change) {
  EXPECT_NE(refusal(change).find(why), std::string::npos) << refusal(change);
}

// After an intended addition of a field: run once with DTRAIN_UPDATE_GOLDEN=1 and say in the commit why an
// old peer still understands it.
TEST(FormationCodec, GoldenBytes) {
  const std::string encoded = encode_formation(fixed_report());
  const auto path = std::filesystem::path(DTRAIN_SOURCE_DIR) / "tests/golden/formation/report.msgpack";
  if (std::getenv("DTRAIN_UPDATE_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << encoded;
  std::ifstream in(path, std::ios::binary);
  const std::string golden{std::istreambuf_iterator<char>(in), {}};
  EXPECT_TRUE(encoded == golden) << "a report is encoded differently from " << path;
  EXPECT_EQ(encoded.size(), encoded_size(fixed_report()));
  const auto decoded = decode_formation(encoded);
  ASSERT_TRUE(decoded) << decoded.error().text();
  EXPECT_EQ(*decoded, fixed_report());
}

TEST(FormationCodec, EveryReportSurvivesARoundTrip) {
  ReportSampler sampler(21);
  std::size_t accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    const FormationReport report = sampler.report();
    const std::string encoded = encode_formation(report);
    ASSERT_EQ(encoded.size(), encoded_size(report));
    const auto decoded = decode_formation(encoded);
    if (!decoded) continue;  // of a proposer that is no founder
    ++accepted;
    ASSERT_EQ(*decoded, report);
  }
  EXPECT_GT(accepted, 18'000u);
}

TEST(FormationCodec, CutOrChangedBytesAreReadOrRefused) {
  ReportSampler sampler(22);
  Rng rng(22);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = encode_formation(sampler.report());
    EXPECT_FALSE(decode_formation(bytes.substr(0, rng.below(bytes.size()))));
    bytes[rng.below(bytes.size())] = static_cast<char>(rng.next());
    const auto decoded = decode_formation(bytes);
    if (!decoded) continue;
    const auto again = decode_formation(encode_formation(*decoded));
    ASSERT_TRUE(again);
    EXPECT_EQ(*again, *decoded);
  }
}

TEST(FormationCodec, WhatCannotBeIsRefused) {
  expect_refused("a seat out of range", [](auto& report) { report.seat = kMostFounders; });
  expect_refused("seats out of order", [](auto& report) { report.without = {2, 2}; });
  expect_refused("a founding without a cluster", [](auto& report) { report.promise.cluster = {}; });
  expect_refused("founders out of order", [](auto& report) { report.promise.members[1].seat = 0; });
  expect_refused("a founder in two places", [](auto& report) { report.promise.members[1].id = {1, 1}; });
  expect_refused("its proposer does not belong to", [](auto& report) { report.promise.proposer = {9, 9}; });
  expect_refused("its proposer does not belong to", [](auto& report) { report.promise.members.clear(); });
  expect_refused("a founder out of range", [](auto& report) { report.promise.members[2].seat = kMostFounders; });
  expect_refused("expected an id", [](auto& report) { report.withdrawn = {{}}; });
}

TEST(FormationCodec, LimitsAreNamed) {
  const auto many = [](FormationReport& report) {
    report.promise.members.clear();
    for (std::uint16_t seat = 0; seat < kMostFounders; ++seat) report.promise.members.push_back({seat, {seat + 1u, 1}});
    report.withdrawn.assign(kMostWithdrawn, {7, 7});
    report.founders.assign(kFoundersBytes, 'h');
  };
  EXPECT_EQ(refusal(many), "accepted");
  expect_refused("withdrawn: more than 16 elements", [&](auto& report) {
    many(report);
    report.withdrawn.push_back({7, 7});
  });
  expect_refused("members: more than 16 elements", [&](auto& report) {
    many(report);
    report.promise.members.push_back({kMostFounders, {99, 99}});
  });
  EXPECT_FALSE(decode_formation(std::string(kFormationBytes + 1, '\x90')));
}

TEST(FormationCodec, OlderAndNewerPeersAreUnderstood) {
  EXPECT_EQ(*decode_formation("\x90"), FormationReport{});
  std::string longer = encode_formation(fixed_report());
  ASSERT_EQ(longer[0], '\x9b');
  longer[0] = '\x9c';
  const auto decoded = decode_formation(longer + "\xa1x");
  ASSERT_TRUE(decoded) << decoded.error().text();
  EXPECT_EQ(*decoded, fixed_report());
}

TEST(FormationCodec, HostileBytesAreRefused) {
  for (const std::string& bytes : {std::string(), std::string("\xc0"), std::string("\x80"), std::string("\xdd\xff\xff\xff\xff"),
                                   std::string(100, '\x91'), std::string("\x91\x05"), std::string("\x92\xc0\xff")})
    EXPECT_FALSE(decode_formation(bytes));
}

TEST(FormationReport, ItsHeaderPassesWhateverTheCluster) {
  PeerHeader header;
  header.type = kFormationType;
  header.sender = {5, 5};
  LinkAuth owner;
  owner.curve = true;
  owner.node = {5, 5};
  LinkAuth stranger = owner;
  stranger.node = {6, 6};
  LinkAuth joiner;
  joiner.curve = joiner.cluster_key = true;
  for (const MemberId& theirs : {MemberId{}, MemberId{1, 2}, MemberId{3, 4}}) {
    header.cluster = theirs;
    const std::string bytes = encode_header(header);
    for (const MemberId& ours : {MemberId{}, MemberId{1, 2}}) {
      for (const LinkAuth& auth : {owner, joiner, LinkAuth{}}) EXPECT_TRUE(check_header(bytes, kFormationBytes, {9, 9}, ours, auth).ok);
      EXPECT_EQ(check_header(bytes, kFormationBytes + 1, {9, 9}, ours, owner).drop, Drop::too_large);
      EXPECT_EQ(check_header(bytes, 10, {9, 9}, ours, stranger).drop, Drop::not_the_key_holder);
      EXPECT_EQ(check_header(bytes, 10, {5, 5}, ours, owner).drop, Drop::self);
    }
  }
  header.cluster = {1, 2};
  for (const std::uint16_t type : {129, 131, 135}) {
    header.type = type;
    EXPECT_EQ(check_header(encode_header(header), 10, {9, 9}, {1, 2}, owner).drop, Drop::unknown_type) << type;
    EXPECT_EQ(check_header(encode_header(header), 10, {9, 9}, {3, 4}, owner).drop, Drop::other_cluster) << type;
  }
}

}  // namespace
}  // namespace dtrain::test
