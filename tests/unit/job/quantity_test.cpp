#include "common/job/quantity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "common/job/manifest.h"
#include "common/job/text.h"

namespace dtrain::job {
namespace {

using ::testing::HasSubstr;

TEST(Quantity, Cpus) {
  for (const auto& [text, millis] : std::vector<std::pair<std::string, std::uint64_t>>{
           {"1", 1000}, {"0", 0}, {"500m", 500}, {"1.5", 1500}, {"0.001", 1}, {".5", 500}, {"2.", 2000}, {"1.500", 1500}, {"007", 7000}})
    EXPECT_EQ(parse_cpus(text).value_or(99), millis) << text;
  for (const char* text :
       {"", "m", ".", "-1", "1 ", " 1", "1M", "1e3", "0.0001", "0.5m", "1.2.3", "99999999999999999999", "1000001", "one"})
    EXPECT_FALSE(parse_cpus(text)) << text;
}

TEST(Quantity, Memory) {
  for (const auto& [text, bytes] : std::vector<std::pair<std::string, std::uint64_t>>{{"0", 0},
                                                                                      {"1", 1},
                                                                                      {"8Gi", 8ull << 30},
                                                                                      {"500M", 500'000'000},
                                                                                      {"500k", 500'000},
                                                                                      {"500K", 500'000},
                                                                                      {"1.5Ki", 1536},
                                                                                      {"1e3", 1000},
                                                                                      {"1E3", 1000},
                                                                                      {"1E", 1'000'000'000'000'000'000},
                                                                                      {"5e-1", 1},
                                                                                      {"1.1Ki", 1127},
                                                                                      {"7Ei", 7ull << 60},
                                                                                      {"2Ti", 2ull << 40},
                                                                                      {"1e+3", 1000}})
    EXPECT_EQ(parse_memory(text).value_or(99), bytes) << text;
  for (const char* text : {"", "Gi", "-1", "8GB", "8gi", "8 Gi", "1e", "1e-", "1e99", "1e100", "8Ei", "9999999999999999999", "1m", "lots"})
    EXPECT_FALSE(parse_memory(text)) << text;
}

TEST(Quantity, Durations) {
  for (const auto& [text, span] : std::vector<std::pair<std::string, Duration>>{
           {"0", 0s}, {"0s", 0s}, {"100ms", 100ms}, {"90s", 90s}, {"10m", 10min}, {"6h", 6h}, {"7d", 168h}, {"3650d", kLongestDuration}})
    EXPECT_EQ(parse_duration(text).value_or(-1s), span) << text;
  for (const char* text : {"", "1", "s", "1.5s", "-1s", "1 s", "1w", "1S", "3651d", "99999999999999999999s", "1s1s"})
    EXPECT_FALSE(parse_duration(text)) << text;
}

TEST(Quantity, Signals) {
  for (const char* text : {"SIGUSR1", "USR1", "10"}) EXPECT_EQ(parse_signal(text).value_or(0), SIGUSR1) << text;
  EXPECT_EQ(parse_signal("64").value_or(0), 64);
  for (const char* text : {"", "0", "65", "-1", "SIG", "sigterm", "SIGSIGTERM", "015x", "100"}) EXPECT_FALSE(parse_signal(text)) << text;
}

TEST(Quantity, ErrorsSayWhatWouldBeRight) {
  EXPECT_EQ(parse_cpus("many").error().message, "must be a number of CPUs such as 2, 1.5 or 500m, not `many`");
  EXPECT_THAT(parse_memory("8GB").error().message, HasSubstr("8Gi"));
  EXPECT_THAT(parse_duration("5").error().message, HasSubstr("30s"));
}

TEST(Quantity, Written) {
  EXPECT_EQ(format_cpus(1500), "1500m");
  EXPECT_EQ(format_cpus(2000), "2");
  EXPECT_EQ(format_memory(8ull << 30), "8Gi");
  EXPECT_EQ(format_memory(1500), "1500");
  EXPECT_EQ(format_memory(0), "0");
  EXPECT_EQ(format_duration(0s), "0s");
  EXPECT_EQ(format_duration(90s), "90s");
  EXPECT_EQ(format_duration(1500ms), "1500ms");
  EXPECT_EQ(format_duration(48h), "2d");
  EXPECT_EQ(format_signal(SIGTERM), "SIGTERM");
  EXPECT_EQ(format_signal(40), "40");
}

TEST(Text, Names) {
  for (const char* name : {"a", "a-b", "0", "a1-2b"}) EXPECT_TRUE(is_job_name(name)) << name;
  for (const char* name : {"", "-a", "a-", "A", "a.b", "a_b", "a b", "\xc3\xa4"}) EXPECT_FALSE(is_job_name(name)) << name;
  for (const char* name : {"a", "ps", "worker2", "abcdefghijklmno"}) EXPECT_TRUE(is_role_name(name)) << name;
  for (const char* name : {"", "2a", "a-b", "Ps", "abcdefghijklmnop"}) EXPECT_FALSE(is_role_name(name)) << name;
}

TEST(Text, QuotingIsShortAndHarmless) {
  EXPECT_EQ(in_quotes("a\x1b[2J"), "`a\\x1b[2J`");
  EXPECT_EQ(in_quotes("\xff"), "`\\xff`");
  EXPECT_EQ(in_quotes(std::string(1000, 'x')).size(), kQuotedBytes + 4);
  EXPECT_EQ(one_of({"a"}), "a");
  EXPECT_EQ(one_of({"a", "b", ""}), "a, b or \"\"");
}

TEST(Nearest, FindsWhatWasMeant) {
  const std::vector<std::string> known{"replicas", "command", "env", "resources"};
  EXPECT_EQ(nearest("replica", known), "replicas");
  EXPECT_EQ(nearest("comand", known), "command");
  EXPECT_EQ(nearest("commnad", known), "command");
  EXPECT_EQ(nearest("REPLICAS", known), "replicas");
  EXPECT_EQ(nearest("evn", known), "env");
  EXPECT_EQ(nearest("volume", known), "");
  EXPECT_EQ(nearest("", known), "");
  EXPECT_EQ(nearest(std::string(100'000, 'r'), known), "");
}

}  // namespace
}  // namespace dtrain::job
