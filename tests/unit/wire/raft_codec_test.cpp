#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "common/wire/codec.h"
#include "tests/unit/wire/raft_samples.h"

namespace dtrain::test {
namespace {

constexpr std::uint16_t kAppendRequest = 66, kSnapshotChunk = 68;

std::string bytes_of(std::initializer_list<int> values) {
  std::string out;
  for (const int value : values) out.push_back(static_cast<char>(value));
  return out;
}

// After an intended addition of a field: run once with DTRAIN_UPDATE_GOLDEN=1 and say in the commit why an
// old peer still understands it.
void expect_golden(const std::string& name, const std::string& encoded) {
  const auto path = std::filesystem::path(DTRAIN_SOURCE_DIR) / "tests/golden/raft" / (name + ".msgpack");
  if (std::getenv("DTRAIN_UPDATE_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << encoded;
  std::ifstream in(path, std::ios::binary);
  const std::string golden{std::istreambuf_iterator<char>(in), {}};
  EXPECT_TRUE(encoded == golden) << name << " is encoded differently from " << path;
}

std::string refusal(std::uint16_t type, const RaftBody& body) {
  const auto decoded = decode_raft(type, {1, 1}, encode_raft({fixed_raft_header(), body}));
  return decoded ? "accepted" : decoded.error().text();
}
void expect_refused(const RaftBody& body, const std::string& why) {
  EXPECT_NE(refusal(type_of(body), body).find(why), std::string::npos) << refusal(type_of(body), body);
}

TEST(RaftCodec, EveryBodyHasItsGoldenBytes) {
  const auto bodies = fixed_raft_bodies();
  ASSERT_EQ(bodies.size(), kRaftTypes);
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    const auto& [name, body] = bodies[i];
    ASSERT_EQ(body.index(), i);
    const RaftMessage message{fixed_raft_header(), body};
    const std::string encoded = encode_raft(message);
    EXPECT_EQ(encoded.size(), encoded_size(message)) << name;
    expect_golden(name, encoded);
    const auto decoded = decode_raft(type_of(body), fixed_raft_header().sender, encoded);
    ASSERT_TRUE(decoded) << name << ": " << decoded.error().text();
    EXPECT_EQ(*decoded, message) << name;
  }
  expect_golden("configuration", encode_configuration(fixed_configuration()));
}

TEST(RaftCodec, AHeartbeatReadsAsTheProtocolSays) {
  // [[[history number, id], term, [life, mark]], [round, prev index, prev term, commit]]
  const RaftMessage beat{{{1, {0, 5}}, 7, {9, 9}, {2, 3}}, AppendRequest{4, 3, 2, 1, {}, {}}};
  EXPECT_EQ(encode_raft(beat),
            bytes_of({0x92, 0x93, 0x92, 1, 0xc4, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 7, 0x92, 2, 3, 0x94, 4, 3, 2, 1}));
}

TEST(RaftCodec, EveryMessageSurvivesARoundTrip) {
  RaftSampler sampler(11);
  std::size_t accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    const RaftMessage message = sampler.message();
    const std::string encoded = encode_raft(message);
    ASSERT_EQ(encoded.size(), encoded_size(message));
    const auto decoded = decode_raft(type_of(message.body), message.header.sender, encoded);
    if (!decoded) continue;  // of entries whose terms are out of order and such
    ++accepted;
    ASSERT_EQ(*decoded, message);
  }
  EXPECT_GT(accepted, 15'000u);
}

TEST(RaftCodec, CutOrChangedBytesAreReadOrRefused) {
  RaftSampler sampler(12);
  Rng rng(12);
  for (int i = 0; i < 20'000; ++i) {
    const RaftMessage message = sampler.message();
    std::string bytes = encode_raft(message);
    const std::uint16_t type = type_of(message.body);
    EXPECT_FALSE(decode_raft(type, {1, 1}, bytes.substr(0, rng.below(bytes.size()))));
    bytes[rng.below(bytes.size())] = static_cast<char>(rng.next());
    const auto decoded = decode_raft(type, {1, 1}, bytes);
    if (!decoded) continue;
    const auto again = decode_raft(type, {1, 1}, encode_raft(*decoded));
    ASSERT_TRUE(again);
    EXPECT_EQ(*again, *decoded);
  }
}

TEST(RaftCodec, WhatCannotBeIsRefused) {
  const auto entry = [](std::uint64_t term, Duration elapsed) { return LogEntry{0, term, "", EntryKind::command, elapsed}; };
  expect_refused(VoteRequest{false, kMostTerm + 1, 1, 1}, "a vote request out of range");
  expect_refused(VoteRequest{false, 1, kMostIndex + 1, 1}, "a vote request out of range");
  expect_refused(AppendRequest{1, kMostIndex, 1, 1, {}, {}}, "an append request out of range");
  expect_refused(AppendRequest{1, 1, 1, 1, Duration(-1), {}}, "an append request out of range");
  expect_refused(AppendRequest{1, 1, 5, 1, {}, {entry(4, {})}}, "entries of terms out of order");
  expect_refused(AppendRequest{1, 1, 0, 1, {}, {entry(0, {})}}, "entries of terms out of order");
  expect_refused(AppendRequest{1, 1, 1, 1, {}, {entry(2, 2s), entry(2, 1s)}}, "entries of times out of order");
  expect_refused(AppendRequest{1, 1, 1, 1, {}, {entry(2, Duration(-5))}}, "entries of times out of order");
  LogEntry newer = entry(2, {});
  newer.kind = static_cast<EntryKind>(200);  // were it skipped, the next would take its place
  expect_refused(AppendRequest{1, 1, 1, 1, {}, {newer, entry(2, {})}}, "an entry of an unknown kind");
  expect_refused(AppendReply{1, true, kMostIndex + 1, 1, 1, 1}, "an append reply out of range");
  const Configuration good = fixed_configuration();
  expect_refused(SnapshotChunk{1, 0, 1, good, {}, {}, 1, 0, ""}, "a snapshot out of range");
  expect_refused(SnapshotChunk{1, 1, 0, good, {}, {}, 1, 0, ""}, "a snapshot out of range");
  expect_refused(SnapshotChunk{1, 1, 1, good, {}, {}, 4, 5, ""}, "a chunk behind the end");
  expect_refused(SnapshotChunk{1, 1, 1, good, {}, {}, 4, 2, "abc"}, "a chunk behind the end");
  expect_refused(SnapshotChunk{1, 1, 1, {{{2, 2}, {1, 1}}, {}}, {}, {}, 1, 0, ""}, "members out of order");
  expect_refused(SnapshotChunk{1, 1, 1, {{{1, 1}, {1, 1}}, {}}, {}, {}, 1, 0, ""}, "members out of order");
  expect_refused(SnapshotChunk{1, 1, 1, {{{1, 1}}, {{1, 1}}}, {}, {}, 1, 0, ""}, "a member that votes and learns");
  RaftHeader far = fixed_raft_header();
  far.term = kMostTerm + 1;
  EXPECT_FALSE(decode_raft(kFirstRaftType, {1, 1}, encode_raft({far, VoteRequest{}})));
}

TEST(RaftCodec, LimitsAreNamed) {
  const auto append = [](std::vector<LogEntry> entries) { return AppendRequest{1, 1, 1, 1, {}, std::move(entries)}; };
  const LogEntry large{0, 1, std::string(kEntryBytes, 'x'), EntryKind::command, {}}, small{0, 1, "", EntryKind::command, {}};
  EXPECT_EQ(refusal(kAppendRequest, append({large})), "accepted");
  LogEntry larger = large;
  larger.payload += "x";
  expect_refused(append({larger}), "payload: longer than 2097152 bytes");
  expect_refused(append({large, large}), "longer than 2162688 bytes");
  EXPECT_EQ(refusal(kAppendRequest, append(std::vector<LogEntry>(kEntriesPerMessage, small))), "accepted");
  EXPECT_NE(refusal(kAppendRequest, append(std::vector<LogEntry>(kEntriesPerMessage + 1, small))), "accepted");
  SnapshotChunk chunk{1, 1, 1, fixed_configuration(), {}, {}, kSnapshotChunkBytes + 1, 0, std::string(kSnapshotChunkBytes, 'x')};
  EXPECT_EQ(refusal(kSnapshotChunk, chunk), "accepted");
  chunk.bytes += "x";
  expect_refused(chunk, "bytes: longer than 1048576 bytes");
  Configuration full;
  for (std::uint64_t id = 1; id <= kMostVoters; ++id) full.voters.push_back({~id, id});
  for (std::uint64_t id = 1; id <= kMostLearners; ++id) full.learners.push_back({~(1000 + id), id});
  for (auto* ids : {&full.voters, &full.learners}) std::ranges::sort(*ids);
  const auto all = decode_configuration(encode_configuration(full));
  ASSERT_TRUE(all) << all.error().text();
  EXPECT_EQ(*all, full);
  Configuration crowd;
  for (std::uint64_t id = 1; id <= kMostVoters + 1; ++id) crowd.voters.push_back({id, id});
  EXPECT_NE(decode_configuration(encode_configuration(crowd)).error().text().find("voters: more than 5"), std::string::npos);
}

TEST(RaftCodec, OlderAndNewerPeersAreUnderstood) {
  // Shorter: defaults. Longer: the rest is ignored.
  const auto shorter = decode_raft(kFirstRaftType, {1, 1}, bytes_of({0x92, 0x90, 0x90}));
  ASSERT_TRUE(shorter) << shorter.error().text();
  EXPECT_EQ(std::get<VoteRequest>(shorter->body), VoteRequest{});
  const auto longer = decode_raft(kFirstRaftType, {1, 1}, bytes_of({0x93, 0x90, 0x95, 1, 4, 5, 6, 0xa1, 'x', 0x90}));
  ASSERT_TRUE(longer) << longer.error().text();
  EXPECT_EQ(std::get<VoteRequest>(longer->body), (VoteRequest{true, 4, 5, 6}));
}

TEST(RaftCodec, HostileBytesAreRefused) {
  const std::string deep(100, '\x91');
  for (const std::string& bytes :
       {std::string(), bytes_of({0xc0}), bytes_of({0x80}), bytes_of({0xc1}), bytes_of({0xdd, 0xff, 0xff, 0xff, 0xff}),
        bytes_of({0x92, 0x90, 0x96, 1, 1, 1, 1, 1, 0xdd, 0xff, 0xff, 0xff, 0xff}), deep + bytes_of({0xc0}),
        bytes_of({0x92, 0x90, 0x90, 0x90}), bytes_of({0x90}), bytes_of({0x91, 0x90}), bytes_of({0x92, 0x90, 0xc0}),
        bytes_of({0x92, 0xc0, 0x90}), bytes_of({0x92, 0x91, 0x91, 0xff, 0x90})})
    for (std::uint16_t type = kFirstRaftType; type < kFirstRaftType + kRaftTypes; ++type)
      EXPECT_FALSE(decode_raft(type, {1, 1}, bytes)) << type;
  for (const std::uint16_t type : {0, 1, 63, 64 + static_cast<int>(kRaftTypes), 65535})
    EXPECT_FALSE(decode_raft(type, {1, 1}, bytes_of({0x92, 0x90, 0x90})));
}

}  // namespace
}  // namespace dtrain::test
