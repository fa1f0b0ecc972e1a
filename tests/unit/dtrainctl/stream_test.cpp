// Verbs that go on: wait, logs, events, run, exec, and what they do when the agent goes away and comes back.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <sstream>
#include <utility>

#include "agent/dtrainctl/cli.h"
#include "agent/dtrainctl/log_printer.h"
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
  EXPECT_NE(never.err.find("has ended (Succeeded) and will not be Suspended"), std::string::npos);
}

TEST_F(Streams, WaitTimesOut) {
  agent([](const wire::Message& m) {
    wire::JobUpdate u = update("Pending", {"Pending"});
    u.waiting_for = "no host has 8 free GPUs";
    return FakeAgent::Answer{{reply_to(m, MessageType::update, u, false)}, false};
  });
  const Ran ran = ctl({"wait", "digits", "--for", "Running", "--timeout", "50ms"});
  EXPECT_EQ(ran.code, 6);
  EXPECT_EQ(ran.err, "dtrainctl: job digits did not reach Running in time: it is Pending, and waits: no host has 8 free GPUs\n");
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
  EXPECT_EQ(ran.err, "") << "it answered again at once";
  EXPECT_EQ(wire::decode<wire::WatchRequest>(agent_->requests()[1].payload)->id, 17u);  // the same run, not the same name
}

TEST_F(Streams, LogsOfOneTaskAreUnchanged) {
  const std::string bytes("a\0b\r\n\xff no end", 13);
  agent([&](const wire::Message& m) {
    wire::LogChunk note;
    note.note = "worker-0: attempt 2 begins";
    return FakeAgent::Answer{
        {reply_to(m, MessageType::log_chunk, chunk(bytes.substr(0, 4)), false), reply_to(m, MessageType::log_chunk, note, false),
         reply_to(m, MessageType::log_chunk, chunk(bytes.substr(4), 2), false), reply_to(m, MessageType::log_chunk, wire::LogChunk{})},
        false};
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

// Attempts ran on two hosts, which answer side by side.
TEST_F(Streams, AllAttemptsOfATaskComeInOrder) {
  agent([](const wire::Message& m) {
    if (m.type == MessageType::query_tasks) {
      wire::TasksReply tasks;
      tasks.tasks.emplace_back();
      tasks.tasks[0].task = "worker-0";
      tasks.tasks[0].attempt = 3;
      return FakeAgent::Answer{{reply_to(m, MessageType::tasks, tasks)}, false};
    }
    const auto request = wire::decode<wire::LogsRequest>(m.payload);
    EXPECT_FALSE(request->all_attempts);
    const auto nothing = wire::error_reply({ErrorCode::not_found, "it wrote nothing", ""});
    if (request->attempt == 2) return FakeAgent::Answer{{reply_to(m, MessageType::error, nothing)}, false};
    const auto wrote = chunk(std::to_string(request->attempt) + "\n", request->attempt);
    return FakeAgent::Answer{{reply_to(m, MessageType::log_chunk, wrote)}, false};
  });
  const Ran ran = ctl({"logs", "digits", "worker-0", "--attempt", "all"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, "1\n3\n");
  EXPECT_NE(ran.err.find("worker-0: attempt 3 begins"), std::string::npos);
}

TEST_F(Streams, LogsOfAJobCarryTheTask) {
  agent([&](const wire::Message& m) {
    return FakeAgent::Answer{
        {reply_to(m, MessageType::log_chunk, chunk("one\ntwo\n"), false), reply_to(m, MessageType::log_chunk, chunk("three\n", 1, "ps-1"))},
        false};
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
  agent([](const wire::Message& m) { return FakeAgent::Answer{{reply_to(m, MessageType::log_chunk, chunk("1\n"), false)}, true}; });
  EXPECT_EQ(ctl({"logs", "digits", "worker-0"}).code, 4);
}

TEST_F(Streams, EventsAreOneObjectALineAndResume) {
  std::atomic<int> asked = 0;
  agent([&](const wire::Message& m) {
    const auto request = wire::decode<wire::EventsRequest>(m.payload);
    wire::EventsReply reply;
    if (!request->follow) return FakeAgent::Answer{{reply_to(m, MessageType::events, reply, true)}, false};  // what is there comes first
    reply.events.push_back({request->after + 1, "t", "job.running", "digits", "", ""});
    return FakeAgent::Answer{{reply_to(m, MessageType::events, reply, ++asked == 2)}, asked == 1};
  });
  EXPECT_EQ(ctl({"events", "-f", "-o", "json"}).out,
            R"({"seq":1,"time":"t","type":"job.running","object":"digits","reason":"","message":""})"
            "\n"
            R"({"seq":2,"time":"t","type":"job.running","object":"digits","reason":"","message":""})"
            "\n");
}

TEST_F(Streams, RunFollowsToTheEnd) {
  std::atomic<int> watched = 0;
  agent([&](const wire::Message& m) {
    FakeAgent::Answer a;
    if (m.type == MessageType::submit) a.messages = {reply_to(m, MessageType::submitted, wire::SubmitReply{"digits", 17, 1, false, {}})};
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
  for (const char* line :
       {"job digits: Running (generation 1)\n", "job digits: restarts 1\n", "worker-0: Succeeded\n", "worker-0: STATUS accuracy 0.97\n"})
    EXPECT_NE(ran.err.find(line), std::string::npos) << line << ran.err;
  // An agent ends connections to be asked anew, when another host is back.
  EXPECT_EQ(ran.err.find("the agent"), std::string::npos) << ran.err;
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

// Of a job that has ended, submitted again as it was.
TEST_F(Streams, RunOfAJobThatHasEndedRunsNothingAndSaysSo) {
  std::string state = "Succeeded";
  agent([&](const wire::Message& m) {
    if (m.type == MessageType::submit)
      return FakeAgent::Answer{{reply_to(m, MessageType::submitted, wire::SubmitReply{"digits", 17, 1, true, {}})}, false};
    wire::JobsReply jobs;
    jobs.jobs.push_back(update(state, {}).job);
    if (m.type == MessageType::query_jobs) return FakeAgent::Answer{{reply_to(m, MessageType::jobs, jobs)}, false};
    ADD_FAILURE() << "its old logs are no new run";
    return FakeAgent::Answer{};
  });
  const Ran ran = ctl({"run", "--", "true"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(ran.err, "dtrainctl: job digits: unchanged; it has ended: Succeeded; dtrainctl rerun digits runs it again\n");
  state = "Failed";
  EXPECT_EQ(ctl({"run", "--", "true"}).code, 1);
  const Ran submitted = ctl({"run", "--detach", "--", "true"});
  EXPECT_EQ(submitted.code, 0);
  EXPECT_NE(submitted.err.find("dtrainctl rerun digits"), std::string::npos);
  state = "Running";
  EXPECT_EQ(ctl({"run", "--detach", "--", "true"}).err, "dtrainctl: job digits: unchanged\n") << "nobody follows it";
}

TEST_F(Streams, WhatARunWaitsForIsSaidWithoutATerminal) {
  // It waits until that has stood for long enough to be said; meanwhile the agent is asked again and again.
  const auto begun = std::chrono::steady_clock::now();
  std::atomic<bool> told = false;
  agent([&](const wire::Message& m) {
    FakeAgent::Answer a;
    if (m.type == MessageType::submit) a.messages = {reply_to(m, MessageType::submitted, wire::SubmitReply{"digits", 17, 1, false, {}})};
    if (m.type == MessageType::logs) a.messages = {reply_to(m, MessageType::log_chunk, wire::LogChunk{})};
    if (m.type != MessageType::watch) return a;
    const bool over = std::chrono::steady_clock::now() - begun > std::chrono::seconds(2);
    wire::JobUpdate u = over ? update("Cancelled", {"Pending", "Cancelled"}, true) : update("Pending", {"Pending"});
    if (!over) u.waiting_for = "no host has 8 free GPUs";
    if (over || !told.exchange(true)) a.messages = {reply_to(m, MessageType::update, u, false)};
    a.close = !over;
    return a;
  });
  const Ran ran = ctl({"run", "--", "true"});
  EXPECT_NE(ran.err.find("job digits: waits: no host has 8 free GPUs\n"), std::string::npos) << ran.err;
}

TEST_F(Streams, DeleteAnswersWhenTheNameIsFree) {
  std::atomic<bool> deleted = false;
  std::atomic<int> watched = 0;
  agent([&](const wire::Message& m) {
    FakeAgent::Answer a;
    wire::JobsReply jobs;
    jobs.jobs.push_back(update("Running", {}).job);
    if (m.type == MessageType::query_jobs) a.messages = {reply_to(m, MessageType::jobs, jobs)};
    if (m.type == MessageType::action) {
      deleted = true;
      a.messages = {reply_to(m, MessageType::ok, wire::Empty{})};
    }
    if (m.type == MessageType::watch) {
      EXPECT_TRUE(deleted) << "of the job that was deleted";
      EXPECT_EQ(wire::decode<wire::WatchRequest>(m.payload)->id, 17u) << "whatever has its name by then";
      wire::JobUpdate ends = update("Cancelled", {}), gone;
      gone.gone = true;
      a.messages = {reply_to(m, MessageType::update, ++watched == 1 ? ends : gone, watched != 1)};
      a.close = watched == 1;  // the agent is restarted meanwhile
    }
    return a;
  });
  const Ran ran = ctl({"delete", "digits", "--force"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(ran.err.ends_with("dtrainctl: job digits: deleted\n")) << ran.err;
  EXPECT_EQ(watched, 2);
  EXPECT_EQ(ctl({"delete", "digits", "--force", "--no-wait"}).code, 0);
  EXPECT_EQ(watched, 2);
  const Ran late = ctl({"delete", "digits", "--force", "--timeout", "100ms"});
  EXPECT_EQ(late.code, 0);
}

TEST_F(Streams, ADeleteThatTakesTooLongSaysWhatIsLeft) {
  agent([&](const wire::Message& m) {
    wire::JobsReply jobs;
    jobs.jobs.push_back(update("Running", {}).job);
    if (m.type == MessageType::query_jobs) return FakeAgent::Answer{{reply_to(m, MessageType::jobs, jobs)}, false};
    if (m.type == MessageType::action) return FakeAgent::Answer{{reply_to(m, MessageType::ok, wire::Empty{})}, false};
    wire::JobUpdate ends = update("Cancelled", {});
    ends.tasks.emplace_back();
    ends.tasks[0].pid = 4711;
    return FakeAgent::Answer{{reply_to(m, MessageType::update, ends, false)}, false};
  });
  const Ran ran = ctl({"delete", "digits", "--force", "--timeout", "200ms"});
  EXPECT_EQ(ran.code, 6);
  EXPECT_NE(ran.err.find("not gone in time: 1 task ends"), std::string::npos) << ran.err;
}

// Calls back once a text was written to it.
class Noticing : public std::stringbuf {
 public:
  Noticing(std::string what, std::function<void()> then) : what_(std::move(what)), then_(std::move(then)) {}

 protected:
  int sync() override {
    if (then_ && str().find(what_) != std::string::npos) std::exchange(then_, nullptr)();
    return 0;
  }

 private:
  std::string what_;
  std::function<void()> then_;
};

TEST_F(Streams, WhatChangesSomethingWaitsForAnAgentThatIsBeingRestarted) {
  agent([](const wire::Message& m) { return FakeAgent::Answer{{reply_to(m, MessageType::ok, wire::Empty{})}, false}; });
  agent_->stop();
  EXPECT_EQ(ctl({"jobs"}).code, 4) << "who only looks is told at once";
  Noticing noticing("it may be starting again", [&] { agent_->start(); });
  std::ostream err(&noticing);
  std::ostringstream out;
  Io io{out, err, 0, false, false, false, 0};
  EXPECT_EQ(run_program({"--agent", dir_.path() + "/s", "suspend", "digits"}, io), 0) << noticing.str();
  EXPECT_NE(noticing.str().find("it may be starting again"), std::string::npos);
}

TEST_F(Streams, AnAgentThatIsAwayIsSaidToBe) {
  std::atomic<int> watched = 0;
  agent([&](const wire::Message& m) {
    FakeAgent::Answer a;
    if (m.type == MessageType::submit) a.messages = {reply_to(m, MessageType::submitted, wire::SubmitReply{"digits", 17, 1, false, {}})};
    if (m.type == MessageType::logs) a.messages = {reply_to(m, MessageType::log_chunk, wire::LogChunk{})};
    if (m.type != MessageType::watch) return a;
    const auto now = ++watched > 1 ? update("Succeeded", {"Succeeded"}, true) : update("Running", {"Running"});
    a.messages = {reply_to(m, MessageType::update, now, false)};
    return a;
  });
  Noticing gone("job digits: Running", [&] { agent_->stop(); });
  Noticing noticing("lost the agent; waiting for it", [&] { agent_->start(); });
  // What is said comes to both, one after the other.
  class Both : public std::stringbuf {
   public:
    Both(std::stringbuf& one, std::stringbuf& other) : one_(one), other_(other) {}

   protected:
    int sync() override {
      for (std::stringbuf* buffer : {&one_, &other_}) buffer->str(str()), buffer->pubsync();
      return 0;
    }

   private:
    std::stringbuf &one_, &other_;
  } both(gone, noticing);
  std::ostream err(&both);
  std::ostringstream out;
  Io io{out, err, 0, false, false, false, 0};
  EXPECT_EQ(run_program({"--agent", dir_.path() + "/s", "run", "--", "true"}, io), 0) << both.str();
  EXPECT_NE(both.str().find("the agent is back"), std::string::npos) << both.str();
}

TEST_F(Streams, WhatIsGivenUpMayStillBeCarriedOut) {
  agent([](const wire::Message&) { return FakeAgent::Answer{}; });
  const Ran changed = ctl({"suspend", "digits", "--timeout", "50ms"}), looked = ctl({"jobs", "--timeout", "50ms"});
  EXPECT_EQ(changed.code, 4);
  EXPECT_EQ(changed.err,
            "dtrainctl: could not get an answer from the agent: none came in time; dtrainctl status and dtrainctl nodes show "
            "which agents are missing: start them. It may still be carried out\n");
  EXPECT_EQ(looked.code, 4);
  EXPECT_NE(looked.err.find("try again"), std::string::npos) << looked.err;
}

TEST_F(Streams, MistakesOfAJobThatWasMadeNameNoFile) {
  const Ran ran = ctl({"run", "--name", "No Name", "--", "true"});
  EXPECT_EQ(ran.code, 2);
  EXPECT_EQ(ran.err.rfind("dtrainctl: metadata.name: ", 0), 0u) << ran.err;
}

TEST_F(Streams, AScriptIsNoJobFile) {
  std::ofstream(dir_.path() + "/train.py") << "import torch\n";
  const Ran ran = ctl({"run", dir_.path() + "/train.py"});
  EXPECT_EQ(ran.code, 2);
  EXPECT_NE(ran.err.find("after --: dtrainctl run [options] -- python3 " + dir_.path() + "/train.py\n"), std::string::npos) << ran.err;
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
                              reply_to(m, MessageType::exec_output, end)},
                             false};
  });
  const Ran ran = ctl({"exec", "digits", "worker-0", "--", "sh", "-c", "echo hi", "--", "-o"});
  EXPECT_EQ(ran.code, 137);
  EXPECT_EQ(ran.out, "hi\n");
  EXPECT_EQ(ran.err, "oh\n");
  EXPECT_EQ(wire::decode<wire::ExecRequest>(agent_->requests()[0].payload)->command,
            (std::vector<std::string>{"sh", "-c", "echo hi", "--", "-o"}));
  EXPECT_EQ(ctl({"exec", "digits", "worker-0.3", "--", "sh"}).code, 137) << "as lines of the log name a rank";
  const auto of_rank = wire::decode<wire::ExecRequest>(agent_->requests()[1].payload);
  EXPECT_EQ(of_rank->task, "worker-0");
  EXPECT_EQ(of_rank->rank, 4u);
}

}  // namespace dtrain::ctl
