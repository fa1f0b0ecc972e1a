// Lines of tasks on their way to a screen or a file, progress bars among them.
#include "agent/dtrainctl/log_printer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/unit/dtrainctl/fake_agent.h"

namespace dtrain::ctl {
namespace {

TEST(LogPrinter, KeepsLinesTogether) {
  std::string out;
  LogStyle style;
  style.timestamps = true;
  LogPrinter printer(style, [&](std::string_view text) { out += text; });
  wire::LogChunk c = chunk("");
  c.time_ms = 1000;
  printer.add(c, "half ");
  EXPECT_EQ(out, "");
  printer.add(c, "line\nlast");
  EXPECT_EQ(out, "1970-01-01T00:00:01.000Z half line\n");
  c.attempt = 2;
  printer.add(c, "new\n");  // an attempt's last words end with it
  EXPECT_EQ(out, "1970-01-01T00:00:01.000Z half line\n1970-01-01T00:00:01.000Z last\n1970-01-01T00:00:01.000Z new\n");
}

// A line that carriage returns write anew, as the agent sends it to followers.
wire::LogChunk bar(const std::string& bytes, std::int64_t time_ms = 0, const std::string& task = "worker-0") {
  wire::LogChunk c = chunk(bytes, 1, task);
  c.open = true;
  c.time_ms = time_ms;
  return c;
}

struct Printed {
  explicit Printed(LogStyle style) : printer(style, [this](std::string_view text) { out += text; }) {}
  void add(const wire::LogChunk& c) { printer.add(c, c.bytes); }
  std::string take() { return std::exchange(out, {}); }
  std::string out;
  LogPrinter printer;
};

LogStyle prefixed() {
  LogStyle style;
  style.prefix = true;
  return style;
}

TEST(LogPrinter, LinesOfRanksHaveThemInFront) {
  Printed job(prefixed());
  wire::LogChunk c = chunk("a\n", 1, "worker-1");
  c.rank = 4;
  job.add(c);
  EXPECT_EQ(job.take(), "worker-1.3 | a\n");
  LogStyle style;
  style.ranks = true;
  Printed task(style);
  task.add(c);
  task.add(chunk("no rank\n", 1, "worker-1"));
  EXPECT_EQ(task.take(), "worker-1.3 | a\nno rank\n");
}

TEST(LogPrinter, EachStateOfAProgressBarIsShownAtOnceInPlace) {
  Printed p(prefixed());
  p.add(bar("\rEpoch 1:  0%"));
  EXPECT_EQ(p.take(), "worker-0 | \rworker-0 | Epoch 1:  0%");
  p.add(bar("\rEpoch 1: 50%"));
  EXPECT_EQ(p.take(), "\rworker-0 | Epoch 1: 50%");
  p.add(chunk("\rEpoch 1: 99%\nnext\n"));
  EXPECT_EQ(p.take(), "\rworker-0 | Epoch 1: 99%\nworker-0 | next\n");
  p.add(bar("0%\r"));  // those that write the return behind
  EXPECT_EQ(p.take(), "worker-0 | 0%");
  p.add(bar("5%\r"));
  EXPECT_EQ(p.take(), "\rworker-0 | 5%");
  p.add(chunk(""));  // the task ended in the middle
  EXPECT_EQ(p.take(), "\r\n");
  p.add(chunk("dos line\r\n"));
  EXPECT_EQ(p.take(), "worker-0 | dos line\r\n");
}

TEST(LogPrinter, ABarLeavesItsLineToOthersAndRepeatsNothing) {
  Printed p(prefixed());
  p.add(bar("\r1%"));
  p.take();
  p.add(chunk("loss 3\n", 1, "worker-1"));
  EXPECT_EQ(p.take(), "\nworker-1 | loss 3\n");
  p.add(bar("\r2%", 5));
  EXPECT_EQ(p.take(), "worker-0 | \rworker-0 | 2%");
  p.add(bar("\r7%", 6, "worker-1"));
  EXPECT_EQ(p.take(), "") << "one line after the other for two bars would be a flood";
  p.add(bar("\r8%", 5 + kBarPauseMs, "worker-1"));
  EXPECT_EQ(p.take(), "\nworker-1 | \rworker-1 | 7%\rworker-1 | 8%");
  p.add(chunk("\n"));
  EXPECT_EQ(p.take(), "") << "its last state stands above already";
  p.printer.finish();
  EXPECT_EQ(p.take(), "\n");
}

TEST(LogPrinter, WhereTheScreenHasAPlaceForBarsTheyArePrintedAtTheirEnd) {
  LogStyle style = prefixed();
  style.bars_apart = style.terminal = true;
  Printed p(style);
  p.add(bar("\r\033[31mEpoch 1:  0%"));
  p.add(bar("\rEpoch 1: 50%"));
  EXPECT_EQ(p.take(), "");
  EXPECT_EQ(p.printer.bars(), (std::vector<std::string>{"worker-0 | Epoch 1: 50%"}));
  p.add(chunk("\rEpoch 1: 99%\n"));
  EXPECT_EQ(p.take(), "worker-0 | Epoch 1: 99%\n");
  EXPECT_TRUE(p.printer.bars().empty());
}

TEST(LogPrinter, AnEndlessBarTakesNoMoreMemoryThanItsLine) {
  Printed p(prefixed());
  std::size_t lines = 0;
  for (int i = 0; i < 20'000; ++i) {
    p.add(bar("\rstep " + std::to_string(i)));
    const std::string out = p.take();
    lines += static_cast<std::size_t>(std::count(out.begin(), out.end(), '\n'));
  }
  EXPECT_EQ(lines, 0u) << "no line is broken for its length";
}

TEST(LogPrinter, ColoursOfATaskEndWithItsLine) {
  LogStyle style = prefixed();
  style.terminal = style.color = true;
  Printed p(style);
  p.add(chunk("\033[32mgreen\033[2J\nplain\n"));
  const std::string head = "\033[34mworker-0 |\033[0m ";
  const std::string out = p.take();
  EXPECT_NE(out.find("\033[32mgreen\033[0m\n"), std::string::npos) << out;
  EXPECT_EQ(out.find("2J"), std::string::npos);
  EXPECT_TRUE(out.ends_with(" plain\n")) << out;
}

TEST(LogPrinter, LongLinesAreBroken) {
  std::size_t lines = 0, bytes = 0;
  LogStyle style;
  style.prefix = true;
  LogPrinter printer(style, [&](std::string_view text) {
    lines += static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    bytes += static_cast<std::size_t>(std::count(text.begin(), text.end(), 'x'));
  });
  printer.add(chunk(""), std::string(kLogLineBytes * 2 + 5, 'x') + "\n");
  EXPECT_EQ(lines, 3u);
  EXPECT_EQ(bytes, kLogLineBytes * 2 + 5);
}

TEST(LogResume, CountsBytes) {
  wire::LogsRequest request;
  request.all_attempts = true;
  LogResume resume(request);
  EXPECT_EQ(resume.fresh(chunk("abc")), "abc");
  EXPECT_TRUE(resume.request().all_attempts);
  EXPECT_EQ(resume.fresh(chunk("ab")), "");
  EXPECT_EQ(resume.fresh(chunk("cdef")), "def");
  EXPECT_EQ(resume.fresh(chunk("g")), "g");
  EXPECT_EQ(resume.fresh(chunk("x", 2)), "x");
  EXPECT_EQ(resume.fresh(chunk("y", 1, "ps-0")), "y");
  resume.request();
  EXPECT_EQ(resume.fresh(chunk("abcdefgh")), "h");
}

TEST(LogResume, LatestAttemptGoesOnFromWhereItBegan) {
  LogResume resume(wire::LogsRequest{});
  EXPECT_FALSE(resume.request().all_attempts);
  EXPECT_EQ(resume.fresh(chunk("two", 2)), "two");
  EXPECT_TRUE(resume.request().all_attempts);
  EXPECT_EQ(resume.fresh(chunk("one", 1)), "");
  EXPECT_EQ(resume.fresh(chunk("two and", 2)), " and");
  EXPECT_EQ(resume.fresh(chunk("three", 3)), "three");
}

TEST(LogResume, TailGoesByTime) {
  wire::LogsRequest request;
  request.tail = 2;
  LogResume resume(request);
  wire::LogChunk c = chunk("b\n");
  c.time_ms = 5;
  EXPECT_EQ(resume.fresh(c), "b\n");
  const wire::LogsRequest again = resume.request();
  EXPECT_EQ(again.tail, -1);
  EXPECT_EQ(again.since_ms, 5);
  c.bytes = "b\nc\n";
  EXPECT_EQ(resume.fresh(c), "c\n");
  c.time_ms = 4;  // the clock was set back
  c.bytes = "d\n";
  EXPECT_EQ(resume.fresh(c), "d\n");
}

}  // namespace
}  // namespace dtrain::ctl
