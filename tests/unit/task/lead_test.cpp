#include "common/task/lead.h"

#include <gtest/gtest.h>

namespace dtrain::task {
namespace {

constexpr std::int64_t kMs = 1'000'000;

TEST(Lead, HoldsWhoHasCaughtUpWhileTheFirstIsAwake) {
  Lead lead;
  EXPECT_EQ(lead.due(), 0);
  EXPECT_FALSE(lead.holds({1'000'000}));
  lead.begin(7 * kMs);
  EXPECT_EQ(lead.due(), 12 * kMs);
  lead.look(12 * kMs, {10'000}, 2);
  EXPECT_FALSE(lead.holds({9'500}));
  EXPECT_TRUE(lead.holds({9'501}));
  EXPECT_TRUE(lead.holds({20'000}));
  EXPECT_EQ(lead.due(), 17 * kMs);
}

TEST(Lead, EndsWhereTheFirstSleepsAndAnotherIsNear) {
  Lead lead;
  lead.begin(0);
  lead.look(5 * kMs, {10'000, true}, 2);
  EXPECT_FALSE(lead.holds({9'750}));  // it may only be reading a pipe
  EXPECT_NE(lead.due(), 0);
  EXPECT_FALSE(lead.holds({9'751}));
  EXPECT_EQ(lead.due(), 0);
  lead.look(10 * kMs, {10'000, true}, 2);
}

TEST(Lead, HoldsForASecondInAll) {
  Lead lead;
  lead.begin(0);
  std::int64_t now = 0, held = 0;
  bool before = false;
  for (int i = 0; lead.due() != 0; ++i) {
    ASSERT_LT(now, 10'000 * kMs);
    held += before ? lead.due() - now : 0;
    now = lead.due();
    lead.look(now, {1'000}, 2);
    before = lead.holds({i % 2 == 0 ? 1'000u : 0u});
  }
  EXPECT_EQ(held, Lead::kMostHeld);
  EXPECT_FALSE(lead.holds({1'000}));
}

TEST(Lead, EndsAfterAMinuteAndLooksLessOftenAtMany) {
  for (const std::uint32_t ranks : {2u, 256u}) {
    Lead lead;
    lead.begin(0);
    std::int64_t now = 0;
    std::uint64_t looks = 0;
    for (; lead.due() != 0; ++looks) {
      now = lead.due();
      lead.look(now, {1'000}, ranks);
      EXPECT_FALSE(lead.holds({0}));
    }
    EXPECT_GE(now, Lead::kLongest);
    EXPECT_LE(looks * ranks, 12'001u * 2 * 16);
  }
}

}  // namespace
}  // namespace dtrain::task
