// Sick and well, as a table: what comes, and what is said of the GPU then.
#include "common/node/gpu_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace dtrain::node {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char* kPci = "0000:10:00.0";

GpuSample good() {
  GpuSample sample;
  sample.pci = kPci;
  sample.celsius = 60;
  sample.slowdown = 92;
  sample.uncorrected = 0;
  return sample;
}
GpuSample of(const std::function<void(GpuSample&)>& change) {
  GpuSample sample = good();
  change(sample);
  return sample;
}
GpuSample hot() {
  return of([](GpuSample& s) { s.celsius = 92; });
}

// After each sample: "-" nothing new, "well", or why it is sick.
std::vector<std::string> said(GpuHealth& health, const std::vector<GpuSample>& samples) {
  std::vector<std::string> all;
  for (const GpuSample& sample : samples) {
    const auto changes = health.sampled({sample});
    EXPECT_LE(changes.size(), 1u);
    for (const GpuHealth::Change& change : changes) EXPECT_EQ(change.pci, sample.pci);
    all.push_back(changes.empty() ? "-" : changes[0].reason.empty() ? "well" : changes[0].reason);
  }
  return all;
}
std::vector<std::string> said(const std::vector<GpuSample>& samples) {
  GpuHealth health;
  return said(health, samples);
}

TEST(GpuHealth, WhatIsBrokenIsSickAtOnceAndForGood) {
  struct Row {
    GpuSample sample;
    const char* reason;
  };
  const Row rows[] = {
      {of([](GpuSample& s) { s.lost = "it is not on the bus any more"; }), "it is not on the bus any more"},
      {of([](GpuSample& s) { s.uncorrected = 1; }), "1 memory error that ECC could not correct"},
      {of([](GpuSample& s) { s.uncorrected = 7; }), "7 memory errors that ECC could not correct"},
      {of([](GpuSample& s) { s.remap_pending = true; }), "memory rows are to be replaced at its next reset"},
      {of([](GpuSample& s) { s.remap_pending = s.remap_failed = true; }), "memory rows could not be replaced"},
  };
  for (const Row& row : rows) {
    std::vector<GpuSample> samples{good(), row.sample, row.sample};
    samples.insert(samples.end(), 2 * kCoolSamples, good());
    std::vector<std::string> expected(samples.size(), "-");
    expected[1] = row.reason;
    EXPECT_EQ(said(samples), expected) << row.reason;
  }
}

TEST(GpuHealth, HeatMustLastAndGoesAway) {
  EXPECT_THAT(said({hot(), hot(), good(), hot(), hot()}), ElementsAre("-", "-", "-", "-", "-"));
  GpuHealth health;
  EXPECT_THAT(said(health, {hot(), hot(), hot(), hot()}), ElementsAre("-", "-", "too hot: 92 C, it slows itself down at 92 C", "-"));
  EXPECT_THAT(said(health, {good(), good(), good(), good(), hot()}), ElementsAre("-", "-", "-", "-", "-"));
  EXPECT_THAT(said(health, {good(), good(), good(), good(), good(), good()}), ElementsAre("-", "-", "-", "-", "well", "-"));
}

TEST(GpuHealth, ALibraryThatRefusesMustDoSoForLongAndMayBeMended) {
  const GpuSample mute = of([](GpuSample& s) { s.refused = "NVML: Driver Not Loaded", s.celsius.reset(); });
  const GpuSample told = of([](GpuSample& s) { s.refused = ""; });
  EXPECT_THAT(said({mute, mute, told, mute, mute, told}), ElementsAre("-", "-", "-", "-", "-", "-"));
  GpuHealth health;
  EXPECT_THAT(said(health, {mute, mute, mute, mute}), ElementsAre("-", "-", "NVML: Driver Not Loaded", "-"));
  // Where it was not asked, or hangs, that says nothing.
  EXPECT_EQ(said(health, std::vector<GpuSample>(kToldSamples, good())), std::vector<std::string>(kToldSamples, "-"));
  EXPECT_THAT(said(health, {told, told, told, told, mute, told}), ElementsAre("-", "-", "-", "-", "-", "-"));
  EXPECT_THAT(said(health, {told, told, told, told, told}), ElementsAre("-", "-", "-", "well", "-"));
}

TEST(GpuHealth, WhatIsLeftOfTwoCausesIsSaid) {
  const GpuSample mute_and_hot = of([](GpuSample& s) { s.refused = "NVML: Driver Not Loaded", s.celsius = 92; });
  const GpuSample told_and_hot = of([](GpuSample& s) { s.refused = "", s.celsius = 92; });
  GpuHealth health;
  EXPECT_THAT(said(health, {mute_and_hot, mute_and_hot, mute_and_hot}), ElementsAre("-", "-", "NVML: Driver Not Loaded"));
  EXPECT_THAT(said(health, {told_and_hot, told_and_hot, told_and_hot, told_and_hot, told_and_hot}),
              ElementsAre("-", "-", "-", "-", "too hot: 92 C, it slows itself down at 92 C"));
  EXPECT_THAT(said(health, {good(), good(), good(), good(), good()}), ElementsAre("-", "-", "-", "-", "well"));
}

TEST(GpuHealth, WhatIsNotKnownSaysNothing) {
  const GpuSample unknown = of([](GpuSample& s) { s.celsius.reset(), s.slowdown.reset(), s.uncorrected.reset(); });
  const GpuSample no_limit = of([](GpuSample& s) { s.celsius = 200, s.slowdown.reset(); });
  EXPECT_THAT(said({unknown, no_limit, no_limit, no_limit}), ElementsAre("-", "-", "-", "-"));
  GpuHealth health;
  said(health, {hot(), hot(), hot()});
  EXPECT_EQ(said(health, std::vector<GpuSample>(kCoolSamples, unknown)), std::vector<std::string>(kCoolSamples, "-"));
}

TEST(GpuHealth, HeatThatBreaksItStays) {
  GpuHealth health;
  said(health, {hot(), hot(), hot()});
  EXPECT_THAT(said(health, {of([](GpuSample& s) { s.uncorrected = 2; })}), ElementsAre("2 memory errors that ECC could not correct"));
  EXPECT_EQ(said(health, std::vector<GpuSample>(kCoolSamples, good())), std::vector<std::string>(kCoolSamples, "-"));
}

TEST(GpuHealth, AnXidOfTheGpuIsSicknessAndOneOfTheProgramIsNot) {
  for (const std::uint32_t xid : {48u, 62u, 63u, 64u, 74u, 79u, 94u, 95u, 119u, 120u, 140u}) {
    GpuHealth health;
    const auto change = health.faulted({kPci, xid, "GPU has fallen off the bus."});
    ASSERT_TRUE(change) << xid;
    EXPECT_EQ(change->pci, kPci);
    EXPECT_EQ(change->reason, "Xid " + std::to_string(xid) + ": GPU has fallen off the bus.");
    EXPECT_FALSE(health.faulted({kPci, xid, ""}));  // said once
    EXPECT_EQ(said(health, std::vector<GpuSample>(2 * kCoolSamples, good())), std::vector<std::string>(2 * kCoolSamples, "-"));
    EXPECT_TRUE(health.faulted({"0000:20:00.0", xid, ""}));  // another GPU
  }
  for (const std::uint32_t xid : {0u, 8u, 13u, 31u, 43u, 45u}) EXPECT_FALSE(GpuHealth().faulted({kPci, xid, "x"})) << xid;
  EXPECT_FALSE(GpuHealth().faulted({"", 79, "of which is not said"}));
}

TEST(GpuHealth, KeepsGpusApart) {
  GpuHealth health;
  GpuSample other = hot();
  other.pci = "0000:20:00.0";
  std::vector<GpuHealth::Change> changes;
  for (unsigned i = 0; i < kHotSamples; ++i) changes = health.sampled({good(), other});
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].pci, "0000:20:00.0");
  EXPECT_THAT(health.sampled({}), IsEmpty());
}

}  // namespace
}  // namespace dtrain::node
