// What founders report travels before there is a cluster, and whatever it is.
#include <gmock/gmock.h>

#include "tests/unit/net/links_world.h"

namespace dtrain::net::testing {
namespace {

TEST(FormationLinks, FoundersHearEachOtherWithAndWithoutACluster) {
  const ClusterKeys keys{{make_pair()}};
  Agent a(1, keys), b(2, keys);
  for (Agent* agent : {&a, &b}) agent->links->set_cluster({});
  node::SendFormation report;
  report.header.sender = a.id;
  report.report.founders = "a,b";
  report.report.round = 7;
  a.links->send(b.at, report);
  ASSERT_TRUE(run({&a, &b}, [&] { return b.reports.size() == 1; }));
  EXPECT_EQ(b.reports.front().header.sender, a.id);
  EXPECT_EQ(b.reports.front().report, report.report);
  b.links->set_cluster({9, 9});
  report.header.cluster = {3, 4};
  a.links->send(b.at, report);
  ASSERT_TRUE(run({&a, &b}, [&] { return b.reports.size() == 2; }));
}

TEST(FormationLinks, WhoLacksTheKeyIsHeardByNobody) {
  Agent a(1, ClusterKeys{{make_pair()}}), b(2, ClusterKeys{{make_pair()}});
  for (Agent* agent : {&a, &b}) agent->links->set_cluster({});
  node::SendFormation report;
  report.header.sender = a.id;
  a.links->send(b.at, report);
  ASSERT_TRUE(run({&a, &b}, [&] { return b.log.have("net.refused reason=handshake"); }));
  EXPECT_TRUE(b.reports.empty());
}

}  // namespace
}  // namespace dtrain::net::testing
