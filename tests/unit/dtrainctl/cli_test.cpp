// Arguments, exit codes, and what each verb asks and prints, against an agent that answers as told.
#include "agent/dtrainctl/cli.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "agent/dtrainctl/follow.h"
#include "common/job/manifest.h"
#include "common/json/answers.h"
#include "tests/unit/dtrainctl/fake_agent.h"

namespace dtrain::ctl {
namespace {

using wire::MessageType;

constexpr const char* kJob =
    "apiVersion: dtrain/v1\nkind: Job\nmetadata: {name: digits}\nspec:\n  framework: generic\n"
    "  roles:\n    worker: {replicas: 1, command: [\"true\"]}\n";

class Cli : public testing::Test {
 protected:
  Ran ctl(std::vector<std::string> args) {
    args.insert(args.begin(), {"--agent", dir_.path() + "/s"});
    return run_ctl(args);
  }
  void agent(FakeAgent::Handler handler) { agent_ = std::make_unique<FakeAgent>(dir_.path() + "/s", std::move(handler)); }
  template <class T>
  void answers(MessageType type, const T& payload) {
    agent([type, payload](const wire::Message& m) { return FakeAgent::Answer{{reply_to(m, type, payload)}, false}; });
  }
  void refuses(ErrorCode code) {
    agent([code](const wire::Message& m) {
      return FakeAgent::Answer{{reply_to(m, MessageType::error, wire::error_reply({code, "could not do it: so", "wait"}))}, false};
    });
  }
  std::string file(const std::string& name, const std::string& text) {
    std::ofstream(dir_.path() + "/" + name) << text;
    return dir_.path() + "/" + name;
  }
  template <class T>
  T request(std::size_t i = 0) {
    const auto all = agent_->requests();
    EXPECT_GT(all.size(), i);
    if (all.size() <= i) return {};
    auto decoded = wire::decode<T>(all[i].payload);
    EXPECT_TRUE(decoded);
    return decoded ? *decoded : T{};
  }

  TempDir dir_;
  std::unique_ptr<FakeAgent> agent_;
};

}  // namespace

TEST_F(Cli, EachErrorHasItsExitCode) {
  const std::map<ErrorCode, int> codes{{ErrorCode::invalid, 2}, {ErrorCode::not_found, 3}, {ErrorCode::unavailable, 4},
                                       {ErrorCode::refused, 5}, {ErrorCode::limit, 5},     {ErrorCode::io, 1},
                                       {ErrorCode::damaged, 1}, {ErrorCode::internal, 1}};
  for (const auto& [code, expected] : codes) {
    refuses(code);
    const Ran ran = ctl({"jobs"});
    EXPECT_EQ(ran.code, expected);
    EXPECT_EQ(ran.err, "dtrainctl: could not do it: so; wait\n");
    EXPECT_EQ(ran.out, "");
    agent_.reset();
  }
}

TEST_F(Cli, FailuresAsJson) {
  refuses(ErrorCode::not_found);
  EXPECT_EQ(ctl({"tasks", "digits", "-o", "json"}).err,
            R"({"errors":[{"code":"not-found","file":"","line":0,"path":"","message":"could not do it: so","next":"wait"}]})"
            "\n");
}

TEST_F(Cli, NoAgent) {
  const Ran ran = ctl({"jobs"});
  EXPECT_EQ(ran.code, 4);
  EXPECT_NE(ran.err.find("start dtraind"), std::string::npos);
}

TEST_F(Cli, HostAndPortNeedsAKey) {
  const Ran none = run_ctl({"jobs", "--agent", "gpu01:7402"});
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("gpu01:7402: no key to show there; give your client key with --key-file"), std::string::npos) << none.err;
  const Ran missing = run_ctl({"jobs", "--agent", "gpu01:7402", "--key-file", dir_.path() + "/none"});
  EXPECT_EQ(missing.code, 3);
  EXPECT_NE(missing.err.find("could not read client key " + dir_.path() + "/none"), std::string::npos) << missing.err;
}

TEST_F(Cli, NoAnswerInTime) {
  agent([](const wire::Message&) { return FakeAgent::Answer{}; });
  const Ran ran = ctl({"jobs", "--timeout", "50ms"});
  EXPECT_EQ(ran.code, 4);
  EXPECT_NE(ran.err.find("none came in time"), std::string::npos);
}

TEST_F(Cli, JunkFromTheAgent) {
  agent([](const wire::Message&) {
    wire::Message m;
    m.type = MessageType::jobs;
    m.request = 1;
    m.payload = "\xc1";
    return FakeAgent::Answer{{m}, false};
  });
  EXPECT_NE(ctl({"jobs"}).code, 0);
  agent_.reset();
  answers(MessageType::ok, wire::Empty{});
  EXPECT_EQ(ctl({"jobs"}).code, 4);  // another kind of answer
}

TEST_F(Cli, VerbsThatThisVersionLacks) {
  for (const char* verb : {"top"}) {
    const Ran ran = ctl({verb, "x"});
    EXPECT_EQ(ran.code, 2) << verb;
    EXPECT_NE(ran.err.find("this version lacks it"), std::string::npos) << verb;
  }
}

TEST_F(Cli, DrainAsksAndWaitsUntilNothingIsLeft) {
  std::vector<wire::DrainRequest> asked;
  int looks = 0;
  agent([&](const wire::Message& m) {
    if (m.type == MessageType::drain) {
      asked.push_back(wire::decode<wire::DrainRequest>(m.payload).value_or(wire::DrainRequest{}));
      return FakeAgent::Answer{{wire::make_message(MessageType::ok, m.request, wire::Empty{})}, false};
    }
    wire::NodesReply reply;
    reply.nodes.resize(1);
    reply.nodes[0].name = "h2";
    if (looks < 2) {
      reply.nodes[0].drained = wire::DrainView{"disk", "root", "now", {}, 0, {}};
      if (++looks <= 1) {
        reply.nodes[0].drained->tasks = 3;
        reply.nodes[0].drained->jobs = {{"digits", 3, "stays: worker-0 needs 4 GPUs"}};
      }
    }
    return FakeAgent::Answer{{wire::make_message(MessageType::nodes, m.request, reply)}, false};
  });
  const Ran ran = ctl({"drain", "h2", "--reason", "disk", "--deadline", "30m", "--wait"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.err.find("node h2: digits (3 tasks): stays: worker-0 needs 4 GPUs\n"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("no task is left there"), std::string::npos) << ran.err;
  EXPECT_EQ(ctl({"drain", "h2", "--wait"}).code, 1) << "somebody undrained it";
  EXPECT_EQ(ctl({"undrain", "h2"}).code, 0);
  ASSERT_EQ(asked.size(), 3u);
  EXPECT_EQ(asked[0].node, "h2");
  EXPECT_EQ(asked[0].reason, "disk");
  EXPECT_EQ(asked[0].deadline_ms, 1'800'000);
  EXPECT_TRUE(asked[0].on);
  EXPECT_FALSE(asked[2].on);
  looks = -100;
  EXPECT_EQ(ctl({"--timeout", "300ms", "drain", "h2", "--wait"}).code, 6);
}

TEST_F(Cli, DrainedNodesAreShown) {
  wire::NodesReply reply;
  reply.nodes.resize(1);
  reply.nodes[0].name = "h2";
  reply.nodes[0].schedulable = false;
  reply.nodes[0].drained = wire::DrainView{"disk", "root", "2026-11-22T00:00:00.000Z", 60, 2, {{"digits", 2, "is leaving"}}};
  answers(MessageType::nodes, reply);
  EXPECT_NE(ctl({"nodes"}).out.find("drained"), std::string::npos);
  const std::string text = ctl({"describe", "node", "h2"}).out;
  EXPECT_NE(text.find("by root: disk"), std::string::npos) << text;
  EXPECT_NE(text.find("  digits (2 tasks): is leaving\n"), std::string::npos) << text;
  const std::string json = ctl({"nodes", "-o", "json"}).out;
  EXPECT_NE(json.find("\"reason\": \"disk\""), std::string::npos) << json;
}

TEST_F(Cli, StatusShowsWhoTakesNothing) {
  wire::StatusView status;
  status.unfit = {{"n2", "less than 10 GiB free on /data"}};
  answers(MessageType::status, status);
  const std::string text = ctl({"status"}).out;
  EXPECT_NE(text.find("n2 (less than 10 GiB free on /data)\n"), std::string::npos) << text;
  EXPECT_EQ(Json::parse(ctl({"status", "-o", "json"}).out)["unfit"]["n2"], "less than 10 GiB free on /data");
}

TEST_F(Cli, NodesThatAreUnfitAreShownWithTheReason) {
  wire::NodesReply reply;
  reply.nodes.resize(1);
  reply.nodes[0].name = "h2";
  reply.nodes[0].schedulable = false;
  reply.nodes[0].unfit = "health check ended with 1: no /scratch";
  answers(MessageType::nodes, reply);
  EXPECT_NE(ctl({"nodes"}).out.find("no: health check ended with 1: no /scratch"), std::string::npos);
  const std::string text = ctl({"describe", "node", "h2"}).out;
  EXPECT_NE(text.find("Schedulable:  no: health check ended with 1: no /scratch\n"), std::string::npos) << text;
  const std::string json = ctl({"nodes", "-o", "json"}).out;
  EXPECT_NE(json.find("\"unfit\": \"health check ended with 1: no /scratch\""), std::string::npos) << json;
}

TEST_F(Cli, RecoverQuorumWarnsAndWantsYes) {
  wire::RecoveryView view;
  view.node = "h2";
  view.history = 1;
  view.index = 70;
  view.term = 3;
  view.lost = {"h1", "h3"};
  view.others = {{"h4", "alive", "learner", 1, 3, 69}, {"h5", "dead", "unknown", 0, 0, 0}};
  answers(MessageType::recovery, view);
  const Ran asked = ctl({"recover-quorum"});
  EXPECT_EQ(asked.code, 5);
  for (const char* words :
       {"up to entry 70 of term 3", "(h1 h3) is lost", "two clusters", "h4 (learner, alive): its log reaches to entry 69",
        "h5 (unknown, dead): how far its log reaches is not known", "give --yes"})
    EXPECT_NE(asked.err.find(words), std::string::npos) << words << " in " << asked.err;
  ASSERT_EQ(agent_->requests().size(), 1u);
  EXPECT_FALSE(request<wire::RecoverRequest>().go);

  view.new_history = 2;
  view.epoch = (1ull << 32) + 5;
  agent_.reset();
  answers(MessageType::recovery, view);
  const Ran done = ctl({"recover-quorum", "--yes", "--force"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("history 2 of the cluster begins behind entry 70"), std::string::npos) << done.out;
  ASSERT_EQ(agent_->requests().size(), 1u);
  EXPECT_TRUE(request<wire::RecoverRequest>().go);
  EXPECT_TRUE(request<wire::RecoverRequest>().force);
  const Ran json = ctl({"-o", "json", "recover-quorum", "--yes"});
  EXPECT_NE(json.out.find("\"new_history\""), std::string::npos) << json.out;

  agent_.reset();
  refuses(ErrorCode::refused);
  EXPECT_EQ(ctl({"recover-quorum"}).code, 5);
}

TEST_F(Cli, UnknownWordsSuggestTheNearest) {
  const Ran ran = ctl({"-o", "table", "tsaks", "j"});
  EXPECT_EQ(ran.code, 2);
  EXPECT_NE(ran.err.find("did you mean tasks?"), std::string::npos);
}

// clang-format off
TEST_F(Cli, WrongUse) {
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"tasks"}, {"jobs", "--nonsense"}, {"jobs", "-o", "xml"}, {"wait", "j"}, {"wait", "j", "--for", "Sometime"}, {"scale", "j", "worker"}, {"scale", "j", "worker=two"}, {"exec", "j", "worker-0"}, {"run"}, {"describe", "cow", "j"},
           {"logs", "j", "--since", "yesterday"}, {"logs", "j", "--attempt", "x"}, {"submit", "f", "--set", "x"},
           {"jobs", "--timeout", "soon"}, {"get", "nodes"}, {"drain"}, {"drain", "h", "--deadline", "soon"}, {"drain", "h", "--deadline", "0s"}, {"restart", "j", "worker-1", "--from-scratch"}}) {
    // clang-format on
    const Ran ran = ctl(args);
    EXPECT_EQ(ran.code, 2) << args.front() << ": " << ran.err;
    EXPECT_FALSE(ran.err.empty()) << args.front();
  }
  EXPECT_EQ(run_ctl({}).code, 2);
}

TEST_F(Cli, ACommandComesAfterTwoDashes) {
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"run", "-n", "2", "python3", "train.py", "--lr", "1"}, {"run", "-n", "2", "python3"}, {"exec", "j", "worker-0", "ls"}}) {
    const Ran ran = ctl(args);
    EXPECT_EQ(ran.code, 2);
    EXPECT_NE(ran.err.find("comes after --: dtrainctl " + args.front()), std::string::npos) << ran.err;
  }
  EXPECT_EQ(ctl({"tasks", "j", "k"}).err.find("--:"), std::string::npos);
}

TEST_F(Cli, Help) {
  EXPECT_EQ(run_ctl({"--help"}).code, 0);
  const Ran ran = run_ctl({"wait", "--help"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_NE(ran.out.find("--for"), std::string::npos);
}

TEST_F(Cli, GlobalOptionsStandAnywhere) {
  answers(MessageType::jobs, wire::JobsReply{{}, false});
  const std::string socket = dir_.path() + "/s";
  EXPECT_EQ(run_ctl({"--agent", socket, "-o", "json", "jobs"}).out, "[]\n");
  EXPECT_EQ(run_ctl({"jobs", "-o", "json", "--agent", socket}).out, "[]\n");
  EXPECT_EQ(run_ctl({"get", "jobs", "--output=json", "--agent=" + socket}).out, "[]\n");
}

TEST_F(Cli, JobsNamedLikeVerbs) {
  answers(MessageType::tasks, wire::TasksReply{});
  EXPECT_EQ(ctl({"tasks", "jobs"}).code, 0);
  EXPECT_EQ(request<wire::JobName>().job, "jobs");
}

TEST_F(Cli, JobsFilters) {
  wire::JobsReply reply;
  reply.jobs.emplace_back();
  reply.jobs[0].name = "digits";
  reply.jobs[0].state = "Running";
  reply.stale = true;
  answers(MessageType::jobs, reply);
  const Ran ran = ctl({"jobs", "-l", "team=vision", "-l", "x=y", "--user", "u", "--state", "Running", "-o", "json"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(Json::parse(ran.out)[0]["name"], "digits");
  EXPECT_NE(ran.err.find("out of date"), std::string::npos);
  const auto asked = request<wire::JobsRequest>();
  EXPECT_EQ(asked.labels, (std::map<std::string, std::string>{{"team", "vision"}, {"x", "y"}}));
  EXPECT_EQ(asked.user, "u");
  EXPECT_EQ(asked.state, "Running");
  EXPECT_EQ(ctl({"jobs", "--state", "runing"}).code, 2);
}

TEST_F(Cli, Status) {
  wire::StatusView status;
  status.cluster.name = "lab";
  answers(MessageType::status, status);
  EXPECT_EQ(Json::parse(ctl({"status", "-o", "json"}).out)["cluster"]["name"], "lab");
  const std::string text = ctl({"status"}).out;
  EXPECT_NE(text.find("Coordinator:  none"), std::string::npos);
  EXPECT_EQ(text.find("Dropped"), std::string::npos);
}

TEST_F(Cli, StatusSaysWhatWasDropped) {
  wire::StatusView status;
  status.membership.drops = {{"bad-body", 0}, {"malformed", 1}, {"other-cluster", 2}};
  status.membership.refutes = 9;
  answers(MessageType::status, status);
  const std::string member = ctl({"status"}).out;
  EXPECT_NE(member.find("Dropped:      3 messages of other nodes: 1 malformed, 2 other-cluster\n"), std::string::npos) << member;
  status.waiting_for = "the cluster of --join";
  agent_.reset();
  answers(MessageType::status, status);
  EXPECT_NE(ctl({"status"}).out.find("Dropped:"), std::string::npos);
}

TEST_F(Cli, DescribeJobAndNode) {
  wire::JobDescription description;
  description.job.name = "digits";
  job::JobSpec spec;
  spec.name = "digits";
  spec.package_digest = std::string(64, 'a');
  description.spec = wire::encode(spec);
  description.first_fault = wire::FaultView{"worker-1", "n1", "t", "signal SIGKILL", 2, 3, std::nullopt, "last words\n", 0, "", ""};
  answers(MessageType::description, description);
  const std::string text = ctl({"describe", "job", "digits"}).out;
  EXPECT_NE(text.find("signal SIGKILL"), std::string::npos);
  EXPECT_NE(text.find("| last words"), std::string::npos);
  EXPECT_NE(text.find("  # and a package, digest aaaaaaaaaaaa\n"), std::string::npos) << text;
  agent_.reset();
  description.first_fault->rank = 2;
  description.first_fault->error = "ValueError: \033[2Jno";
  description.first_fault->stack = "Traceback\n  \033]0;title\aline 3\n";
  answers(MessageType::description, description);
  const std::string recorded = ctl({"describe", "job", "digits"}).out;
  EXPECT_NE(recorded.find("worker-1.1 on n1 at t: ValueError: "), std::string::npos) << recorded;
  EXPECT_NE(recorded.find("no (signal SIGKILL) (generation 2, attempt 3)\n  | Traceback\n  |   line 3\n"), std::string::npos) << recorded;
  EXPECT_TRUE(recorded.find('\033') == recorded.npos && recorded.find("last words") == recorded.npos) << recorded;
  agent_.reset();
  answers(MessageType::nodes, wire::NodesReply{});
  EXPECT_EQ(ctl({"describe", "node", "n9"}).code, 3);
}

TEST_F(Cli, SubmitPrintsTheName) {
  answers(MessageType::submitted, wire::SubmitReply{"digits", 17, 1, false, {"50 workers on one ps"}});
  const Ran ran = ctl({"submit", file("job.yaml", kJob)});
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(ran.out, "digits\n");
  EXPECT_EQ(ran.err, "warning: 50 workers on one ps\n");
  const auto asked = request<wire::SubmitRequest>();
  EXPECT_EQ(asked.request_id.size(), 32u);
  auto spec = wire::decode<job::JobSpec>(asked.spec);
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->name, "digits");
  EXPECT_EQ(Json::parse(ctl({"apply", "--replace", file("job.yaml", kJob), "-o", "json"}).out)["id"], 17);
  EXPECT_TRUE(request<wire::SubmitRequest>(1).replace);
}

TEST_F(Cli, SubmitSurvivesAnAgentThatDiesBeforeItAnswers) {
  std::atomic<int> asked = 0;
  agent([&](const wire::Message& m) {
    if (++asked == 1) return FakeAgent::Answer{{}, true};
    return FakeAgent::Answer{{reply_to(m, MessageType::submitted, wire::SubmitReply{"digits", 17, 1, false, {}})}, false};
  });
  EXPECT_EQ(ctl({"submit", file("job.yaml", kJob)}).out, "digits\n");
  EXPECT_EQ(request<wire::SubmitRequest>(0).request_id, request<wire::SubmitRequest>(1).request_id);
}

TEST_F(Cli, EveryMistakeOfAFile) {
  const std::string path = file("bad.yaml",
                                "apiVersion: dtrain/v1\nkind: Job\nmetadata: {name: x}\nspec:\n  framework: generic\n"
                                "  roles:\n    worker: {replica: 2, command: [\"true\"]}\n    chief: {replicas: 2, command: [a]}\n");
  const Ran ran = ctl({"submit", path});
  EXPECT_EQ(ran.code, 2);
  EXPECT_NE(ran.err.find(path + ":7: "), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("replicas"), std::string::npos);
  EXPECT_NE(ran.err.find("chief"), std::string::npos);
  const Json errors = Json::parse(ctl({"submit", path, "-o", "json"}).err)["errors"];
  ASSERT_GE(errors.size(), 2u);
  EXPECT_EQ(errors[0]["file"], path);
  EXPECT_EQ(errors[0]["line"], 7);
}

TEST_F(Cli, FilesThatAreNotThere) {
  Ran ran = ctl({"submit", dir_.path() + "/none.yaml"});
  EXPECT_EQ(ran.code, 2);
  EXPECT_NE(ran.err.find("none.yaml: could not open the job file"), std::string::npos);
  std::string text = kJob;
  text.replace(text.find("  roles:"), 0, "  package: ./trainer\n");
  ran = ctl({"submit", file("package.yaml", text)});
  EXPECT_EQ(ran.code, 2);
  EXPECT_NE(ran.err.find("spec.package: could not read package"), std::string::npos) << ran.err;
}

TEST_F(Cli, PackagesAreSentOnceAndInPieces) {
  std::string text = kJob, stored;
  text.replace(text.find("  roles:"), 0, "  package: ./trainer\n");
  std::filesystem::create_directory(dir_.path() + "/trainer");
  file("trainer/weights", std::string(limits::kBlobChunkBytes * 2, 'w'));
  bool known = false;
  agent([&](const wire::Message& m) {
    if (m.type == MessageType::has_blob) return FakeAgent::Answer{{reply_to(m, MessageType::blob, wire::BlobReply{known})}, false};
    if (m.type == MessageType::put_blob) {
      const auto chunk = wire::decode<wire::PutBlobRequest>(m.payload);
      EXPECT_EQ(chunk->offset, stored.size());
      EXPECT_LE(chunk->bytes.size(), limits::kBlobChunkBytes);
      stored += chunk->bytes;
      if (!chunk->last) return FakeAgent::Answer{{reply_to(m, MessageType::ok, wire::Empty{})}, false};
      known = true;
      return FakeAgent::Answer{{reply_to(m, MessageType::blob, wire::BlobReply{true})}, false};
    }
    return FakeAgent::Answer{{reply_to(m, MessageType::submitted, wire::SubmitReply{"digits", 17, 1, false, {}})}, false};
  });
  const std::string path = file("package.yaml", text);
  EXPECT_EQ(ctl({"submit", path}).code, 0);
  EXPECT_GT(stored.size(), limits::kBlobChunkBytes * 2);
  const auto first = agent_->requests();
  EXPECT_EQ(ctl({"submit", path}).code, 0);
  EXPECT_EQ(agent_->requests().size(), first.size() + 2);  // has_blob, submit
  const auto spec = wire::decode<job::JobSpec>(wire::decode<wire::SubmitRequest>(first.back().payload)->spec);
  EXPECT_EQ(spec->package_digest, wire::decode<wire::BlobRequest>(first.front().payload)->digest);
}

TEST_F(Cli, PlanStartsNothing) {
  wire::TaskSpecsReply reply;
  reply.tasks.push_back({"worker-0", "n1", "127.0.0.1:20000", {"echo", "a b"}, {{"A", "1"}}, "/d", {}, {}});
  reply.waiting_for = "2 more GPUs";
  answers(MessageType::task_specs, reply);
  const Ran ran = ctl({"submit", "--dry-run", file("job.yaml", kJob)});
  EXPECT_EQ(ran.code, 0);
  EXPECT_NE(ran.out.find("worker-0 on n1 at 127.0.0.1:20000"), std::string::npos);
  EXPECT_NE(ran.out.find("echo 'a b'"), std::string::npos);
  EXPECT_NE(ran.err.find("2 more GPUs"), std::string::npos);
  EXPECT_EQ(agent_->requests()[0].type, MessageType::plan);
  EXPECT_EQ(Json::parse(ctl({"plan", file("job.yaml", kJob), "-o", "json"}).out)["tasks"][0]["env"]["A"], "1");
}

TEST_F(Cli, Actions) {
  answers(MessageType::ok, wire::Empty{});
  EXPECT_EQ(ctl({"cancel", "j"}).code, 0);
  EXPECT_EQ(ctl({"delete", "j", "--force", "--no-wait"}).code, 0);
  EXPECT_EQ(ctl({"restart", "j", "worker-1"}).code, 0);
  EXPECT_EQ(ctl({"restart", "j", "--from-scratch"}).code, 0);
  EXPECT_EQ(ctl({"scale", "j", "worker=4", "ps=0"}).code, 0);
  EXPECT_EQ(request<wire::ActionRequest>(0).action, wire::Action::cancel);
  EXPECT_EQ(request<wire::ActionRequest>(1).action, wire::Action::remove);
  EXPECT_TRUE(request<wire::ActionRequest>(1).force);
  EXPECT_EQ(request<wire::ActionRequest>(2).task, "worker-1");
  EXPECT_TRUE(request<wire::ActionRequest>(3).from_scratch);
  EXPECT_EQ(request<wire::ActionRequest>(4).replicas, 4u);
  EXPECT_EQ(request<wire::ActionRequest>(5).role, "ps");
}

TEST_F(Cli, RerunPrintsTheName) {
  answers(MessageType::submitted, wire::SubmitReply{"digits", 18, 1, false, {}});
  EXPECT_EQ(ctl({"rerun", "digits"}).out, "digits\n");
}

TEST_F(Cli, VersionWithoutAnAgent) {
  const Ran ran = ctl({"version", "-o", "json"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_TRUE(Json::parse(ran.out)["agent"].is_null());
  answers(MessageType::version, wire::VersionReply{"9.9.9", "n1"});
  EXPECT_EQ(Json::parse(ctl({"version", "-o", "json"}).out)["agent"]["version"], "9.9.9");
}

TEST_F(Cli, CompletionKnowsEveryVerb) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Ran ran = ctl({"completion", shell});
    EXPECT_EQ(ran.code, 0);
    for (const char* word : {"cluster-spec", "submit", "rerun", "from-scratch", "Recovering"})
      EXPECT_NE(ran.out.find(word), std::string::npos) << shell << " " << word;
  }
  wire::JobsReply reply;
  reply.jobs.resize(2);
  reply.jobs[0].name = "a";
  reply.jobs[1].name = "b";
  answers(MessageType::jobs, reply);
  EXPECT_EQ(ctl({"completion", "names", "jobs"}).out, "a\nb\n");
}

TEST_F(Cli, RunWithARankForEachGpuTakesWhatTheHostsHave) {
  wire::NodesReply nodes;
  for (const std::uint32_t gpus : {4u, 8u, 2u}) nodes.nodes.emplace_back().gpus.total = gpus;
  answers(MessageType::nodes, nodes);
  const Ran ran = ctl({"run", "--nproc-per-node", "gpu", "-n", "4", "--", "true"});
  EXPECT_EQ(ran.code, 2);
  EXPECT_NE(ran.err.find("fewer than 4 hosts have a GPU"), std::string::npos) << ran.err;
}

}  // namespace dtrain::ctl
