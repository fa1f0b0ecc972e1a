// Verbs that go on: wait, logs, events, run, exec, and what they do when the agent goes away and comes back.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "agent/dtrainctl/log_printer.h"
#include "agent/dtrainctl/progress.h"
#include "tests/unit/dtrainctl/fake_agent.h"

namespace dtrain::ctl {
namespace {

using wire::MessageType;

wire::JobUpdate update(const std::string& state, std::vector<std::string> passed, bool final = false) {
  wire::JobUpdate u;
  u.job.name = "digits";
  u.job.id = 17;
  u.job.state = state;
  u.job.generation = 1;
  u.passed = std::move(passed);
  u.final = final;
  return u;
}

wire::LogChunk chunk(const std::string& bytes, std::uint32_t attempt = 1, const std::string& task = "worker-0") {
  wire::LogChunk c;
  c.task = task;
  c.generation = 1;
  c.attempt = attempt;
  c.bytes = bytes;
  return c;
}

class Streams : public testing::Test {
 protected:
  Ran ctl(std::vector<std::string> args) {
    args.insert(args.begin(), {"--agent", dir_.path() + "/s"});
    return run_ctl(args);
  }
  void agent(FakeAgent::Handler handler) { agent_ = std::make_unique<FakeAgent>(dir_.path() + "/s", std::move(handler)); }
  TempDir dir_;
  std::unique_ptr<FakeAgent> agent_;
};

}  // namespace

TEST_F(Streams, WaitForAStateThatWasPassed) {
  agent([](const wire::Message& m) {
    return FakeAgent::Answer{{reply_to(m, MessageType::update, update("Succeeded", {"Pending", "Running", "Succeeded"}, true))}, false};
  });
  EXPECT_EQ(ctl({"wait", "digits", "--for", "Running"}).code, 0);
  EXPECT_EQ(ctl({"wait", "digits", "--for", "Finished"}).code, 0);
  const Ran never = ctl({"wait", "digits", "--for", "Suspended"});
  EXPECT_EQ(never.code, 1);
  EXPECT_NE(never.err.find("is Succeeded and will not be Suspended"), std::string::npos);
}

TEST_F(Streams, WaitTimesOut) {
  agent([](const wire::Message& m) {
    return FakeAgent::Answer{{reply_to(m, MessageType::update, update("Pending", {"Pending"}), false)}, false};
  });
  EXPECT_EQ(ctl({"wait", "digits", "--for", "Running", "--timeout", "50ms"}).code, 6);
}

TEST_F(Streams, WaitNeedsAnAgentThatAnswers) {
  agent([](const wire::Message&) { return FakeAgent::Answer{}; });
  EXPECT_EQ(ctl({"wait", "digits", "--for", "Running", "--timeout", "50ms"}).code, 4);
}

TEST_F(Streams, WaitForDeleted) {
  wire::JobUpdate gone;
  gone.gone = true;
  agent([gone](const wire::Message& m) { return FakeAgent::Answer{{reply_to(m, MessageType::update, gone)}, false}; });
  EXPECT_EQ(ctl({"wait", "digits", "--for", "deleted"}).code, 0);
  EXPECT_EQ(ctl({"wait", "digits", "--for", "Running"}).code, 3);
  agent_.reset();
  agent([](const wire::Message& m) {
    return FakeAgent::Answer{{reply_to(m, MessageType::error, wire::error_reply({ErrorCode::not_found, "none", ""}))}, false};
  });
  EXPECT_EQ(ctl({"wait", "digits", "--for", "deleted"}).code, 0);
  EXPECT_EQ(ctl({"wait", "digits", "--for", "Running"}).code, 3);
}

TEST_F(Streams, WaitSurvivesAnAgentRestart) {
  std::atomic<int> asked = 0;
  agent([&](const wire::Message& m) {
    if (++asked == 1) return FakeAgent::Answer{{reply_to(m, MessageType::update, update("Pending", {"Pending"}), false)}, true};
    return FakeAgent::Answer{{reply_to(m, MessageType::update, update("Running", {"Pending", "Running"}), false)}, false};
  });
  const Ran ran = ctl({"wait", "digits", "--for", "Running"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_NE(ran.err.find("lost the agent"), std::string::npos);
  EXPECT_EQ(wire::decode<wire::WatchRequest>(agent_->requests()[1].payload)->id, 17u);   // the same run, not the same name
}

TEST_F(Streams, LogsOfOneTaskAreUnchanged) {
  const std::string bytes("a\0b\r\n\xff no end", 13);
  agent([&](const wire::Message& m) {
    wire::LogChunk note;
    note.note = "worker-0: attempt 2 begins";
    return FakeAgent::Answer{{reply_to(m, MessageType::log_chunk, chunk(bytes.substr(0, 4)), false),
                              reply_to(m, MessageType::log_chunk, note, false),
                              reply_to(m, MessageType::log_chunk, chunk(bytes.substr(4), 2), false),
                              reply_to(m, MessageType::log_chunk, wire::LogChunk{})}, false};
  });
  const Ran ran = ctl({"logs", "digits", "worker-0", "--attempt", "all", "--tail", "7", "--stderr"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(ran.out, bytes);
  EXPECT_EQ(ran.err, "dtrainctl: worker-0: attempt 2 begins\n");
  const auto asked = wire::decode<wire::LogsRequest>(agent_->requests()[0].payload);
  EXPECT_TRUE(asked->all_attempts);
  EXPECT_EQ(asked->tail, 7);
  EXPECT_TRUE(asked->stderr_only);
}

TEST_F(Streams, LogsOfAJobCarryTheTask) {
  agent([&](const wire::Message& m) {
    return FakeAgent::Answer{{reply_to(m, MessageType::log_chunk, chunk("one\ntwo\n"), false),
                              reply_to(m, MessageType::log_chunk, chunk("three\n", 1, "ps-1"))}, false};
  });
  EXPECT_EQ(ctl({"logs", "digits"}).out, "worker-0 | one\nworker-0 | two\nps-1 | three\n");
}

TEST_F(Streams, FollowedLogsGoOnWithoutLossOrDoubling) {
  std::atomic<int> asked = 0;
  agent([&](const wire::Message& m) {
    std::vector<wire::Message> out{reply_to(m, MessageType::log_chunk, chunk("1\n2\n"), false)};
    if (++asked == 1) return FakeAgent::Answer{out, true};
    out.push_back(reply_to(m, MessageType::log_chunk, chunk("3\n"), false));
    if (asked == 2) return FakeAgent::Answer{out, true};
    out.push_back(reply_to(m, MessageType::log_chunk, chunk("4\n", 2)));
    return FakeAgent::Answer{out, false};
  });
  EXPECT_EQ(ctl({"logs", "-f", "digits", "worker-0", "--attempt", "all"}).out, "1\n2\n3\n4\n");
}

TEST_F(Streams, LogsThatBreakOffAreAFailure) {
  agent([](const wire::Message& m) {
    return FakeAgent::Answer{{reply_to(m, MessageType::log_chunk, chunk("1\n"), false)}, true};
  });
  EXPECT_EQ(ctl({"logs", "digits", "worker-0"}).code, 4);
}

TEST_F(Streams, EventsAreOneObjectALineAndResume) {
  std::atomic<int> asked = 0;
  agent([&](const wire::Message& m) {
    const auto request = wire::decode<wire::EventsRequest>(m.payload);
    wire::EventsReply reply;
    reply.events.push_back({request->after + 1, "t", "job.running", "digits", "", ""});
    return FakeAgent::Answer{{reply_to(m, MessageType::events, reply, ++asked == 2)}, asked == 1};
  });
  EXPECT_EQ(ctl({"events", "-f", "-o", "json"}).out,
            R"({"seq":1,"time":"t","type":"job.running","object":"digits","reason":"","message":""})" "\n"
            R"({"seq":2,"time":"t","type":"job.running","object":"digits","reason":"","message":""})" "\n");
}

TEST_F(Streams, RunFollowsToTheEnd) {
  std::atomic<int> watched = 0;
  agent([&](const wire::Message& m) {
    FakeAgent::Answer a;
    if (m.type == MessageType::submit)
      a.messages = {reply_to(m, MessageType::submitted, wire::SubmitReply{"digits", 17, 1, false, {}})};
    if (m.type == MessageType::logs)
      a.messages = {reply_to(m, MessageType::log_chunk, chunk("hello\n"), false), reply_to(m, MessageType::log_chunk, wire::LogChunk{})};
    if (m.type == MessageType::watch && ++watched == 1) {
      a.messages = {reply_to(m, MessageType::update, update("Running", {"Running"}), false)};
      a.close = true;
    } else if (m.type == MessageType::watch) {
      wire::JobUpdate end = update("Succeeded", {"Running", "Succeeded"}, true);
      end.job.restarts = 1;
      end.tasks.emplace_back();
      end.tasks[0].task = "worker-0";
      end.tasks[0].state = "Succeeded";
      end.tasks[0].status = "accuracy 0.97";
      a.messages = {reply_to(m, MessageType::update, end)};
    }
    return a;
  });
  const Ran ran = ctl({"run", "--", "echo", "--agent", "x"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, "worker-0 | hello\n");
  for (const char* line : {"job digits: Running (generation 1)\n", "job digits: restarts 1\n", "worker-0: Succeeded\n",
                           "worker-0: STATUS accuracy 0.97\n", "lost the agent", "the agent is back"})
    EXPECT_NE(ran.err.find(line), std::string::npos) << line << ran.err;
}

TEST_F(Streams, RunOfAFailedJobSaysOne) {
  agent([&](const wire::Message& m) {
    if (m.type == MessageType::submit)
      return FakeAgent::Answer{{reply_to(m, MessageType::submitted, wire::SubmitReply{"digits", 17, 1, false, {}})}, false};
    if (m.type == MessageType::logs) return FakeAgent::Answer{{reply_to(m, MessageType::log_chunk, wire::LogChunk{})}, false};
    wire::JobUpdate end = update("Failed", {"Failed"}, true);
    end.job.reason = "worker-0: exit code 3";
    return FakeAgent::Answer{{reply_to(m, MessageType::update, end)}, false};
  });
  const Ran ran = ctl({"run", "--", "false"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_NE(ran.err.find("exit code 3"), std::string::npos);
}

TEST_F(Streams, RunDetached) {
  agent([&](const wire::Message& m) {
    return FakeAgent::Answer{{reply_to(m, MessageType::submitted, wire::SubmitReply{"digits", 17, 1, false, {}})}, false};
  });
  EXPECT_EQ(ctl({"run", "--detach", "--", "true"}).out, "digits\n");
  EXPECT_EQ(agent_->requests().size(), 1u);
}

TEST_F(Streams, ExecPassesOutputAndCode) {
  agent([](const wire::Message& m) {
    if (m.type != MessageType::exec) return FakeAgent::Answer{};
    wire::ExecOutput out, err, end;
    out.bytes = "hi\n";
    err.bytes = "oh\n";
    err.is_stderr = true;
    end.exit = wire::ExitView{};
    end.exit->signal = "SIGKILL";
    return FakeAgent::Answer{{reply_to(m, MessageType::exec_output, out, false), reply_to(m, MessageType::exec_output, err, false),
                              reply_to(m, MessageType::exec_output, end)}, false};
  });
  const Ran ran = ctl({"exec", "digits", "worker-0", "--", "sh", "-c", "echo hi", "--", "-o"});
  EXPECT_EQ(ran.code, 137);
  EXPECT_EQ(ran.out, "hi\n");
  EXPECT_EQ(ran.err, "oh\n");
  EXPECT_EQ(wire::decode<wire::ExecRequest>(agent_->requests()[0].payload)->command,
            (std::vector<std::string>{"sh", "-c", "echo hi", "--", "-o"}));
}

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
  printer.add(c, "new\n");   // an attempt's last words end with it
  EXPECT_EQ(out, "1970-01-01T00:00:01.000Z half line\n1970-01-01T00:00:01.000Z last\n1970-01-01T00:00:01.000Z new\n");
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
  c.time_ms = 4;   // the clock was set back
  c.bytes = "d\n";
  EXPECT_EQ(resume.fresh(c), "d\n");
}

TEST(Progress, BlockFitsAndHidesTheMany) {
  wire::JobUpdate u = update("Running", {});
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
  wire::JobUpdate u = update("Running", {});
  u.tasks.emplace_back();
  u.tasks[0].task = "worker-0";
  u.tasks[0].state = "Running";
  EXPECT_EQ(plain.changes(u), (std::vector<std::string>{"job digits: Running (generation 1)", "worker-0: Running"}));
  EXPECT_TRUE(plain.changes(u).empty());
  u.tasks[0].attempt = 2;
  u.job.restarts = 1;
  EXPECT_EQ(plain.changes(u), (std::vector<std::string>{"job digits: restarts 1", "worker-0: Running (attempt 2)"}));
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

}  // namespace dtrain::ctl
