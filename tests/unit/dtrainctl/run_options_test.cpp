// The job file that `dtrainctl run [options] -- CMD...` makes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "agent/dtrainctl/follow.h"
#include "common/job/manifest.h"
#include "common/json/answers.h"
#include "tests/unit/dtrainctl/fake_agent.h"

namespace dtrain::ctl {
namespace {

// What `dtrainctl run --detach ...` hands in.
struct HandedIn {
  Ran ran;
  job::JobSpec spec;
};
HandedIn hand_in(std::vector<std::string> args) {
  const TempDir dir;
  const FakeAgent agent(dir.path() + "/s", [](const wire::Message& m) {
    return FakeAgent::Answer{{reply_to(m, wire::MessageType::submitted, wire::SubmitReply{"digits", 17, 1, false, {}})}, false};
  });
  args.insert(args.begin(), {"--agent", dir.path() + "/s", "run", "--detach"});
  HandedIn result{run_ctl(args), {}};
  for (const wire::Message& m : agent.requests())
    if (const auto request = wire::decode<wire::SubmitRequest>(m.payload))
      if (const auto spec = wire::decode<job::JobSpec>(request->spec)) result.spec = *spec;
  return result;
}

TEST(RunOptions, BecomeAJobFile) {
  RunOptions options;
  options.command = {"/usr/bin/My_Trainer.py", "--ps_hosts={hosts:ps}", "${param:x}"};
  options.ps = 2;
  options.workers = 3;
  options.gpus = 1;
  const std::string text = job_file_of(options, "/tmp");
  const job::ParsedJob parsed = job::parse_manifest(text, {});
  const Json file = Json::parse(text);
  EXPECT_EQ(file["metadata"]["generateName"], "my-trainer-py-");
  EXPECT_EQ(file["spec"]["framework"], "tensorflow");
  EXPECT_EQ(file["spec"]["roles"]["ps"]["replicas"], 2);
  EXPECT_FALSE(file["spec"]["roles"]["ps"].contains("resources"));
  EXPECT_EQ(file["spec"]["roles"]["worker"]["resources"]["gpus"], 1);
  for (const auto& e : parsed.errors) ADD_FAILURE() << e.text();
  EXPECT_EQ(parsed.spec.roles.at("worker").command, options.command);
}

TEST(RunOptions, RanksMakeAPytorchJob) {
  RunOptions options;
  options.command = {"python3", "train.py"};
  options.hosts = 4;
  options.nproc = "2";
  const job::ParsedJob parsed = job::parse_manifest(job_file_of(options, "/tmp"), {});
  for (const auto& e : parsed.errors) ADD_FAILURE() << e.text();
  EXPECT_EQ(job::to_string(parsed.spec.framework), "pytorch");
  const job::RoleSpec& worker = parsed.spec.roles.at("worker");
  EXPECT_EQ(worker.replicas, 4u);
  EXPECT_EQ(worker.nproc_per_node, 2u);
  EXPECT_EQ(worker.anti_affinity, "host");
  options.nproc = "";
  EXPECT_FALSE(job::parse_manifest(job_file_of(options, "/tmp"), {}).errors.empty()) << "an empty shell variable";
  options.nproc = "gpu";
  options.gpus = 8;
  EXPECT_EQ(job::parse_manifest(job_file_of(options, "/tmp"), {}).spec.roles.at("worker").nproc_per_node, 8u);
}

TEST(RunOptions, VariablesAreOfAllTasks) {
  RunOptions options;
  options.command = {"true"};
  options.env = {"LR=0.1", "FLAGS=--a=b", "EMPTY=", "ODD=${param:x} null", "LR=2"};
  const job::ParsedJob parsed = job::parse_manifest(job_file_of(options, "/tmp"), {});
  for (const auto& e : parsed.errors) ADD_FAILURE() << e.text();
  const std::map<std::string, std::string> wanted{{"LR", "2"}, {"FLAGS", "--a=b"}, {"EMPTY", ""}, {"ODD", "${param:x} null"}};
  EXPECT_EQ(parsed.spec.env, wanted);
  for (const char* const unnamed : {"=1", ""}) {
    options.env = {unnamed};
    EXPECT_EQ(job::parse_manifest(job_file_of(options, "/tmp"), {}).errors.size(), 1u) << "'" << unnamed << "'";
  }
}

TEST(RunOptions, AVariableWithoutAValueIsPassedOn) {
  ::setenv("DTRAIN_TEST_SET", "a=b", 1);
  ::unsetenv("DTRAIN_TEST_UNSET");
  const HandedIn passed = hand_in({"-e", "DTRAIN_TEST_SET", "--env", "X=1", "--", "true"});
  EXPECT_EQ(passed.ran.code, 0) << passed.ran.err;
  EXPECT_EQ(passed.spec.env, (std::map<std::string, std::string>{{"DTRAIN_TEST_SET", "a=b"}, {"X", "1"}}));
  const HandedIn unset = hand_in({"-e", "DTRAIN_TEST_UNSET", "--", "true"});
  EXPECT_EQ(unset.ran.code, 2);
  EXPECT_EQ(unset.ran.err,
            "dtrainctl: could not pass on variable DTRAIN_TEST_UNSET: it is not set here; export it, or give its value: "
            "--env DTRAIN_TEST_UNSET=VALUE\n");
}

TEST(RunOptions, AProgramOfAnActiveVirtualEnvironmentIsWarnedOf) {
  const TempDir venv;
  const std::string program = venv.path() + "/bin/python3";
  std::filesystem::create_directory(venv.path() + "/bin");
  std::ofstream(program) << "#!/bin/sh\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const std::string warning = "warning: python3 is not looked up in the virtual environment " + venv.path() +
                              ", which is active here; to use it, give " + program + " as the command\n";
  for (const char* const variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    ::unsetenv("VIRTUAL_ENV"), ::unsetenv("CONDA_PREFIX");
    EXPECT_EQ(hand_in({"--", "python3", "train.py"}).ran.err, "") << "none is active";
    ::setenv(variable, venv.path().c_str(), 1);
    const HandedIn warned = hand_in({"--", "python3", "train.py"});
    EXPECT_EQ(warned.ran.err, warning);
    EXPECT_EQ(warned.ran.code, 0);
    EXPECT_EQ(hand_in({"--", program, "train.py"}).ran.err, "") << "it is named";
    EXPECT_EQ(hand_in({"--", "bash", "train.sh"}).ran.err, "") << "it is not there";
    EXPECT_EQ(hand_in({"-e", "PATH", "--", "python3", "train.py"}).ran.err, "") << "the task looks where this shell does";
    EXPECT_EQ(hand_in({"--set", "spec.image=pytorch/pytorch", "--", "python3", "train.py"}).ran.err, "") << "the image's own";
  }
  ::unsetenv("VIRTUAL_ENV"), ::unsetenv("CONDA_PREFIX");
}

TEST(RunOptions, AJobIsNamedAfterWhatItsCommandRuns) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"python3", "train.py"}, "train-"},
      {{"/opt/venv/bin/python3.11", "-u", "src/Fine_Tune.py", "other.py"}, "fine-tune-"},
      {{"python", "-m", "models.vision.train", "--config", "x.py"}, "train-"},
      {{"python3", "-m", "torch.distributed.run", "--nnodes", "2", "train.py"}, "train-"},
      {{"python3", "-m", "torch.distributed.run", "-m", "models.train"}, "train-"},
      {{"torchrun", "--nproc-per-node", "2", "train.py"}, "train-"},
      {{"accelerate", "launch", "--config_file=a.py", "train.py"}, "train-"},
      {{"mpirun", "-n", "4", "python3", "train.py"}, "train-"},
      {{"uv", "run", "train.py"}, "train-"},
      {{"env", "MAIN=a.py", "bash", "-e", "./start.sh"}, "start-"},
      {{"bash", "-c", "cd x && python3 train.py"}, "bash-"},
      {{"sh", "-m", "start.sh"}, "start-"},
      {{"python3", "-m"}, "python3-"},
      {{"python3", "train"}, "python3-"},
      {{"./train.sh", "a.py"}, "train-sh-"},
      {{"/usr/bin/my-trainer2", "-m", "large.v3"}, "my-trainer2-"},
      {{"7.2", "a.py"}, "7-2-"},
      {{"python3", "-m", "a."}, "python3-"},
      {{"mpirun", "solver", "-m", "5"}, "mpirun-"},
  };
  for (const auto& [command, name] : cases) {
    RunOptions options;
    options.command = command;
    EXPECT_EQ(Json::parse(job_file_of(options, "/tmp"))["metadata"]["generateName"], name);
  }
}

TEST(RunOptions, ACommandBeginsInItsPackage) {
  RunOptions options;
  options.command = {"true"};
  const auto begins_in = [&] { return job::parse_manifest(job_file_of(options, "/tmp"), {}).spec.work_dir; };
  EXPECT_EQ(begins_in(), "/tmp");
  options.file.sets = {{"spec.package", "."}};
  EXPECT_EQ(begins_in(), ".");
  options.file.sets = {{"metadata.name", "."}};
  EXPECT_EQ(begins_in(), "/tmp");
  options.file.package = "/somewhere";
  EXPECT_EQ(begins_in(), ".");
}

}  // namespace
}  // namespace dtrain::ctl
