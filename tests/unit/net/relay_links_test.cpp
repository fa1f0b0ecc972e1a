// Relayed streams travel between members, on their nodes' keys, and in order.
#include <gmock/gmock.h>

#include "tests/unit/net/links_world.h"

namespace dtrain::net::testing {
namespace {

TEST(RelayLinks, MembersHearEachOther) {
  const ClusterKeys keys{{make_pair()}};
  Agent a(1, keys), b(2, keys);
  a.links->know(b.identity());
  b.links->know(a.identity());
  node::RelayPeer to;
  to.to = b.at;
  to.member = b.id;
  to.header.cluster = a.cluster;
  to.header.sender = a.id;
  const wire::RelayOpen open{5, "alice", 1000, 7, 8};
  wire::RelayData data{5, true, 0, std::string(wire::kRelaySegmentBytes, 'x'), 0, 9, false};
  a.links->send(to, open);
  for (int i = 0; i < 10; ++i, data.offset += data.bytes.size()) a.links->send(to, data);
  a.links->send(to, wire::RelayClose{5, true, ErrorCode::limit, "enough", "go"});
  ASSERT_TRUE(run({&a, &b}, [&] { return b.relayed.size() == 12; }));
  EXPECT_EQ(b.relayed.front().message, wire::RelayMessage(open));
  EXPECT_EQ(b.relayed.front().header.sender, a.id);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(std::get<wire::RelayData>(b.relayed[i + 1].message).offset, i * wire::kRelaySegmentBytes);
  EXPECT_EQ(std::get<wire::RelayClose>(b.relayed.back().message).cause, "enough");
}

TEST(RelayLinks, AnotherClusterIsNotHeard) {
  const ClusterKeys keys{{make_pair()}};
  Agent a(1, keys), b(2, keys);
  a.links->know(b.identity());
  b.links->know(a.identity());
  node::RelayPeer to;
  to.to = b.at;
  to.member = b.id;
  to.header.cluster = {6, 6};
  to.header.sender = a.id;
  a.links->send(to, wire::RelayOpen{5, "root", 0, 0, 8});
  ASSERT_TRUE(run({&a, &b}, [&] { return !b.dropped.empty(); }));
  EXPECT_EQ(b.dropped.front().why, wire::Drop::other_cluster);
  EXPECT_TRUE(b.relayed.empty());
}

}  // namespace
}  // namespace dtrain::net::testing
