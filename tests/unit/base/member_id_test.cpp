#include "common/base/member_id.h"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

namespace dtrain {
namespace {

TEST(MemberId, IsWrittenAs32Digits) {
  const MemberId id{0x0123456789abcdef, 0xfedcba9876543210};
  EXPECT_EQ(id.text(), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(MemberId::parse(id.text()), id);
  EXPECT_EQ(MemberId{}.text(), std::string(32, '0'));
  EXPECT_TRUE(MemberId{}.none());
  EXPECT_FALSE((MemberId{0, 1}.none()));
}

TEST(MemberId, ReadsNothingElse) {
  for (const std::string& text :
       {std::string(), std::string(31, '1'), std::string(33, '1'), std::string(31, '1') + "g", std::string(31, '1') + "A",
        std::string(31, '1') + " ", "0x" + std::string(30, '1'), std::string(16, '1') + std::string(16, '\0')})
    EXPECT_FALSE(MemberId::parse(text)) << text;
}

RC_GTEST_PROP(MemberId, SurvivesText, (std::uint64_t high, std::uint64_t low)) {
  const MemberId id{high, low};
  RC_ASSERT(MemberId::parse(id.text()) == id);
}

RC_GTEST_PROP(MemberId, SortsAsItsTextDoes, (std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d)) {
  const MemberId one{a, b}, other{c % 3 == 0 ? a : c, d};
  RC_ASSERT((one < other) == (one.text() < other.text()));
}

}  // namespace
}  // namespace dtrain
