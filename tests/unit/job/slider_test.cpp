// resources.json and appConfig.json of Slider, as one job.
#include "common/job/job_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/wire/codec.h"

namespace dtrain::job {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr const char* kResources = R"({
  "schema": "specification/v2.0.0",
  "metadata": {},
  "global": {"yarn.container.failure.threshold": "4", "yarn.container.failure.window.hours": "8"},
  "components": {
    "slider-appmaster": {"yarn.label.expression": "train", "yarn.memory": "256"},
    "ps": {"yarn.role.priority": "1", "yarn.component.instances": "2", "yarn.memory": "2048", "yarn.vcores": "1",
           "yarn.component.placement.policy": "4"},
    "chiefworker": {"yarn.role.priority": "2", "yarn.component.instances": "1", "yarn.memory": "4096", "yarn.vcores": "2"},
    "worker": {"yarn.role.priority": "3", "yarn.component.instances": "3", "yarn.memory": "3072", "yarn.vcores": "4",
               "yarn.label.expression": "", "yarn.container.failure.threshold": "9", "yarn.log.include.patterns": "x"},
    "tensorboard": {"yarn.role.priority": "4", "yarn.component.instances": "1"}
  }
})";
constexpr const char* kApp = R"({
  "schema": "specification/v2.0.0",
  "global": {
    "application.def": "slider-tensorflow-app-package.zip",
    "site.global.user.scripts.entry": "mnist.py",
    "site.global.user.checkpoint.prefix": "/mnt/checkpoints",
    "site.global.docker.image": "tensorflow:1",
    "site.global.ps.port": "${ps.ALLOCATED_PORT}{PER_CONTAINER}"
  },
  "components": {}
})";

JobFile read_slider_file(const std::string& text) {
  ParseOptions options;
  options.file_name = "resources.json";
  return read_job_file(text, options, {});
}

TEST(Slider, AnApplicationIsAJob) {
  const JobFile file = read_slider_file(std::string(kResources) + "\n---\n" + kApp);
  ASSERT_EQ(file.errors.size(), 0u) << file.errors[0].text();
  ASSERT_EQ(file.jobs.size(), 1u);
  const JobSpec& spec = file.jobs[0].spec;
  EXPECT_EQ(spec.framework, Framework::tensorflow);
  ASSERT_EQ(spec.roles.size(), 2u);
  const RoleSpec &ps = spec.roles.at("ps"), &worker = spec.roles.at("worker");
  EXPECT_EQ(ps.replicas, 2u);
  EXPECT_TRUE(ps.exclusive);
  EXPECT_EQ(ps.anti_affinity, "host");
  EXPECT_EQ(ps.resources.memory_bytes, 2048ull << 20);
  EXPECT_THAT(ps.node_selector, ElementsAre(Pair("yarn.label", "train"))) << "the master's, by default";
  EXPECT_EQ(worker.replicas, 4u) << "the chief worker is one of them";
  EXPECT_EQ(worker.resources.memory_bytes, 4096ull << 20);
  EXPECT_EQ(worker.resources.cpu_millis, 4000u);
  EXPECT_TRUE(worker.node_selector.empty());
  EXPECT_THAT(worker.start_after, ElementsAre(Pair("ps", StartAfter::running)));
  EXPECT_THAT(worker.command,
              ElementsAre("python3", "mnist.py", "--ps_hosts={hosts:ps}", "--worker_hosts={hosts:worker}", "--job_name={task.type}",
                          "--task_index={task.index}", "--ckp_dir={checkpoint.dir}", "--work_dir={package.dir}"));
  EXPECT_EQ(spec.checkpoint->dir, "/mnt/checkpoints");
  EXPECT_EQ(spec.policy.failure_threshold.count, 9u);
  EXPECT_EQ(spec.policy.failure_threshold.within, 8h);
  for (const char* said :
       {"components.tensorboard: trains nothing", "yarn.log.include.patterns: has no effect", "application.def: is not unpacked",
        "docker.image: tasks run on the host", "ps.port: has no effect", "all workers get what the larger"})
    EXPECT_THAT(file.jobs[0].warnings, Contains(HasSubstr(said)));
  const JobFile again = read_slider_file(to_job_file(file));
  ASSERT_EQ(again.errors.size(), 0u) << again.errors[0].text();
  EXPECT_EQ(wire::encode(again.jobs[0].spec), wire::encode(spec)) << "what convert prints means the same";
}

TEST(Slider, NoLimitIsNone) {
  const std::string text = R"({"components": {"worker": {"yarn.component.instances": "1", "yarn.container.failure.threshold": "0"}}})";
  EXPECT_EQ(read_slider_file(text + "\n---\n" + kApp).jobs[0].spec.policy.failure_threshold.count, 0u);
  const std::string few = R"({"global": {"yarn.container.failure.threshold": "5", "yarn.container.failure.window.hours": "1"},
                              "components": {"worker": {"yarn.component.instances": "1", "yarn.container.failure.threshold": "3"}}})";
  const FailureThreshold most = read_slider_file(few + "\n---\n" + kApp).jobs[0].spec.policy.failure_threshold;
  EXPECT_EQ(most.count, 5u);
  EXPECT_EQ(most.within, 1h);
}

TEST(Slider, MistakesAreNamedWithTheirPlace) {
  const auto errors = [](const std::string& text) {
    std::vector<std::string> out;
    for (const FileError& error : read_slider_file(text).errors) out.push_back(error.text());
    return out;
  };
  EXPECT_THAT(errors(kResources), ElementsAre(HasSubstr("give its appConfig.json, too: --app-config FILE")));
  EXPECT_THAT(errors(std::string(kResources) + "\n---\n{global: {application.def: x.zip}}"),
              ElementsAre(HasSubstr("site.global.user.scripts.entry: is required")));
  EXPECT_THAT(errors(R"({"components": {"worker": {"yarn.component.instances": "many"}, "ps": {"yarn.memory": "1G"}}})" +
                     ("\n---\n" + std::string(kApp))),
              ElementsAre(HasSubstr("components.worker.yarn.component.instances: must be a whole number"),
                          HasSubstr("components.ps.yarn.memory: must be a whole number")));
  EXPECT_THAT(errors(std::string(kResources) +
                     "\n---\n{global: {site.global.user.scripts.entry: a.py, site.global.user.checkpoint.prefix: 'hdfs://x/y'}}"),
              ElementsAre(HasSubstr("must be an absolute path that all hosts share, not hdfs://x/y")));
}

}  // namespace
}  // namespace dtrain::job
