// What is made of how a health check ended.
#include "common/node/host_health.h"

#include <gtest/gtest.h>

namespace dtrain::node {
namespace {

HostCheck ended(std::int32_t code, std::string output = "") { return {code, 0, "", std::move(output)}; }

// "-": nothing new; "(well)"; or the reason. '!' before what turned.
std::string said(HostHealth& health, Duration at, const HostCheck& check) {
  const auto change = health.checked(Instant(at), check);
  if (!change) return "-";
  return (change->turned ? "!" : "") + (change->reason.empty() ? std::string("(well)") : change->reason);
}

TEST(HostHealth, TheFirstLineThatSaysSomething) {
  EXPECT_EQ(first_line(""), "");
  EXPECT_EQ(first_line("\n \r\n/scratch is not mounted\r\nmore\n"), "/scratch is not mounted");
  EXPECT_EQ(first_line("no newline"), "no newline");
  EXPECT_EQ(first_line("a\x1b[31mb\tc\x7f\n"), "a?[31mb?c?");
  EXPECT_EQ(first_line(std::string(5000, 'x')), std::string(kHealthLineBytes, 'x'));
  EXPECT_EQ(first_line("\n\n\n"), "");
}

TEST(HostHealth, WhyAHostIsUnfit) {
  EXPECT_EQ(why_unfit(ended(0, "all is well")), "");
  EXPECT_EQ(why_unfit(ended(3, "disk\n")), "health check ended with 3: disk");
  EXPECT_EQ(why_unfit(ended(1)), "health check ended with 1");
  EXPECT_EQ(why_unfit({0, 11, "", ""}), "health check was killed by signal 11");
  EXPECT_EQ(why_unfit({0, 0, "did not end within 10 s, and was killed", "looking at nfs1\n"}),
            "health check did not end within 10 s, and was killed: looking at nfs1");
}

TEST(HostHealth, TurnsAtOnceAndBack) {
  HostHealth health;
  EXPECT_EQ(said(health, 0s, ended(0)), "(well)") << "known for the first time, and no news";
  EXPECT_EQ(said(health, 1s, ended(0)), "-");
  EXPECT_EQ(said(health, 2s, ended(1, "a")), "!health check ended with 1: a");
  EXPECT_EQ(said(health, 3s, ended(1, "a")), "-");
  EXPECT_EQ(said(health, 4s, ended(0)), "!(well)");
  EXPECT_EQ(said(health, 5s, ended(1, "a")), "!health check ended with 1: a");
}

TEST(HostHealth, IsUnfitFromTheBeginningWhereItsFirstCheckFails) {
  HostHealth health;
  EXPECT_EQ(said(health, 0s, ended(1, "a")), "!health check ended with 1: a");
}

// Everybody hears of it: a line with a figure in it is no news at each run.
TEST(HostHealth, AnotherReasonIsSaidOnceInAWhile) {
  HostHealth health;
  EXPECT_EQ(said(health, 0s, ended(1, "load 71")), "!health check ended with 1: load 71");
  EXPECT_EQ(said(health, 30s, ended(1, "load 72")), "-");
  EXPECT_EQ(said(health, 60s, ended(1, "load 73")), "health check ended with 1: load 73");
  EXPECT_EQ(said(health, 61s, ended(2, "load 74")), "-");
  EXPECT_EQ(said(health, 62s, ended(0)), "!(well)");
}

TEST(HostHealth, WithoutACheckNothingIsKnown) {
  HostHealth health;
  said(health, 0s, ended(1, "a"));
  health.forget();
  EXPECT_EQ(said(health, 1s, ended(0)), "(well)");
}

}  // namespace
}  // namespace dtrain::node
