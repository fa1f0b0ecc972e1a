#include "common/base/duration_text.h"

#include <gtest/gtest.h>

namespace dtrain {
namespace {

TEST(DurationText, WholeSecondsOrMilliseconds) {
  EXPECT_EQ(duration_text(0s), "0 s");
  EXPECT_EQ(duration_text(1s), "1 s");
  EXPECT_EQ(duration_text(10min), "600 s");
  EXPECT_EQ(duration_text(300ms), "300 ms");
  EXPECT_EQ(duration_text(1500ms), "1500 ms");
  EXPECT_EQ(duration_text(Duration::max()), "9223372036854 ms");
}

TEST(DurationText, PartsOfAMillisecondAreCutOff) {
  EXPECT_EQ(duration_text(999us), "0 s");
  EXPECT_EQ(duration_text(1s - 1ns), "999 ms");
  EXPECT_EQ(duration_text(2s + 1ns), "2 s");
}

TEST(DurationText, BelowNothing) {
  EXPECT_EQ(duration_text(-5s), "-5 s");
  EXPECT_EQ(duration_text(-300ms), "-300 ms");
}

}  // namespace
}  // namespace dtrain
