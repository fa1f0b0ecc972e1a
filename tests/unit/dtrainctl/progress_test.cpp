// What `run` shows while a job runs: the block on a terminal, the lines without one.
#include "agent/dtrainctl/progress.h"

#include <gtest/gtest.h>

#include <sstream>

namespace dtrain::ctl {
namespace {

wire::JobUpdate digits(const std::string& state) {
  wire::JobUpdate u;
  u.job.name = "digits";
  u.job.state = state;
  u.job.generation = 1;
  return u;
}

}  // namespace

TEST(Progress, BlockFitsAndHidesTheMany) {
  wire::JobUpdate u = digits("Running");
  for (std::uint32_t i = 0; i < 40; ++i) {
    wire::TaskView task;
    task.task = "worker-" + std::to_string(i);
    task.state = i == 39 ? "Backoff" : "Running";
    task.status = std::string(200, 's');
    u.tasks.push_back(task);
  }
  const auto lines = progress_block(u, {60, false, false});
  ASSERT_EQ(lines.size(), 1 + 1 + kBlockTasks + 1);
  for (const std::string& line : lines) EXPECT_LE(text_width(line), 60u);
  EXPECT_EQ(lines[2].substr(0, 9), "worker-39");
  EXPECT_EQ(lines.back(), "and 28 more");
}

TEST(Progress, PlainSaysOnlyWhatChanged) {
  PlainProgress plain;
  wire::JobUpdate u = digits("Running");
  u.tasks.emplace_back();
  u.tasks[0].task = "worker-0";
  u.tasks[0].state = "Running";
  EXPECT_EQ(plain.changes(u), (std::vector<std::string>{"job digits: Running (generation 1)", "worker-0: Running"}));
  EXPECT_TRUE(plain.changes(u).empty());
  u.tasks[0].attempt = 2;
  u.job.restarts = 1;
  EXPECT_EQ(plain.changes(u), (std::vector<std::string>{"job digits: restarts 1", "worker-0: Running (attempt 2)"}));
  u.tasks[0].reason = "rank 1 was stopped";
  EXPECT_EQ(plain.changes(u), (std::vector<std::string>{"worker-0: rank 1 was stopped"}));
  u.tasks[0].reason.clear();
  EXPECT_EQ(plain.changes(u), (std::vector<std::string>{"worker-0: goes on"}));
}

TEST(Progress, EachGenerationSaysWhatItRestored) {
  PlainProgress plain;
  wire::JobUpdate u = digits("Running");
  u.restored = wire::RestoredView{"/ckpt/step-200", 200};
  EXPECT_EQ(plain.changes(u),
            (std::vector<std::string>{"job digits: Running (generation 1)", "job digits: restored step 200 from /ckpt/step-200"}));
  EXPECT_TRUE(plain.changes(u).empty());
  EXPECT_EQ(progress_block(u, {})[1], "restored step 200 from /ckpt/step-200");
  u.job.generation = 2;
  u.restored = wire::RestoredView{"/ckpt/step-300", 300};
  EXPECT_EQ(plain.changes(u).back(), "job digits: restored step 300 from /ckpt/step-300");
  u.job.generation = 3;
  u.restored.reset();
  EXPECT_EQ(plain.changes(u), std::vector<std::string>{"job digits: Running (generation 3)"});
}

TEST(Progress, ATaskThatComesAgainHasDiedAndNotFailed) {
  PlainProgress plain;
  wire::JobUpdate u = digits("Recovering");
  u.tasks.emplace_back();
  u.tasks[0].task = "worker-0";
  u.tasks[0].state = "Failed";
  EXPECT_EQ(plain.changes(u).back(), "worker-0: Died");
  EXPECT_EQ(progress_block(u, {})[2].substr(0, 14), "worker-0  Died");
  u.job.state = "Failed";
  EXPECT_EQ(plain.changes(u).back(), "worker-0: Failed");
}

TEST(LiveScreen, RedrawsBelowWhatScrolls) {
  std::ostringstream out;
  LiveScreen screen(out);
  screen.draw({"a", "b"});
  out.str("");
  screen.print_above("log\n");
  EXPECT_EQ(out.str(), "\r\033[2A\033[Jlog\na\nb\n");
  out.str("");
  screen.line_typed();
  screen.draw({"c"}, "sure? ");
  EXPECT_EQ(out.str(), "\r\033[3A\033[Jc\nsure? ");
}

// Where the screen cannot be redrawn: tasks that wait for the same pull are not all named again.
TEST(Progress, WhatTasksWaitForIsSaidOnceAndAnew) {
  PlainProgress plain;
  wire::JobUpdate u;
  u.job.state = "Pending";
  for (const char* name : {"worker-0", "worker-1"}) {
    u.tasks.emplace_back();
    u.tasks.back().task = name;
    u.tasks.back().state = "Fetching";
  }
  EXPECT_EQ(plain.changes(u).size(), 3u);
  const auto told = [&](const std::string& reason) {
    for (wire::TaskView& task : u.tasks) task.reason = reason;
    return plain.changes(u);
  };
  EXPECT_EQ(told("1 MiB"), std::vector<std::string>{"worker-0: 1 MiB"});
  EXPECT_TRUE(told("1 MiB").empty());
  EXPECT_EQ(told("2 MiB"), std::vector<std::string>{"worker-0: 2 MiB"});
  EXPECT_TRUE(told("").empty());
}

}  // namespace dtrain::ctl
