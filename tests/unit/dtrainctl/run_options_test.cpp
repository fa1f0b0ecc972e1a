// The job file that `dtrainctl run [options] -- CMD...` makes.
#include <gtest/gtest.h>

#include "agent/dtrainctl/follow.h"
#include "common/job/manifest.h"
#include "common/json/answers.h"

namespace dtrain::ctl {
namespace {

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
