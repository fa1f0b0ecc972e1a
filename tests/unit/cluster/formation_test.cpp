// Founders form one cluster, or say for what they wait; stories of what may go wrong meanwhile.
#include <gtest/gtest.h>

#include "tests/unit/cluster/tiny_founders.h"

namespace dtrain::cluster {
namespace {

using namespace formation;

// ---- the usual

TEST(Formation, AllThereFormOneClusterAtOnce) {
  for (const std::size_t count : {1u, 2u, 3u, 5u, 10u, 16u}) {
    TinyFounders founders(count);
    founders.start_all();
    founders.deliver();
    founders.pass(1s);
    ASSERT_EQ(founders.one_cluster(), count);
    const Founding& founding = *founders.at(0).log;
    EXPECT_EQ(founding.proposer, founders.at(0).id);  // the smallest
    EXPECT_EQ(founding.members.size(), count);
    const raft::Configuration configuration = configuration_of(founding);
    EXPECT_EQ(configuration.voters.size(), count < 3 ? 1u : count < 10 ? 3u : 5u);
    EXPECT_EQ(configuration.voters.size() + configuration.learners.size(), count);
    EXPECT_TRUE(configuration.votes(founders.at(0).id));
    EXPECT_EQ(raft::found(history_of(founding), configuration).hard.history.id, founding.cluster);
  }
}

TEST(Formation, WaitsForWhoIsMissingAndSaysSo) {
  TinyFounders founders(3);
  founders.start(0);
  founders.start(2);
  founders.pass(5s);
  EXPECT_EQ(founders.one_cluster(), 0u);
  EXPECT_EQ(founders.core(0).status(),
            "waits for h2, not reachable of 3 founders; `dtrainctl form --without` forms the cluster without "
            "who will not come");
  founders.kill(2);
  founders.pass(5s);
  EXPECT_EQ(founders.core(0).status(), "waits for h2 and h3, not reachable of 3 founders");
  founders.start(1);
  founders.start(2);
  founders.pass(1s);
  EXPECT_EQ(founders.one_cluster(), 3u);
  EXPECT_EQ(founders.core(0).status().find("cluster "), 0u) << founders.core(0).status();
  founders.tell(0, Established{});
  EXPECT_EQ(founders.core(0).status(), "");
  EXPECT_EQ(founders.core(0).deadline(), kNever);
}

TEST(Formation, NothingIsSaidBeforeItIsDurable) {
  TinyFounders founders(3);
  founders.at(1).hold_persists = true;
  founders.start_all();
  founders.pass(5s);
  ASSERT_TRUE(founders.at(1).under_way);
  EXPECT_EQ(founders.one_cluster(), 0u);
  EXPECT_EQ(founders.core(1).deadline(), kNever);
  founders.kill(1);  // the promise is lost: nobody has heard it
  founders.at(1).hold_persists = false;
  founders.start(1);
  founders.pass(5s);
  EXPECT_EQ(founders.one_cluster(), 3u);
}

TEST(Formation, AFailedDiskSaysNothing) {
  TinyFounders founders(3);
  founders.at(1).fail_persists = true;
  founders.start_all();
  founders.pass(5s);
  EXPECT_EQ(founders.one_cluster(), 0u);
  EXPECT_NE(founders.core(1).status().find("the disk failed"), std::string::npos);
  EXPECT_NE(founders.core(0).status().find("waits for h2"), std::string::npos) << founders.core(0).status();
}

TEST(Formation, OtherFoundersAreNotAnswered) {
  TinyFounders founders(3);
  founders.start(0);
  founders.start(1);
  founders.start(2, {"h2", "h3"});
  founders.pass(5s);
  EXPECT_EQ(founders.one_cluster(), 0u);
  EXPECT_EQ(founders.core(1).status(),
            "waits: another machine names the founders h2,h3, this one h1,h2,h3; the cluster's name, `join` and `expect` must be "
            "alike on all of them");
}

TEST(Formation, FoundersAreCheckedBefore) {
  EXPECT_TRUE(check_founders({"h1", "h2"}, "h2", 2));
  EXPECT_TRUE(check_founders({"h1"}, "h1", 0));
  const auto cause = [](std::vector<std::string> names, const std::string& self, std::uint32_t expect) {
    const Status status = check_founders(names, self, expect);
    return status ? "" : status.error().text();
  };
  EXPECT_EQ(cause({"h1", "h2"}, "h1", 3),
            "could not form a cluster: `expect` is 3, and 2 founders are named; name the same founders in "
            "`join` on all of "
            "them, this machine included, and their number in `expect`");
  EXPECT_NE(cause({"h1", "h1"}, "h1", 0).find("a founder is named twice"), std::string::npos);
  EXPECT_NE(cause({"h1"}, "h2", 0).find("'h2' is not among the founders"), std::string::npos);
  EXPECT_NE(cause({"h1", "a,b"}, "h1", 0).find("'a,b' is no name"), std::string::npos);
  EXPECT_NE(cause(std::vector<std::string>(17, "h"), "h", 0).find("named twice"), std::string::npos);
  std::vector<std::string> many;
  for (int i = 0; i < 17; ++i) many.push_back("h" + std::to_string(i));
  EXPECT_NE(cause(many, "h1", 17).find("more than 16 founders"), std::string::npos);
}

// ---- crashes

TEST(Formation, AFounderThatStartsAgainKeepsItsPromise) {
  TinyFounders founders(3);
  founders.at(2).hold_persists = true;
  founders.start_all();
  founders.pass(2s);
  const Founding promised = founders.at(1).disk.promise;
  ASSERT_FALSE(promised.none());
  for (const std::size_t i : {0u, 1u, 2u}) founders.kill(i);
  founders.at(2).hold_persists = false;
  founders.start_all();
  founders.pass(2s);
  EXPECT_EQ(founders.one_cluster(), 3u);
  EXPECT_EQ(founders.at(2).log->cluster, promised.cluster);
}

TEST(Formation, WhoMissedTheBeginningFollows) {
  TinyFounders founders(3);
  founders.hold([](const auto& message) { return message.to == 2 && !message.report.cluster.none(); });
  founders.at(2).hold_persists = true;
  founders.start_all();
  founders.pass(1s);
  founders.finish_persist(2);
  founders.deliver();
  founders.at(2).hold_persists = true;
  founders.pass(2s);
  founders.kill(2);
  founders.at(2).hold_persists = false;
  EXPECT_FALSE(founders.at(2).log);
  founders.start(2);
  founders.pass(1s);
  founders.deliver_held();
  founders.pass(1s);
  EXPECT_EQ(founders.one_cluster(), 3u);
}

// ---- lost disks

TEST(Formation, ALostDiskBeforeTheBeginningIsFormedWithAnew) {
  for (const std::size_t lost : {0u, 1u, 2u}) {
    TinyFounders founders(3);
    founders.at((lost + 1) % 3).hold_persists = true;
    founders.start_all();
    founders.pass(2s);
    founders.kill(lost);
    founders.lose_disk(lost);
    founders.pass(3s);
    founders.at((lost + 1) % 3).hold_persists = false;
    if (founders.at((lost + 1) % 3).under_way) founders.finish_persist((lost + 1) % 3);
    founders.start(lost);
    founders.pass(10s);
    EXPECT_EQ(founders.one_cluster(), 3u) << lost;
    EXPECT_TRUE(founders.at(0).log->has(founders.at(lost).id)) << lost;
  }
}

TEST(Formation, ALostDiskAfterwardsJoinsTheOthers) {
  TinyFounders founders(3);
  founders.start_all();
  founders.pass(1s);
  ASSERT_EQ(founders.one_cluster(), 3u);
  const MemberId cluster = founders.at(0).log->cluster;
  founders.kill(1);
  founders.lose_disk(1);
  founders.start(1);
  founders.pass(2s);
  EXPECT_FALSE(founders.at(1).join);  // its log may never work
  founders.tell(0, Established{});
  founders.pass(2s);
  ASSERT_TRUE(founders.at(1).join);
  EXPECT_EQ(founders.at(1).join->cluster, cluster);
  EXPECT_EQ(founders.at(1).join->seat, 0u);
  EXPECT_NE(founders.core(1).status().find("h1 belongs to cluster"), std::string::npos);
  founders.tell(1, Admitted{cluster});
  EXPECT_EQ(founders.core(1).cluster(), cluster);
  EXPECT_EQ(founders.core(1).deadline(), kNever);
  EXPECT_EQ(founders.one_cluster(), 2u);
}

// The proposer began, h2 followed, and h3 knows only its promise when the proposer's disk is lost: h2 is
// asked first.
TEST(Formation, AProposerThatIsGoneMayHaveBegun) {
  TinyFounders founders(3);
  founders.start_all();
  founders.deliver();
  founders.pass(1s);
  ASSERT_EQ(founders.one_cluster(), 3u);
  founders.kill(0);
  founders.lose_disk(0);
  founders.kill(2);
  founders.at(2).log.reset();
  founders.at(2).disk.started = false;
  founders.cut(1, 2);
  founders.start(2);
  founders.start(0);
  founders.pass(5s);
  EXPECT_EQ(founders.one_cluster(), 1u);
  EXPECT_EQ(founders.core(2).record().withdrawn.size(), 0u);  // h2 may have begun
  founders.cut(1, 2, false);
  founders.pass(5s);
  EXPECT_EQ(founders.one_cluster(), 2u);
  EXPECT_TRUE(founders.at(1).log && founders.at(2).log);
}

// What the proposer said before its disk was lost comes late: h2 and h3 count on it that the other does not
// follow.
TEST(Formation, WordOfAProposerThatIsGoneIsNotFollowed) {
  TinyFounders founders(3);
  founders.hold([](const auto& message) { return message.from == 0 && !message.report.cluster.none(); });
  for (const std::size_t i : {1u, 2u}) founders.at(i).hold_persists = true;
  founders.start_all();
  founders.pass(1s);
  founders.finish_persist(1);
  founders.finish_persist(2);
  // h1 hears both promises and begins; h2 and h3 do not hear each other, nor that.
  founders.cut(1, 2);
  founders.deliver();
  founders.pass(100ms);
  ASSERT_TRUE(founders.at(0).log);
  founders.kill(0);
  founders.lose_disk(0);
  founders.pass(3s);
  for (const std::size_t i : {1u, 2u}) founders.at(i).hold_persists = false;
  founders.start(0);
  founders.cut(1, 2, false);
  founders.pass(1s);
  founders.deliver_held();
  founders.pass(5s);
  EXPECT_EQ(founders.one_cluster(), 3u);
  EXPECT_TRUE(founders.at(1).log->has(founders.at(0).id));
}

// ---- without

TEST(Formation, WithoutAFounderByAnOperatorsWord) {
  TinyFounders founders(3);
  founders.start(0);
  founders.start(1);
  founders.pass(5s);
  ASSERT_TRUE(founders.core(1).form_without({"h3"}));
  founders.pass(2s);
  EXPECT_EQ(founders.one_cluster(), 2u);
  EXPECT_EQ(founders.at(0).log->members.size(), 2u);
  founders.tell(0, Established{});
  founders.start(2);
  founders.pass(2s);
  EXPECT_TRUE(founders.at(2).join);
}

TEST(Formation, WithoutIsRefusedWhereItMakesNoSense) {
  TinyFounders founders(4);
  founders.start(0);
  founders.start(1);
  founders.pass(5s);
  const auto cause = [&](const std::vector<std::string>& names) {
    const Status status = founders.core(0).form_without(names);
    return status ? "" : status.error().text();
  };
  EXPECT_EQ(cause({"h9"}), "could not form a cluster without h9: 'h9' is no founder; the founders are h1,h2,h3,h4");
  EXPECT_EQ(cause({"h1"}), "could not form a cluster without h1: that is this machine");
  EXPECT_EQ(cause({"h2"}), "could not form a cluster without h2: it is there; wait; `status` says for what");
  EXPECT_NE(cause({"h3", "h4"}).find("the others are no majority of the 4 founders"), std::string::npos);
  EXPECT_NE(cause({}).find("no founder was named"), std::string::npos);
  founders.start(2);
  founders.start(3);
  founders.pass(1s);
  EXPECT_NE(cause({"h4"}).find("belongs to cluster"), std::string::npos);
}

TEST(Formation, TheWishEndsWhenWhomItLeavesOutIsThere) {
  TinyFounders founders(3);
  founders.start(0);
  founders.pass(3s);
  ASSERT_TRUE(founders.core(0).form_without({"h3"}));
  founders.start(2);
  founders.pass(3s);
  EXPECT_EQ(founders.one_cluster(), 0u);
  founders.start(1);
  founders.pass(3s);
  EXPECT_EQ(founders.at(0).log->members.size(), 3u);
}

// h1 has begun the cluster of all and died before anybody heard; the others go without it; it gives up when
// it returns.
TEST(Formation, WhoBeganAloneGivesUpWhenMostWithdrew) {
  TinyFounders founders(3);
  founders.hold([](const auto& message) { return message.from == 0 && !message.report.cluster.none(); });
  founders.start_all();
  founders.pass(1s);
  ASSERT_TRUE(founders.at(0).log);
  const MemberId cluster = founders.at(0).log->cluster;
  EXPECT_EQ(founders.one_cluster(), 1u);
  founders.kill(0);
  founders.pass(3s);
  ASSERT_TRUE(founders.core(1).form_without({"h1"}));
  founders.pass(3s);
  ASSERT_TRUE(founders.at(1).log && founders.at(2).log);
  EXPECT_NE(founders.at(1).log->cluster, cluster);
  founders.tell(1, Established{});
  founders.start(0);
  founders.pass(3s);
  founders.deliver_held();
  founders.pass(3s);
  EXPECT_EQ(founders.at(0).abandoned, 1u);
  ASSERT_TRUE(founders.at(0).join);
  EXPECT_EQ(founders.at(0).join->cluster, founders.at(1).log->cluster);
  EXPECT_EQ(founders.one_cluster(), 2u);
}

// The proposer has begun; no other founder may withdraw, whoever lost its disk.
TEST(Formation, AFollowerWithdrawsOnlyAfterItsProposer) {
  TinyFounders founders(3);
  founders.hold([](const auto& message) { return message.from == 0 && !message.report.cluster.none(); });
  founders.start_all();
  founders.pass(1s);
  founders.kill(1);
  founders.lose_disk(1);
  founders.start(1);
  founders.pass(5s);
  EXPECT_TRUE(founders.core(2).record().withdrawn.empty());
  founders.deliver_held();
  founders.hold(nullptr);
  founders.pass(3s);
  EXPECT_EQ(founders.one_cluster(), 2u);
  EXPECT_TRUE(founders.at(2).log);
}

// Of five founders three vote; two of those may have begun.
TEST(Formation, WithoutMostVotersOfAPromiseNothingElseIsPromised) {
  TinyFounders founders(5);
  founders.at(4).hold_persists = true;
  founders.start_all();
  founders.pass(2s);
  for (const std::size_t i : {0u, 1u, 4u}) founders.kill(i);
  founders.at(4).hold_persists = false;
  founders.start(4);
  founders.pass(3s);
  ASSERT_TRUE(founders.core(2).form_without({"h1", "h2"}));
  founders.pass(5s);
  EXPECT_EQ(founders.one_cluster(), 0u);
  EXPECT_EQ(founders.core(2).status(), "cannot form the cluster without the others: they may have begun it; bring one of them up");
  founders.start(0);
  founders.start(1);
  founders.pass(5s);
  EXPECT_EQ(founders.one_cluster(), 5u);
}

// ---- bytes

TEST(Formation, ARecordThatContradictsItselfIsRefused) {
  Record record;
  record.started = true;
  EXPECT_FALSE(Record::decode(record.encode()));
  record.promise = {{1, 1}, {2, 2}, {{0, {2, 2}}, {1, {3, 3}}}};
  EXPECT_TRUE(Record::decode(record.encode()));
  EXPECT_EQ(*Record::decode(record.encode()), record);
  record.withdrawn.push_back({});
  EXPECT_FALSE(Record::decode(record.encode()));
  record.withdrawn.assign(wire::kMostWithdrawn + 1, record.promise);
  EXPECT_FALSE(Record::decode(record.encode()));
  EXPECT_FALSE(Record::decode("x"));
}

TEST(Formation, WhatMakesNoSenseIsCounted) {
  TinyFounders founders(3);
  founders.start(0);
  FormationReport report;
  report.founders = "h1,h2,h3";
  report.seat = 9;
  founders.tell(0, Received{{5, 5}, report});
  report.seat = 0;
  founders.tell(0, Received{{5, 5}, report});
  report.seat = 1;
  founders.tell(0, Received{founders.at(0).id, report});
  EXPECT_EQ(founders.core(0).counters().dropped, 3u);
}

}  // namespace
}  // namespace dtrain::cluster
