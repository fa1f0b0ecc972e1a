// What torchelastic's @record writes, and what is not that.
#include "common/job/recorded_error.h"

#include <gtest/gtest.h>

#include <string>

#include "common/base/limits.h"

namespace dtrain::job {
namespace {

constexpr ErrorTimes kTimes{WallTime{1'700'000'000'250ms}, WallTime{1'600'000'000'000ms}, WallTime{1'700'000'009'000ms}};

std::optional<RecordedError> read(const std::string& text, ErrorTimes times = kTimes) { return parse_recorded_error(text, times); }

std::string file(const std::string& message, const std::string& seconds, const std::string& stack = "s") {
  return R"({"message": {"message": ")" + message + R"(", "extraInfo": {"py_callstack": ")" + stack + R"(", "timestamp": )" + seconds +
         "}}}";
}

TEST(RecordedError, AsPytorchWritesIt) {
  const auto error =
      read(R"({"message": {"message": "ValueError: no \u00e9tage\nat all", "extraInfo": {"py_callstack": "Traceback:\n  File \"t.py\"\n", )"
           R"("timestamp": "1700000000"}}})");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->message, "ValueError: no \xc3\xa9tage at all");
  EXPECT_EQ(error->stack, "Traceback:\n  File \"t.py\"\n");
  EXPECT_EQ(error->at, kTimes.written) << "within that second the file's own time is finer";
}

TEST(RecordedError, TheFormOfOlderVersions) {
  const auto error = read(R"({"errorCode": 3, "timestamp": 1700000003, "message": "lost"})");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->message, "lost");
  EXPECT_EQ(error->at, WallTime{1'700'000'003'000ms});
  EXPECT_EQ(read(R"({"message": "lost"})")->at, kTimes.written) << "it says no time";
}

TEST(RecordedError, TimesThatCannotBe) {
  EXPECT_EQ(read(file("m", "\"1699999999\""))->at, WallTime{1'699'999'999'999ms}) << "the file was written again since";
  EXPECT_EQ(read(file("m", "\"1700000100\""))->at, kTimes.ended) << "after the end of the process";
  EXPECT_EQ(read(file("m", "\"1\""))->at, kTimes.began) << "before its start";
  for (const char* none : {"\"\"", "\"soon\"", "-5", "0", "1e999", "99999999999999999999", "null", "[1]", "{}", "\"-1700000000\""})
    EXPECT_EQ(read(file("m", none))->at, kTimes.written) << none;
  EXPECT_EQ(read(file("m", "1700000000.75"))->at, kTimes.written);
}

TEST(RecordedError, IsBounded) {
  const std::string long_text(5000, 'x');
  std::string accents = "y";
  for (int i = 0; i < 2000; ++i) accents += "\xc3\xa9";
  const auto error = read(file(accents, "1", long_text + "\\n" + long_text.substr(0, 2000) + "\\nlast"));
  ASSERT_TRUE(error);
  EXPECT_EQ(error->message.size(), limits::kReasonBytes - 1) << "no half of a character";
  EXPECT_EQ(error->stack, long_text.substr(0, 2000) + "\nlast") << "whole lines, the last ones";
  EXPECT_EQ(read(file("m", "1", accents))->stack.size() % 2, 0u);
  EXPECT_FALSE(read(file(std::string(kErrorFileBytes, 'x'), "1")));
}

TEST(RecordedError, WhatIsNone) {
  const std::string whole = file("m", "\"1700000000\"");
  ASSERT_TRUE(read(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(read(whole.substr(0, size))) << size;
  for (const char* other :
       {"{}", "[]", "\"message\"", R"({"message": 5})", R"([{"message": "m"}])", R"({"message": ["m"]})", R"({"other": {"message": "m"}})",
        R"({"message": {"other": {"message": "m"}}})", "{\"message\": \"\xff\"}", "{\"message\": \"a\nb\"}", R"({"message": "\ud800"})"})
    EXPECT_FALSE(read(other)) << other;
  EXPECT_FALSE(read(std::string(20'000, '[')));
  EXPECT_FALSE(read(R"({"a": )" + std::string(100, '[') + std::string(100, ']') + R"(, "message": "m"})")) << "too deep";
  EXPECT_TRUE(read(R"({"a": )" + std::string(50, '[') + std::string(50, ']') + R"(, "message": "m"})"));
}

TEST(RecordedError, CountsBeforeTheEnd) {
  Exit exit;
  exit.ended = WallTime{5ms};
  EXPECT_EQ(failed_at(exit), WallTime{5ms});
  exit.recorded = RecordedError{1, WallTime{2ms}, "m", ""};
  EXPECT_EQ(failed_at(exit), WallTime{2ms});
}

}  // namespace
}  // namespace dtrain::job
