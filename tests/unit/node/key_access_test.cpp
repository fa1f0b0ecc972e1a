// Which users a key from another machine may stand for.
#include "common/node/key_access.h"

#include <gtest/gtest.h>

#include "common/node/event.h"

namespace dtrain::node {
namespace {

constexpr std::uint32_t kAgent = 500;

TEST(KeyAccess, OrdinaryUsersComeInWhateverTheirRole) {
  EXPECT_TRUE(permit_key({"anne", 1001}, {}, kAgent));
  EXPECT_TRUE(permit_key({"anne", 1001}, {{{"anne", Role::operate}}, Role::view}, 0));
}

TEST(KeyAccess, WhoMayEverythingIsToBeNamed) {
  for (const Caller& caller : {Caller{"root", 0}, Caller{"toor", 0}, Caller{"dtrain", kAgent}}) {
    for (const Access& access : {Access{}, Access{{}, Role::operate}, Access{{{caller.user, Role::submit}}, Role::operate},
                                 Access{{{"someone", Role::operate}}, Role::view}}) {
      const Status may = permit_key(caller, access, kAgent);
      ASSERT_FALSE(may) << caller.user;
      EXPECT_EQ(may.error().code, ErrorCode::refused);
      EXPECT_NE(may.error().text().find("`" + caller.user + ": operate` under access.users"), std::string::npos) << may.error().text();
    }
    EXPECT_TRUE(permit_key(caller, {{{caller.user, Role::operate}}, Role::view}, kAgent)) << caller.user;
  }
}

}  // namespace
}  // namespace dtrain::node
