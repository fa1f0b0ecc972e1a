// What a task is given: templates, environment, sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/limits.h"
#include "common/job/templates.h"
#include "tests/unit/job/support.h"

namespace dtrain::job {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::job_text;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;
using testing::parse_good;
using testing::view_of;

const std::string kRoles =
    "    ps: {replicas: 2, command: [a]}\n    chief: {command: [a]}\n    worker: {replicas: 2, command: "
    "[a]}\n"
    "    evaluator: {command: [a]}\n    data: {command: [a]}\n";

TaskView task_view(const TaskId& task) {
  TaskView view;
  view.task = task;
  view.node = "n1";
  view.work_dir = "/work/dir";
  view.package_dir = "/package";
  view.user = "mluser";
  return view;
}

class Render : public ::testing::Test {
 protected:
  // Ports in the order of TaskId: chief 20000, data 20001, evaluator 20002, ps 20003 20004, worker 20005
  // 20006.
  JobSpec spec = parse_good(job_text(kRoles, "  checkpoint: {dir: /ckpt}"));
  ClusterView cluster = view_of(spec);
  std::string text(const std::string& source, const TaskId& task = {"worker", 1}) {
    const auto rendered = render_template(source, spec, cluster, task_view(task));
    return rendered ? *rendered : rendered.error().text();
  }
};

TEST_F(Render, EveryTemplate) {
  cluster.restore = Restore{"/ckpt/step-5", 5};
  const std::vector<std::pair<std::string, std::string>> table = {
      {"{hosts:ps}", "10.0.0.1:20003,10.0.0.1:20004"},
      {"{hosts:chief}", "10.0.0.1:20000"},
      {"{host:ps:1}", "10.0.0.1:20004"},
      {"{count:worker}", "2"},
      {"{port:worker}", "20006"},
      {"{port:chief}", "20000"},
      {"{job.name}", "x"},
      {"{job.generation}", "1"},
      {"{task.name}", "worker-1"},
      {"{task.type}", "worker"},
      {"{task.index}", "1"},
      {"{task.rank}", "2"},
      {"{task.address}", "10.0.0.1:20006"},
      {"{task.host}", "10.0.0.1"},
      {"{task.port}", "20006"},
      {"{work.dir}", "/work/dir"},
      {"{package.dir}", "/package"},
      {"{checkpoint.dir}", "/ckpt"},
      {"{checkpoint.path}", "/ckpt/step-5"},
      {"{checkpoint.step}", "5"},
      {"--ps={hosts:ps} --i={task.index}", "--ps=10.0.0.1:20003,10.0.0.1:20004 --i=1"},
      {"{task.index}{task.index}", "11"},
  };
  for (const auto& [source, expected] : table) EXPECT_EQ(text(source), expected) << source;
}

TEST_F(Render, NothingRestoredIsEmpty) { EXPECT_EQ(text("[{checkpoint.path}{checkpoint.step}]"), "[]"); }

TEST_F(Render, OtherBracesAreLiteral) {
  for (const char* literal : {"{}", "{", "}", "{{", "}}", "{a}", "{\"a\": {\"b\": 1}}", "${HOME}", "{hosts}", "{ hosts:ps}", "{hosts:ps",
                              "{port: 80}", "f'{x!r}'", "{task}", "{taskname}", "{job.na me}", "{hosts:'ps'}", "{{{", "{task.index\n}"})
    EXPECT_EQ(text(literal), literal);
}

TEST_F(Render, DoubledBracesEscape) {
  EXPECT_EQ(text("{{hosts:ps}}"), "{hosts:ps}");
  EXPECT_EQ(text("{{hosts:nobody}}"), "{hosts:nobody}");
  EXPECT_EQ(text("{{{hosts:ps}}}"), "{{hosts:ps}}");
  EXPECT_EQ(text("{{task.index}"), "{1");
  EXPECT_EQ(text("{{a}}"), "{{a}}");
  EXPECT_EQ(text("${{task.index}}${task.index}"), "${task.index}$1");
}

TEST_F(Render, UnknownNames) {
  for (const char* unknown :
       {"{hosts:pss}", "{hosts:}", "{host:ps}", "{host:ps:2}", "{host:ps:x}", "{host:ps:-1}", "{host:ps:999999}", "{count:PS}", "{port:}",
        "{port:http}", "{job.id}", "{task.}", "{task.Name}", "{work.dirs}", "{package.path}", "{checkpoint.}"}) {
    EXPECT_THAT(unknown_templates(std::string("a ") + unknown, spec), ElementsAre(unknown));
    EXPECT_THAT(text(unknown), HasSubstr(std::string("unknown template ") + unknown));
  }
  EXPECT_THAT(unknown_templates("{hosts:a} {hosts:ps} {hosts:b} {{hosts:c}} {d}", spec), ElementsAre("{hosts:a}", "{hosts:b}"));
  EXPECT_THAT(unknown_templates("{hosts:a}{{hosts:b}}", spec), ElementsAre("{hosts:a}"));
}

TEST_F(Render, RanksAreChiefWorkersOthersEvaluators) {
  std::vector<std::string> by_rank(cluster.tasks.size());
  for (const auto& entry : cluster.tasks) by_rank.at(rank_of(spec, cluster, entry.first)) = entry.first.text();
  EXPECT_THAT(by_rank, ElementsAre("chief-0", "worker-0", "worker-1", "data-0", "ps-0", "ps-1", "evaluator-0"));
}

TEST_F(Render, EnvironmentOfATask) {
  TaskView view = task_view({"worker", 1});
  view.gpu_ids = {{"GPU-1", "GPU-2"}, {"GPU-3"}, false};
  view.interface = "ib0";
  view.notify_socket = "/run/n.sock";
  view.pass_env = {{"LANG", "de_DE.UTF-8"}, {"HTTP_PROXY", "p"}};
  cluster.restore = Restore{"/ckpt/step-5", 5};
  const auto out = render(spec, cluster, view);
  ASSERT_TRUE(out);
  EXPECT_THAT(out->argv, ElementsAre("a"));
  auto env = out->env;
  EXPECT_THAT(env["TF_CONFIG"], HasSubstr("\"task\":{\"type\":\"worker\",\"index\":1}"));
  env.erase("TF_CONFIG");
  EXPECT_THAT(
      env, ElementsAre(Pair("CUDA_VISIBLE_DEVICES", "GPU-1,GPU-2"), Pair("DTRAIN_CHECKPOINT_DIR", "/ckpt"), Pair("DTRAIN_GENERATION", "1"),
                       Pair("DTRAIN_INDEX", "1"), Pair("DTRAIN_JOB", "x"), Pair("DTRAIN_NODE", "n1"),
                       Pair("DTRAIN_RESTORE_FROM", "/ckpt/step-5"), Pair("DTRAIN_RESTORE_STEP", "5"), Pair("DTRAIN_ROLE", "worker"),
                       Pair("DTRAIN_TASK", "worker-1"), Pair("GLOO_SOCKET_IFNAME", "ib0"), Pair("HTTP_PROXY", "p"),
                       Pair("LANG", "de_DE.UTF-8"), Pair("LOGNAME", "mluser"), Pair("NCCL_SOCKET_IFNAME", "ib0"),
                       Pair("NOTIFY_SOCKET", "/run/n.sock"), Pair("PATH", "/usr/local/bin:/usr/bin:/bin"), Pair("PYTHONUNBUFFERED", "1"),
                       Pair("ROCR_VISIBLE_DEVICES", "GPU-3"), Pair("USER", "mluser")));
}

TEST_F(Render, NumbersOfGpusAreCountedByAddress) {
  TaskView view = task_view({"worker", 1});
  view.gpu_ids = {{"1"}, {}, true};
  const auto out = render(spec, cluster, view);
  ASSERT_TRUE(out);
  EXPECT_EQ(out->env.at("CUDA_VISIBLE_DEVICES"), "1");
  EXPECT_EQ(out->env.at("CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
  EXPECT_EQ(out->env.at("ROCR_VISIBLE_DEVICES"), "");
}

TEST_F(Render, WhatIsUnknownIsUnset) {
  spec.checkpoint.reset();
  spec.framework = Framework::generic;
  const auto out = render(spec, cluster, task_view({"worker", 0}));
  ASSERT_TRUE(out);
  for (const char* name : {"TF_CONFIG", "DTRAIN_CHECKPOINT_DIR", "DTRAIN_RESTORE_FROM", "DTRAIN_RESTORE_STEP", "GLOO_SOCKET_IFNAME",
                           "NCCL_SOCKET_IFNAME", "NOTIFY_SOCKET", "DTRAIN_ATTEMPT"})
    EXPECT_THAT(out->env, Not(Contains(Key(name))));
  EXPECT_EQ(out->env.at("CUDA_VISIBLE_DEVICES"), "");
}

TEST_F(Render, TheUsersEnvironmentWins) {
  spec.env = {{"TF_CONFIG", "job"}, {"A", "job {task.index}"}, {"PATH", "/mine"}};
  spec.roles["worker"].env = {{"A", "role {task.index} {{task.index}}"}, {"DTRAIN_NODE", "x"}};
  const auto out = render(spec, cluster, task_view({"worker", 1}));
  ASSERT_TRUE(out);
  EXPECT_EQ(out->env.at("TF_CONFIG"), "job");
  EXPECT_EQ(out->env.at("A"), "role 1 {task.index}");
  EXPECT_EQ(out->env.at("PATH"), "/mine");
  EXPECT_EQ(out->env.at("DTRAIN_NODE"), "x");
}

TEST_F(Render, Failures) {
  EXPECT_EQ(render(spec, cluster, task_view({"nobody", 0})).error().code, ErrorCode::invalid);
  EXPECT_EQ(render(spec, cluster, task_view({"worker", 9})).error().code, ErrorCode::invalid);
  spec.env = {{"A", "{hosts:pss}"}};
  EXPECT_THAT(render(spec, cluster, task_view({"worker", 0})).error().text(), HasSubstr("{hosts:pss}"));
  spec.env = {{"A", std::string(limits::kArgumentBytes - 3, 'x')}};
  EXPECT_TRUE(render(spec, cluster, task_view({"worker", 0})));
  spec.env = {{"A", std::string(limits::kArgumentBytes - 2, 'x')}};
  EXPECT_THAT(render(spec, cluster, task_view({"worker", 0})).error().text(), HasSubstr("variable `A` has more than 131072 bytes"));
  std::string many;
  while (many.size() < limits::kArgumentBytes) many += "{hosts:worker}";
  spec.env = {{"A", many}};
  EXPECT_EQ(render(spec, cluster, task_view({"worker", 0})).error().code, ErrorCode::limit);
  spec.env.clear();
  spec.roles["worker"].command.assign(1 + limits::kArgumentsTotalBytes / 1000, std::string(1000, 'x'));
  EXPECT_EQ(render(spec, cluster, task_view({"worker", 0})).error().code, ErrorCode::limit);
}

}  // namespace
}  // namespace dtrain::job
