// Built of the library alone: any program may show answers as JSON, an agent included.
#include "common/json/answers.h"

#include <gtest/gtest.h>

#include "common/job/manifest.h"

namespace dtrain::json {

TEST(JsonOfAnswers, Task) {
  wire::TaskView task;
  task.task = "worker-1";
  task.role = "worker";
  task.index = 1;
  task.state = "Waiting";
  EXPECT_EQ(text(of(task), false),
            R"({"task":"worker-1","role":"worker","index":1,"state":"Waiting","node":"","pid":null,"address":"","attempt":0,)"
            R"("exit":null,"gpus":[],"started_at":null,"status":"","reason":"","ready":false})");
  task.pid = 4711;
  task.exit = wire::ExitView{};
  task.exit->signal = "SIGKILL";
  task.started_at = "2026-11-20T07:00:00.123Z";
  const Json json = of(task);
  EXPECT_EQ(json["pid"], 4711);
  EXPECT_EQ(json["exit"].dump(), R"({"signal":"SIGKILL"})");
  EXPECT_EQ(json["started_at"], "2026-11-20T07:00:00.123Z");
}

TEST(JsonOfAnswers, ExitCodeAndCause) {
  wire::ExitView exit;
  exit.code = 0;
  EXPECT_EQ(of(exit).dump(), R"({"code":0})");
  exit.code.reset();
  exit.cause = "shim died";
  EXPECT_EQ(of(exit).dump(), R"({"cause":"shim died"})");
}

TEST(JsonOfAnswers, Status) {
  wire::StatusView status;
  status.cluster = {"lab", "c0ffee"};
  status.quorum = {{"n1"}, true, 0, ""};
  status.nodes.alive = 1;
  status.jobs["Running"] = 2;
  status.membership = {{{"bad-body", 0}, {"other-cluster", 5}}, 4, 3, 2, 1};
  EXPECT_EQ(text(of(status), false),
            R"({"cluster":{"name":"lab","id":"c0ffee"},"coordinator":null,"quorum":{"voters":["n1"],"healthy":true,"history":0,"next":""},)"
            R"("nodes":{"alive":1,"suspect":0,"down":0,"dead":0,"left":0},"gpus":{"total":0,"free":0},"jobs":{"Running":2},)"
            R"("stale":false,"ledger":true,"waiting_for":"","membership":{"drops":{"bad-body":0,"other-cluster":5},)"
            R"("probe_failures":4,"refutes":3,"rumours_dropped":2,"health":1},"drained":{},"unfit":{}})");
  status.coordinator = wire::CoordinatorView{"n1", 7};
  EXPECT_EQ(of(status)["coordinator"].dump(), R"({"node":"n1","epoch":7})");
}

TEST(JsonOfAnswers, NodeHasCpusInDecimals) {
  wire::NodeView node;
  node.name = "n1";
  node.cpus = {2000, 1500};
  node.memory = {1024, 512};
  node.gpus.devices.emplace_back();
  const Json json = of(node);
  EXPECT_EQ(json["cpus"].dump(), R"({"total":2,"free":1.5})");
  EXPECT_EQ(of(wire::CpusView{1, 127'050}).dump(), R"({"total":0.001,"free":127.05})");
  EXPECT_EQ(json["memory"].dump(), R"({"total_bytes":1024,"free_bytes":512})");
  for (const char* key : {"name", "id", "address", "state", "incarnation", "role", "schedulable", "gpus", "labels"})
    EXPECT_TRUE(json.contains(key)) << key;
  for (const char* key : {"index", "pci", "vendor", "model", "uuid", "memory_bytes", "numa", "healthy"})
    EXPECT_TRUE(json["gpus"]["devices"][0].contains(key)) << key;
}

TEST(JsonOfAnswers, Submit) {
  EXPECT_EQ(text(of(wire::SubmitReply{"digits", 17, 1, false, {}}), false), R"({"name":"digits","id":17,"generation":1})");
  EXPECT_EQ(of(wire::SubmitReply{"digits", 17, 1, true, {}})["unchanged"], true);
}

TEST(JsonOfAnswers, DescriptionHasTheJobAtItsTop) {
  const job::ParsedJob parsed = job::parse_manifest(
      "apiVersion: dtrain/v1\nkind: Job\nmetadata: {name: digits}\nspec:\n  framework: generic\n  env: {FLAG: on, N: 3}\n"
      "  roles:\n    worker: {replicas: 2, command: [\"true\"], resources: {cpus: 500m}}\n",
      {});
  ASSERT_TRUE(parsed.errors.empty()) << parsed.errors.front().text();
  wire::JobDescription description;
  description.job.name = "digits";
  description.job.state = "Running";
  description.spec = wire::encode(parsed.spec);
  const Json json = of(description);
  EXPECT_EQ(json["name"], "digits");
  EXPECT_EQ(json["state"], "Running");
  EXPECT_EQ(json["spec"]["framework"], "generic");
  EXPECT_EQ(json["spec"]["env"].dump(), R"({"FLAG":"on","N":"3"})");  // literal text stays text
  EXPECT_EQ(json["spec"]["roles"]["worker"]["replicas"], 2);
  EXPECT_EQ(json["spec"]["roles"]["worker"]["resources"]["cpus"], "500m");
  EXPECT_EQ(json["spec"]["roles"]["worker"]["command"].dump(), R"(["true"])");
  for (const char* key : {"restored", "first_fault"}) EXPECT_TRUE(json[key].is_null()) << key;
  for (const char* key : {"tasks", "conditions", "events"}) EXPECT_TRUE(json[key].is_array()) << key;
  EXPECT_EQ(json["waiting_for"], "");
}

TEST(JsonOfAnswers, BytesThatAreNoTextAreReplaced) {
  wire::TaskView task;
  task.status = "\xff";
  EXPECT_NE(text(of(task), false).find("\xef\xbf\xbd"), std::string::npos);
  EXPECT_NE(yaml(of(task)).find("status"), std::string::npos);
}

// Raw they would steer the terminal that shows them, or turn what it shows around.
TEST(JsonOfAnswers, ControlsOfTerminalsAndDirectionAreEscaped) {
  const Json value{{"a\u202eb", "x\u009by\u2066z"}};
  EXPECT_EQ(text(value, false), "{\"a\\u202eb\":\"x\\u009by\\u2066z\"}");
  EXPECT_EQ(Json::parse(text(value, false)), value);
  EXPECT_EQ(yaml(value), "\"a\\u202eb\": \"x\\x9by\\u2066z\"");
}

TEST(JsonOfAnswers, YamlKeepsTextAsText) {
  EXPECT_EQ(yaml(Json{{"a", "true"}, {"n", 3}, {"list", Json::array({"x"})}, {"none", nullptr}}),
            "a: \"true\"\nn: 3\nlist:\n  - \"x\"\nnone: ~");
}

}  // namespace dtrain::json
