#include "agent/dtrainctl/render.h"

#include <gtest/gtest.h>

#include <sstream>

#include "agent/dtrainctl/tables.h"

namespace dtrain::ctl {
namespace {

Table sample() {
  Table table(
      {{"NAME"}, {"STATE", 0, false, false, true}, {"AGE", 2, false, true}, {"ID", 3, false, false, false, true}, {"REASON", 4, true}});
  table.add({"digits", "Running", "3m", "17", ""});
  table.add({"mnist", "Failed", "12m", "9", "worker-1 failed five times within six hours"});
  return table;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

}  // namespace

TEST(Render, WithoutATerminalNothingIsCut) {
  EXPECT_EQ(sample().render({}),
            "NAME    STATE    AGE  REASON\n"
            "digits  Running   3m\n"
            "mnist   Failed   12m  worker-1 failed five times within six hours\n");
}

TEST(Render, WideShowsMore) { EXPECT_EQ(lines(sample().render({0, false, true}))[1], "digits  Running   3m  17"); }

TEST(Render, LongTextIsCutFirst) {
  EXPECT_EQ(sample().render({40, false, false}),
            "NAME    STATE    AGE  REASON\n"
            "digits  Running   3m\n"
            "mnist   Failed   12m  worker-1 failed f…\n");
}

TEST(Render, ThenColumnsAreLeftOut) {
  EXPECT_EQ(sample().render({25, false, false}),
            "NAME    STATE    AGE\n"
            "digits  Running   3m\n"
            "mnist   Failed   12m\n");
  EXPECT_EQ(lines(sample().render({16, false, false}))[0], "NAME    STATE");
}

TEST(Render, EveryWidthHolds) {
  for (std::size_t width = 1; width < 100; ++width)
    for (const std::string& line : lines(sample().render({width, false, true}))) EXPECT_LE(text_width(line), width) << line;
}

TEST(Render, ColoursAreNoWidth) {
  const std::string text = sample().render({40, true, false});
  EXPECT_NE(text.find("\033[32mRunning\033[0m"), std::string::npos);
  EXPECT_NE(text.find("\033[31mFailed \033[0m  12m"), std::string::npos);
}

TEST(Render, CellsCannotHoldControls) {
  Table table({{"STATUS"}});
  table.add({"a\033[2J\nb"});
  EXPECT_EQ(table.render({}), "STATUS\na?[2J?b\n");
}

TEST(Render, CutsAtCharacters) {
  EXPECT_EQ(cut("äöü", 3), "äöü");
  EXPECT_EQ(cut("äöüß", 3), "äö…");
  EXPECT_EQ(cut("abc", 0), "");
}

TEST(Render, TablesOfEachKindFit) {
  wire::JobView job;
  job.name = std::string(63, 'j');
  job.state = "Recovering";
  job.framework = "tensorflow";
  job.roles["worker"] = {4, 3, 3, 1, 0};
  job.reason = std::string(300, 'r');
  wire::TaskView task;
  task.task = "worker-1";
  task.state = "Running";
  task.address = "127.0.0.1:20000";
  task.status = std::string(256, 's');
  for (const std::size_t width : {40u, 80u, 120u}) {
    for (const std::string& line : lines(jobs_table({job}, {width, false, true}))) EXPECT_LE(text_width(line), width);
    for (const std::string& line : lines(tasks_table({task}, {width, false, false}))) EXPECT_LE(text_width(line), width);
  }
  EXPECT_EQ(ready_text(job), "4/4");
}

TEST(Render, ProcessesOfRanksAndWhatStandsStill) {
  wire::TaskView task;
  task.task = "worker-0";
  task.state = "Running";
  task.pid = 11;
  task.status = "step 3";
  task.ranks = wire::RanksView{4, 3};
  const auto row = [&] { return lines(tasks_table({task}, {0, false, false}))[1]; };
  EXPECT_NE(row().find("4-6   11"), std::string::npos) << row();
  task.pids = {11, 0, 13};
  EXPECT_NE(row().find("4-6  11,-,13"), std::string::npos) << row();
  task.reason = "rank 2 was stopped";
  EXPECT_TRUE(row().ends_with("rank 2 was stopped; step 3")) << row();
  task.state = "Backoff";
  EXPECT_TRUE(row().ends_with(" step 3")) << row();
}

}  // namespace dtrain::ctl
