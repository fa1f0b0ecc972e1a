#include "agent/net/user_names.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

namespace dtrain::net {
namespace {

struct Directory {
  int asked = 0;
  std::optional<std::string> answer;
  UserNames::Lookup lookup() {
    return [this](std::uint32_t) {
      ++asked;
      return answer;
    };
  }
};

constexpr Instant kStart{1h};

TEST(UserNames, IsAskedForOncePerPeriodAndUser) {
  Directory directory{0, "ada"};
  UserNames names(directory.lookup());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(names.name_of(1000, kStart), "ada");
  EXPECT_EQ(directory.asked, 1);
  names.name_of(1001, kStart);
  EXPECT_EQ(directory.asked, 2);
  directory.answer = "ada2";
  EXPECT_EQ(names.name_of(1000, kStart + kUserNameKept - 1ns), "ada");
  EXPECT_EQ(names.name_of(1000, kStart + kUserNameKept), "ada2");
  EXPECT_EQ(directory.asked, 3);
}

TEST(UserNames, AUidWithoutANameIsRememberedForAShorterTime) {
  for (const std::optional<std::string>& none : {std::optional<std::string>(""), std::optional<std::string>()}) {
    Directory directory{0, none};
    UserNames names(directory.lookup());
    EXPECT_EQ(names.name_of(1000, kStart), "");
    directory.answer = "ada";
    EXPECT_EQ(names.name_of(1000, kStart + kNoUserNameKept - 1ns), "");
    EXPECT_EQ(directory.asked, 1);
    EXPECT_EQ(names.name_of(1000, kStart + kNoUserNameKept), "ada");
  }
}

TEST(UserNames, StayWhileTheDirectoryIsAwayAndGoWithTheUser) {
  Directory directory{0, "ada"};
  UserNames names(directory.lookup());
  names.name_of(1000, kStart);
  directory.answer = std::nullopt;
  EXPECT_EQ(names.name_of(1000, kStart + kUserNameKept), "ada");
  EXPECT_EQ(names.name_of(1000, kStart + kUserNameKept + kNoUserNameKept), "ada");
  EXPECT_EQ(directory.asked, 2);
  directory.answer = "";
  EXPECT_EQ(names.name_of(1000, kStart + 2 * kUserNameKept), "");
}

TEST(UserNames, AreBounded) {
  Directory directory{0, "x"};
  UserNames names(directory.lookup());
  for (std::uint32_t uid = 0; uid < 3 * kUserNames; ++uid) names.name_of(uid, kStart + uid * 1ms);
  EXPECT_EQ(names.size(), kUserNames);
  const int asked = directory.asked;
  names.name_of(3 * kUserNames - 1, kStart + 10s);  // the newest is still there
  EXPECT_EQ(directory.asked, asked);
  names.name_of(0, kStart + 10s);  // the oldest is not
  EXPECT_EQ(directory.asked, asked + 1);
}

TEST(UserIds, AreAskedForOncePerPeriod) {
  int asked = 0;
  std::optional<std::uint32_t> answer = 1000;
  UserIds ids([&](const std::string&) {
    ++asked;
    return answer;
  });
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ids.uid_of("ada", kStart), 1000u);
  EXPECT_EQ(asked, 1);
  answer = 1001;
  EXPECT_EQ(ids.uid_of("ada", kStart + kUserNameKept - 1ns), 1000u);
  EXPECT_EQ(ids.uid_of("ada", kStart + kUserNameKept), 1001u);
  // While the directory is away the last that was known stays; who was never known is not nobody.
  answer = std::nullopt;
  EXPECT_EQ(ids.uid_of("ada", kStart + 2 * kUserNameKept), 1001u);
  EXPECT_EQ(ids.uid_of("bob", kStart), std::nullopt);
  answer = UserIds::kNoUid;
  EXPECT_EQ(ids.uid_of("ada", kStart + 3 * kUserNameKept), UserIds::kNoUid);
  answer = 1002;
  EXPECT_EQ(ids.uid_of("ada", kStart + 3 * kUserNameKept + kNoUserNameKept), 1002u) << "an account may be made any moment";
}

TEST(UserNames, TheHostsOwnDirectory) {
  const passwd* own = ::getpwuid(::getuid());
  EXPECT_EQ(look_up_user(::getuid()), own ? own->pw_name : "");
  EXPECT_EQ(look_up_user(4'000'000'123u), "");
  EXPECT_EQ(look_up_uid("root"), 0u);
  EXPECT_EQ(look_up_uid("no-such-user-here"), UserIds::kNoUid);
}

}  // namespace
}  // namespace dtrain::net
