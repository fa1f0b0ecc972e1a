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
    EXPECT_EQ(find_user({own, ::geteuid()})->uid, ::geteuid());
    EXPECT_EQ(find_user({"nobody", nobody})->uid, nobody);
    EXPECT_EQ(find_user({"nobody", nobody})->uid, nobody);
    EXPECT_EQ(find_user({"", nobody})->uid, nobody);
    EXPECT_EQ(find_user({"", ::geteuid()})->uid, ::geteuid());
    EXPECT_FALSE(find_user({"no-such-user-here", 0}));
    EXPECT_EQ(find_user({"", ::geteuid()})->uid, ::geteuid()) << "a refusal changes nothing";
  }
  const auto groups = find_user({"nobody", nobody})->groups;
  EXPECT_NE(std::find(groups.begin(), groups.end(), find_user({"nobody", nobody})->gid), groups.end());
  std::thread([&] { EXPECT_EQ(find_user({"nobody", nobody})->uid, nobody); }).join();
}

// Who has the name of another host's user, or that user's number, need not be that user.
TEST(FindUser, RefusesANameWithAnotherNumber) {
  const auto found = find_user({"nobody", 4242});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::refused);
  EXPECT_EQ(found.error().message.find("could not act as user nobody: that name has uid "), 0u) << found.error().message;
  EXPECT_FALSE(find_user({"root", 4242}));
}

TEST(FindUser, RefusesRootWhereJobsMayNotBeRoots) {
  ASSERT_TRUE(find_user({"root", 0}));
  ASSERT_TRUE(find_user({"nobody", ::getpwnam("nobody")->pw_uid}));  // and root's answer is not kept any more
  let_jobs_be_roots(false);
  const auto by_name = find_user({"root", 0}), by_number = find_user({"", 0});
  let_jobs_be_roots(true);
  ASSERT_FALSE(by_name);
  EXPECT_NE(by_name.error().message.find("this host runs no jobs as root"), std::string::npos);
  EXPECT_FALSE(by_number);
}

}  // namespace
}  // namespace dtrain::account
