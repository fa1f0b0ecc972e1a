// Who may name a package in a job.
#include "common/node/package_rights.h"

#include <gmock/gmock.h>

#include "tests/unit/cluster/ledger_world.h"
#include "tests/unit/node/working_town.h"

namespace dtrain::node {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using wire::MessageType;

const std::string kHers = std::string(64, 'a'), kOther = std::string(64, 'b');

class PackageRightsTest : public cluster::LedgerWorld {
 protected:
  const Caller alice_{"alice", 1000}, mallory_{"mallory", 1001};
  PackageRights rights_{ledger_};
};

TEST_F(PackageRightsTest, WhoGaveItHasIt) {
  EXPECT_FALSE(rights_.may_have(alice_, kHers));
  rights_.gave(alice_, kHers);
  EXPECT_TRUE(rights_.may_have(alice_, kHers));
  EXPECT_FALSE(rights_.may_have(alice_, kOther));
  EXPECT_FALSE(rights_.may_have(mallory_, kHers));
  EXPECT_FALSE(rights_.may_have({"mallory", 1000}, kHers)) << "a user is name and number";
  EXPECT_FALSE(rights_.may_have({"alice", 1001}, kHers));
}

TEST_F(PackageRightsTest, WhoHasAJobWithItHasIt) {
  job::JobSpec spec = cluster::generic_job(1);
  spec.package_digest = kHers;
  submit(spec);
  EXPECT_TRUE(rights_.may_have(alice_, kHers));
  EXPECT_FALSE(rights_.may_have(mallory_, kHers));
  EXPECT_FALSE(rights_.may_have({"alice", 1001}, kHers));
}

TEST_F(PackageRightsTest, TheOldestGiftsAreForgotten) {
  rights_.gave(mallory_, kHers);
  rights_.gave(alice_, kHers);
  for (std::size_t i = 0; i < kGiftsOfUser; ++i) rights_.gave(alice_, "digest " + std::to_string(i));
  EXPECT_FALSE(rights_.may_have(alice_, kHers));
  EXPECT_TRUE(rights_.may_have(alice_, "digest 0"));
  EXPECT_TRUE(rights_.may_have(mallory_, kHers)) << "nobody's are pushed out by others'";
}

class NamedPackages : public WorkingTown {
 protected:
  template <class Reply_, class Query>
  std::string answer(MessageType type, const Query& query, std::uint32_t uid = 1000) {
    const auto reply = ask<Reply_>(*houses[0], type, query, uid);
    return reply ? "" : reply.error().text();
  }
  std::string submitted(const std::string& digest) {
    wire::SubmitRequest request;
    job::JobSpec spec = generic("j", 1);
    spec.package_digest = digest;
    request.spec = wire::encode(spec);
    return answer<wire::SubmitReply>(MessageType::submit, request);
  }
};

TEST_F(NamedPackages, ByADigestAloneNobodyGetsOne) {
  EXPECT_THAT(submitted(kHers),
              HasSubstr("could not submit job: somebody has not given package aaaaaaaaaaaa to the agent of n1, and has no job "
                        "with it"));
  submit(generic("own", 1));
  wire::ActionRequest restart;
  restart.job = "own";
  restart.action = wire::Action::restart;
  restart.package_digest = kHers;
  EXPECT_THAT(answer<wire::Empty>(MessageType::action, restart),
              HasSubstr("could not restart job own with another package: somebody has not"));

  constexpr ConnectionId kUpload = 5000;
  houses[0]->give(ConnectionOpened{kUpload, {"somebody", 1000}});
  houses[0]->give(BlobWritten{kUpload, 1, kHers});
  EXPECT_THAT(submitted(kHers), Not(HasSubstr("has not given")));
  EXPECT_THAT(answer<wire::Empty>(MessageType::action, restart), Not(HasSubstr("has not given")));
  EXPECT_THAT(submitted(kOther), HasSubstr("has not given package bbbbbbbbbbbb"));
  // What everybody is told of it is not enough to name it.
  for (const wire::EventView& event : houses[0]->events()) {
    EXPECT_THAT(event.message + event.object + event.reason, Not(HasSubstr(kHers)));
    if (event.type == "audit.package") {
      EXPECT_EQ(event.object, "aaaaaaaaaaaa");
    }
  }
}

}  // namespace
}  // namespace dtrain::node
