#include "common/wire/log_message.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "common/wire/peer.h"
#include "tests/unit/wire/raft_samples.h"

namespace dtrain::test {
namespace {

Forward fixed_forward() { return {{0x1122, 0x3344}, 70'000, 1, "an encoded command"}; }

const AssignmentId kAssignment{17, 2, {"ps", 3}};
LeaseRequest fixed_request() { return {kAssignment, 4, 0x1122334455667788}; }
LeaseAnswer fixed_answer() { return {kAssignment, 0x1122334455667788, true, 70'000}; }

template <class Message>
void has_golden_bytes(const Message& message, const std::string& file, std::uint16_t type) {
  const std::string encoded = encode_log(message);
  EXPECT_EQ(type_of(LogMessage(message)), type);
  const auto path = std::filesystem::path(DTRAIN_SOURCE_DIR) / "tests/golden/raft" / file;
  if (std::getenv("DTRAIN_UPDATE_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << encoded;
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(encoded == std::string(std::istreambuf_iterator<char>(in), {})) << file;
  const auto decoded = decode_log(type, {1, 1}, encoded);
  ASSERT_TRUE(decoded) << decoded.error().text();
  EXPECT_EQ(std::get<Message>(*decoded), message);
  for (std::size_t length = 0; length < encoded.size(); ++length)
    EXPECT_FALSE(decode_log(type, {1, 1}, encoded.substr(0, length))) << file << " " << length;
}

TEST(LogMessage, WhatIsNotRaftsHasItsGoldenBytes) {
  has_golden_bytes(fixed_forward(), "forward.msgpack", 112);
  has_golden_bytes(fixed_request(), "lease_request.msgpack", 113);
  has_golden_bytes(fixed_answer(), "lease_answer.msgpack", 114);
}

TEST(LogMessage, AWordAboutALeaseNamesItsQuestion) {
  LeaseRequest request = fixed_request();
  request.nonce = 0;
  EXPECT_FALSE(decode_log(kLeaseRequestType, {1, 1}, encode_log(request)));
  request = fixed_request();
  request.id.task.role.assign(limits::kNameBytes + 1, 'r');
  EXPECT_FALSE(decode_log(kLeaseRequestType, {1, 1}, encode_log(request)));
  LeaseAnswer answer = fixed_answer();
  answer.id = {};
  EXPECT_FALSE(decode_log(kLeaseAnswerType, {1, 1}, encode_log(answer)));
  EXPECT_FALSE(decode_log(kLeaseAnswerType, {1, 1}, encode_log(fixed_forward())));
  EXPECT_EQ(lane_of(fixed_request(), 100), Lane::gossip);
}

TEST(LogMessage, EveryRaftMessageGoesThrough) {
  for (const auto& [name, body] : fixed_raft_bodies()) {
    const LogMessage message = RaftMessage{fixed_raft_header(), body};
    ASSERT_TRUE(is_log_type(type_of(message))) << name;
    const auto decoded = decode_log(type_of(message), fixed_raft_header().sender, encode_log(message));
    ASSERT_TRUE(decoded) << name;
    EXPECT_EQ(std::get<RaftMessage>(*decoded), std::get<RaftMessage>(message)) << name;
  }
  for (const std::uint16_t other : {0, 1, 11, 63, 74, 111, 115, 128}) EXPECT_FALSE(is_log_type(other)) << other;
}

TEST(LogMessage, OnlyWhatIsLargeGoesOnTheBulkLane) {
  for (const auto& [name, body] : fixed_raft_bodies())
    EXPECT_EQ(lane_of(RaftMessage{{}, body}, 100), name == "snapshot_chunk" ? Lane::bulk : Lane::gossip) << name;
  EXPECT_EQ(lane_of(RaftMessage{{}, AppendRequest{}}, kGossipMessageBytes), Lane::gossip);
  EXPECT_EQ(lane_of(RaftMessage{{}, AppendRequest{}}, kGossipMessageBytes + 1), Lane::bulk);
  EXPECT_EQ(lane_of(fixed_forward(), kGossipMessageBytes + 1), Lane::bulk);
}

TEST(LogMessage, DamagedBytesAreRefused) {
  const std::string good = encode_log(fixed_forward());
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(decode_log(kForwardType, {1, 1}, good.substr(0, length))) << length;
  EXPECT_FALSE(decode_log(kForwardType, {1, 1}, encode_log(Forward{})));
  Forward large = fixed_forward();
  large.body.assign(kEntryBytes + 1, 'x');
  EXPECT_FALSE(decode_log(kForwardType, {1, 1}, encode_log(large)));
  EXPECT_EQ(decode_log(kForwardType, {1, 1}, std::string(kRaftMessageBytes + 1, 'x')).error().code, ErrorCode::limit);
}

TEST(LogMessage, ItsHeaderPassesLikeThatOfGossip) {
  PeerHeader header;
  header.cluster = {1, 2};
  header.sender = {5, 5};
  LinkAuth owner;
  owner.curve = true;
  owner.node = {5, 5};
  LinkAuth stranger = owner;
  stranger.node = {6, 6};
  for (const std::uint16_t type : {64, 73, 112, 114}) {
    header.type = type;
    const std::string bytes = encode_header(header);
    EXPECT_TRUE(check_header(bytes, kRaftMessageBytes, {9, 9}, {1, 2}, owner).ok) << type;
    EXPECT_EQ(check_header(bytes, kRaftMessageBytes + 1, {9, 9}, {1, 2}, owner).drop, Drop::too_large) << type;
    EXPECT_EQ(check_header(bytes, 10, {9, 9}, {1, 2}, stranger).drop, Drop::not_the_key_holder) << type;
    EXPECT_EQ(check_header(bytes, 10, {9, 9}, {3, 4}, owner).drop, Drop::other_cluster) << type;
    EXPECT_EQ(check_header(bytes, 10, {9, 9}, {}, owner).drop, Drop::other_cluster) << type;
  }
}

}  // namespace
}  // namespace dtrain::test
