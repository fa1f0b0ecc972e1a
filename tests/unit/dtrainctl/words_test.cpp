#include "agent/dtrainctl/words.h"

#include <gtest/gtest.h>

#include <csignal>

namespace dtrain::ctl {

TEST(Words, Age) {
  EXPECT_EQ(age_text(-3), "0s");
  EXPECT_EQ(age_text(59), "59s");
  EXPECT_EQ(age_text(60), "1m");
  EXPECT_EQ(age_text(192), "3m12s");
  EXPECT_EQ(age_text(5 * 3600), "5h");
  EXPECT_EQ(age_text(2 * 86'400 + 4 * 3600 + 59), "2d4h");
}

TEST(Words, Bytes) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(64ull << 30), "64 GiB");
}

TEST(Words, Exit) {
  wire::ExitView exit;
  EXPECT_EQ(exit_text(std::nullopt), "");
  exit.code = 3;
  EXPECT_EQ(exit_text(exit), "3");
  exit.code.reset();
  exit.signal = "SIGKILL";
  exit.cause = "out of memory";
  EXPECT_EQ(exit_text(exit), "SIGKILL (out of memory)");
  EXPECT_EQ(exit_text(wire::ExitView{}), "unknown");
}

TEST(Words, SignalNumbers) {
  EXPECT_EQ(signal_number("SIGKILL"), SIGKILL);
  EXPECT_EQ(signal_number("SIGTERM"), SIGTERM);
  EXPECT_EQ(signal_number("nonsense"), 0);
}

TEST(Words, NothingMovesTheCursor) {
  EXPECT_EQ(printable("step 3 \xc3\xa4 ok"), "step 3 \xc3\xa4 ok");
  EXPECT_EQ(printable("\033[2Jgone\n"), "?[2Jgone?");
  EXPECT_EQ(printable("\xff\xc3"), "??");
  EXPECT_EQ(printable("\xc2\x9b"), "?");                         // a control character of eight bits
  EXPECT_EQ(printable("a\u202eb\u2066c\u2013"), "a?b?c\u2013");  // turned around
  EXPECT_EQ(printable("\xed\xa0\x80"), "???");                   // a surrogate
  EXPECT_EQ(printable("\xc0\xaf"), "??");                        // not the shortest form
}

TEST(Since, SpansAndTimes) {
  EXPECT_EQ(parse_since("5m", 1'000'000).value(), 700'000);
  EXPECT_EQ(parse_since("1970-01-01T00:00:01Z", 0).value(), 1000);
  EXPECT_EQ(parse_since("1970-01-01T00:00:01.250Z", 0).value(), 1250);
  EXPECT_EQ(parse_since("1970-01-01T01:00:00+01:00", 0).value(), 0);
  EXPECT_FALSE(parse_since("1970-01-01T00:00:01", 0));
  EXPECT_FALSE(parse_since("1970-01-01T00:00:01Zx", 0));
  EXPECT_FALSE(parse_since("", 0));
}

}  // namespace dtrain::ctl
