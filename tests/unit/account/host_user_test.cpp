#include "agent/account/host_user.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace dtrain::account {
namespace {

// One answer is kept for a while: it must be nobody else's.
TEST(FindUser, AnswersWhoWasAskedForWhoeverCameBefore) {
  const std::string own = ::getpwuid(::geteuid())->pw_name;
  const passwd* other = ::getpwnam("nobody");
  ASSERT_NE(other, nullptr);
  const uid_t nobody = other->pw_uid;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(find_user({own, 0})->uid, ::geteuid());
    EXPECT_EQ(find_user({"nobody", 0})->uid, nobody);
    EXPECT_EQ(find_user({"nobody", 0})->uid, nobody);
    EXPECT_EQ(find_user({"", nobody})->uid, nobody);
    EXPECT_EQ(find_user({"", ::geteuid()})->uid, ::geteuid());
    EXPECT_FALSE(find_user({"no-such-user-here", 0}));
    EXPECT_EQ(find_user({"", ::geteuid()})->uid, ::geteuid()) << "a refusal changes nothing";
  }
  const auto groups = find_user({"nobody", 0})->groups;
  EXPECT_NE(std::find(groups.begin(), groups.end(), find_user({"nobody", 0})->gid), groups.end());
  std::thread([&] { EXPECT_EQ(find_user({"nobody", 0})->uid, nobody); }).join();
}

}  // namespace
}  // namespace dtrain::account
