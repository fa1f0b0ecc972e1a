// Every mistake a job file can hold: what is said about it, and where.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/limits.h"
#include "tests/unit/job/support.h"

namespace dtrain::job {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::error_lines;
using ::testing::HasSubstr;
using testing::job_text;
using testing::kWorker;
using testing::parse;
using ::testing::SizeIs;
using ::testing::StartsWith;

struct Case {
  std::string name;
  std::string text;
  std::string code;
  std::string path;
  std::string says;  // part of message and next
};

std::string role(const std::string& fields) { return job_text("    worker: {command: [\"true\"], " + fields + "}"); }
std::string policy(const std::string& fields) { return job_text(kWorker, "  policy: {" + fields + "}"); }
std::string spec(const std::string& lines) { return job_text(kWorker, "  " + lines); }

std::string many_paths(int count) {
  std::string list = "/0";
  for (int i = 1; i < count; ++i) list += ", /" + std::to_string(i);
  return list;
}

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class OneMistake : public ::testing::TestWithParam<Case> {};

TEST_P(OneMistake, IsNamedOnceWithItsPathAndCode) {
  const Case& c = GetParam();
  const ParsedJob job = parse(c.text);
  ASSERT_THAT(job.errors, SizeIs(1)) << (job.errors.size() > 1 ? job.errors[1].text() : "");
  const FileError& error = job.errors[0];
  EXPECT_EQ(error.code, c.code) << error.text();
  EXPECT_EQ(error.path, c.path) << error.text();
  EXPECT_THAT(error.message + "; " + error.next, HasSubstr(c.says));
  EXPECT_GT(error.line, 0u) << error.text();
  EXPECT_THAT(error.text(), StartsWith("f.yaml:" + std::to_string(error.line) + ": " + (c.path.empty() ? "" : c.path + ": ")));
}

const std::string kRole = "spec.roles.worker";

INSTANTIATE_TEST_SUITE_P(
    Document, OneMistake,
    ::testing::Values(
        Case{"NotAMap", "[1, 2]", "syntax", "", "a job file is a map"}, Case{"PlainText", "hello", "syntax", "", "a job file is a map"},
        Case{"NotYaml", "a: b: c: [", "syntax", "", "not YAML"},
        Case{"TwoDocuments", job_text(kWorker) + "---\n" + job_text(kWorker), "syntax", "", "second document"},
        Case{"KeyTwice", job_text(kWorker + "\n    worker: {command: [\"true\"]}"), "syntax", kRole, "given twice, first on line 7"},
        Case{"MergeKey", spec("env: &e {A: 1}\n  requires: {<<: *e}"), "syntax", "", "merge keys"},
        Case{"NullKey", spec("env: {~: 1}"), "syntax", "", "a key must be text"},
        Case{"ListAsKey", spec("env: {[a]: 1}"), "syntax", "", "a key must be plain text"},
        Case{"AliasAsKey", spec("workDir: &a b\n  env: {*a : 1}"), "syntax", "", "a key must be plain text"},
        Case{"AliasInsideItself", spec("env: &a {A: *a}"), "syntax", "", "inside the value"},
        Case{"UnknownAlias", spec("env: *nobody"), "syntax", "", "not YAML"},
        Case{"Tag", spec("workDir: !!python/object:os.system x"), "syntax", "", "tag"},
        Case{"BinaryTag", spec("workDir: !!binary aGVsbG8="), "syntax", "", "tag"},
        Case{"Nul", std::string("apiVersion: dtrain/v1\nkind: \0Job", 33), "syntax", "", "control character `\\x00`"},
        Case{"EscapedNul", spec("workDir: \"a\\0b\""), "syntax", "", "without NUL"},
        Case{"KubeflowJob", "apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: x}\nspec: {tfReplicaSpecs: {}}", "unsupported",
             "apiVersion", "reads apiVersion dtrain/v1, kind Job only, not `kubeflow.org/v1`, `TFJob`"},
        Case{"OtherKind", "apiVersion: dtrain/v1\nkind: Jobs\nmetadata: {name: x}", "unsupported", "kind", "kind Job only"},
        Case{"NoName", "apiVersion: dtrain/v1\nkind: Job\nmetadata: {}\nspec: {roles: {w: {command: [a]}}}", "missing", "metadata.name",
             "is required"},
        Case{"NoVersion", "kind: Job\nmetadata: {name: x}\nspec: {roles: {w: {command: [a]}}}", "missing", "apiVersion", "dtrain/v1"},
        Case{"NoKind", "apiVersion: dtrain/v1\nmetadata: {name: x}\nspec: {roles: {w: {command: [a]}}}", "missing", "kind", "Job"},
        Case{"NoSpec", "apiVersion: dtrain/v1\nkind: Job\nmetadata: {name: x}", "missing", "spec", "is required"},
        Case{"UnknownTop", job_text(kWorker) + "status: {}", "unknown-key", "status", "not apiVersion, kind, metadata or spec"}),
    [](const auto& p) { return p.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Job, OneMistake,
    ::testing::Values(
        Case{"UnknownKey", spec("enviroment: x"), "unknown-key", "spec.enviroment", "did you mean `environment`?"},
        Case{"Framework", job_text(kWorker, "", "tensorflo"), "out-of-range", "spec.framework", "did you mean `tensorflow`?"},
        Case{"LaterFramework", job_text(kWorker, "", "horovod"), "unsupported", "spec.framework", "and lightgbm, not horovod"},
        Case{"Environment", spec("environment: ./venv.tar.gz"), "unsupported", "spec.environment", "this version does not"},
        Case{"Image", spec("image: --privileged"), "out-of-range", "spec.roles.worker.image", "must be the name of an image"},
        Case{"PackageEmpty", spec("package: \"\""), "out-of-range", "spec.package", "not empty"},
        Case{"PackageNull", spec("package:"), "wrong-type", "spec.package", "not null"},
        Case{"PackageList", spec("package: [a]"), "wrong-type", "spec.package", "not a list"},
        Case{"WorkDirOutside", spec("workDir: a/../b"), "out-of-range", "spec.workDir", "inside the package"},
        Case{"WorkDirEmpty", spec("workDir: \"\""), "out-of-range", "spec.workDir", "not empty"},
        Case{"EnvNull", spec("env: {A: }"), "wrong-type", "spec.env.A", "write \"\" for empty text"},
        Case{"EnvList", spec("env: [A=1]"), "wrong-type", "spec.env", "must be a map"},
        Case{"EnvValueMap", spec("env: {A: {b: c}}"), "wrong-type", "spec.env.A", "must be text, not a map"},
        Case{"EnvName", spec("env: {\"A=B\": c}"), "out-of-range", "spec.env.A=B", "no ="},
        Case{"EnvNameEmpty", spec("env: {\"\": c}"), "out-of-range", "spec.env.", "1 to 256"},
        Case{"RequiresKey", spec("requires: {path: [/a]}"), "unknown-key", "spec.requires.path", "did you mean `paths`?"},
        Case{"RequiresRelative", spec("requires: {paths: [/a, b]}"), "out-of-range", "spec.requires.paths[1]", "absolute"},
        Case{"RequiresMany", spec("requires: {paths: [" + many_paths(129) + "]}"), "limit", "spec.requires.paths", "at most 128"},
        Case{"HookState", spec("notify: {command: [page], on: [failed]}"), "out-of-range", "spec.notify.on[0]", "did you mean `Failed`?"},
        Case{"HookNoCommand", spec("notify: {on: [Failed]}"), "missing", "spec.notify.command", "is required"},
        Case{"Suspend", spec("suspend: yes"), "wrong-type", "spec.suspend", "true or false, not `yes`"},
        Case{"CheckpointNoDir", spec("checkpoint: {keep: 1}"), "missing", "spec.checkpoint.dir", "is required"},
        Case{"CheckpointRelative", spec("checkpoint: {dir: ckpt}"), "out-of-range", "spec.checkpoint.dir", "absolute path, not `ckpt`"},
        Case{"CheckpointFormat", spec("checkpoint: {dir: /a, format: dcp}"), "out-of-range", "spec.checkpoint.format",
             "auto, manifest, tensorflow, torch, safetensors, huggingface, torch-distributed, numpy, keras, deepspeed, megatron, orbax, "
             "hdf5 or xgboost"},
        Case{"CheckpointKeep", spec("checkpoint: {dir: /a, keep: 0}"), "out-of-range", "spec.checkpoint.keep", "from 1"},
        Case{"CheckpointRestore", spec("checkpoint: {dir: /a, restore: newest}"), "out-of-range", "spec.checkpoint.restore",
             "auto, never or an absolute path"},
        Case{"CheckpointReplicas", spec("checkpoint: {dir: /a, replicas: 0}"), "out-of-range", "spec.checkpoint.replicas", "from 1"}),
    [](const auto& p) { return p.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Role, OneMistake,
    ::testing::Values(
        Case{"ReplicasText", role("replicas: two"), "wrong-type", kRole + ".replicas", "from 1 to 10000, not `two`"},
        Case{"ReplicasZero", role("replicas: 0"), "out-of-range", kRole + ".replicas", "from 1 to 10000, not `0`"},
        Case{"ReplicasNegative", role("replicas: -1"), "out-of-range", kRole + ".replicas", "not `-1`"},
        Case{"ReplicasHuge", role("replicas: 4000000000"), "out-of-range", kRole + ".replicas", "not `4000000000`"},
        Case{"ReplicasHuger", role("replicas: 99999999999999999999999"), "out-of-range", kRole + ".replicas", "10000"},
        Case{"ReplicasFraction", role("replicas: 1.5"), "wrong-type", kRole + ".replicas", "whole number"},
        Case{"ReplicasMap", role("replicas: {a: b}"), "wrong-type", kRole + ".replicas", "not a map"},
        Case{"BeginningOfAKey", role("nproc: 2"), "unknown-key", kRole + ".nproc", "did you mean `nprocPerNode`?"},
        Case{"TooLittleOfAKey", role("npr: 2"), "unknown-key", kRole + ".npr", "unknown key `npr`, not "},
        Case{"BeginningOfTwoKeys", policy("success: 1"), "unknown-key", "spec.policy.success", "unknown key `success`, not "},
        Case{"Replica", role("replica: 2"), "unknown-key", kRole + ".replica", "did you mean `replicas`?"},
        Case{"MinAbove", role("replicas: 2, minReplicas: 3"), "out-of-range", kRole + ".minReplicas", "from 1 to replicas (2)"},
        Case{"TwoChiefs", job_text("    chief: {replicas: 2, command: [a]}"), "out-of-range", "spec.roles.chief.replicas",
             "at most one chief"},
        Case{"TwoMasters", job_text("    master: {replicas: 2, command: [a]}"), "out-of-range", "spec.roles.master.replicas",
             "at most one master"},
        Case{"ChiefAndMaster", job_text("    master: {command: [a]}\n    chief: {command: [a]}"), "conflict", "spec.roles.master",
             "not both"},
        Case{"MasterAndEvaluator", job_text("    master: {command: [a]}\n    evaluator: {command: [a]}"), "conflict",
             "spec.roles.evaluator", "beside a master"},
        Case{"OnlyPs", job_text("    ps: {command: [a]}"), "missing", "spec.roles", "whose end ends the job"},
        Case{"RoleName", job_text("    Worker: {command: [a]}"), "out-of-range", "spec.roles.Worker", "lower-case"},
        Case{"RoleNameLong", job_text("    abcdefghijklmnop: {command: [a]}"), "out-of-range", "spec.roles.abcdefghijklmnop", "at most 15"},
        Case{"RoleText", job_text("    worker: python3"), "wrong-type", kRole, "must be a map"},
        Case{"RolesList", job_text("    [worker]"), "wrong-type", "spec.roles", "must be a map of roles"},
        Case{"NoCommand", job_text("    worker: {replicas: 1}"), "missing", kRole + ".command", "is required"},
        Case{"CommandText", job_text("    worker: {command: python3 x.py}"), "wrong-type", kRole + ".command", "must be a list"},
        Case{"CommandEmpty", job_text("    worker: {command: []}"), "missing", kRole + ".command", "is required"},
        Case{"CommandEmptyProgram", job_text("    worker: {command: [\"\"]}"), "out-of-range", kRole + ".command[0]", "a program"},
        Case{"CommandNull", job_text("    worker: {command: [a, ~]}"), "wrong-type", kRole + ".command[1]", "not null"},
        Case{"Template", job_text("    worker: {command: [a, \"{hosts:pss}\"]}"), "template", kRole + ".command[1]",
             "unknown template `{hosts:pss}`"},
        Case{"TemplateNear", job_text("    ps: {command: [a]}\n    worker: {command: [a, \"{hosts:pss}\"]}"), "template",
             kRole + ".command[1]", "did you mean {hosts:ps}?"},
        Case{"TemplateInEnv", role("env: {A: \"{task.nme}\"}"), "template", kRole + ".env.A", "did you mean {task.name}?"},
        Case{"TemplateIndex", role("env: {A: \"{host:worker:1}\"}"), "template", kRole + ".env.A", "the role has fewer tasks"},
        Case{"TemplateMayBeLeftOut", role("replicas: 3, minReplicas: 2, env: {A: \"{host:worker:2}\", B: \"{host:worker:1}\"}"), "template",
             kRole + ".env.A", "may shrink to fewer tasks (minReplicas)"},
        Case{"TemplateCheckpoint", role("env: {A: \"{checkpoint.dir}\"}"), "template", kRole + ".env.A", "no spec.checkpoint"},
        Case{"Cpus", role("resources: {cpus: many}"), "wrong-type", kRole + ".resources.cpus", "500m"},
        Case{"Memory", role("resources: {memory: 8GB}"), "wrong-type", kRole + ".resources.memory", "8Gi"},
        Case{"GpusHalf", role("resources: {gpus: 0.5}"), "wrong-type", kRole + ".resources.gpus", "whole number"},
        Case{"GpuModelAlone", role("resources: {gpuModel: A100}"), "conflict", kRole + ".resources.gpuModel", "set gpus"},
        Case{"AntiAffinity", role("antiAffinity: \"a b\""), "out-of-range", kRole + ".antiAffinity", "none, host or a label"},
        Case{"Selector", role("nodeSelector: {\"a b\": c}"), "out-of-range", kRole + ".nodeSelector.a b", "label"},
        Case{"AvoidGpu", role("avoidGpuHosts: never"), "out-of-range", kRole + ".avoidGpuHosts", "no, prefer or require"},
        Case{"Restart", role("restartPolicy: onfailure"), "out-of-range", kRole + ".restartPolicy", "did you mean `OnFailure`?"},
        Case{"StartAfterUnknown", role("startAfter: {chef: Ready}"), "out-of-range", kRole + ".startAfter.chef", "no role `chef`"},
        Case{"StartAfterSelf", role("startAfter: {worker: Ready}"), "conflict", kRole + ".startAfter.worker", "after itself"},
        Case{"StartAfterWord", job_text("    ps: {command: [a]}\n    worker: {command: [a], startAfter: {ps: ready}}"), "out-of-range",
             kRole + ".startAfter.ps", "did you mean `Ready`?"},
        Case{"StartAfterList", role("startAfter: [ps]"), "wrong-type", kRole + ".startAfter", "{chief: Ready}"},
        Case{"StartAfterCycle", job_text("    chief: {command: [a], startAfter: {worker: Running}}\n    worker: {command: [a]}"),
             "conflict", "spec.roles.chief.startAfter", "chief after worker after chief"},
        Case{"OnDisconnect", role("onDisconnect: kep"), "out-of-range", kRole + ".onDisconnect", "did you mean `keep`?"},
        Case{"ReplacedExclusive", role("exclusive: true, onDisconnect: replace"), "conflict", kRole + ".onDisconnect",
             "use freeze or keep"},
        Case{"GangOfOne", job_text("    worker: {replicas: 2, command: [a, \"{hosts:worker}\"]}", "  policy: {gang: false}"), "conflict",
             "spec.policy.gang", "with minReplicas a job goes on with fewer tasks"},
        Case{"ExclusivePs", job_text("    ps: {command: [a], exclusive: false}\n" + kWorker), "conflict", "spec.roles.ps.exclusive",
             "cannot be false"},
        Case{"Watchdog", role("watchdog: 10"), "wrong-type", kRole + ".watchdog", "30s"},
        Case{"SignalTo", role("signalTo: everybody"), "out-of-range", kRole + ".signalTo", "main"},
        Case{"RetryCodes", role("restartPolicy: ExitCode, retryExitCodes: [75, x]"), "wrong-type", kRole + ".retryExitCodes[1]", "3-5"},
        Case{"RetryCodesOrder", role("restartPolicy: ExitCode, retryExitCodes: [9-7]"), "wrong-type", kRole + ".retryExitCodes[0]", "3-5"},
        Case{"RetryCodesRange", role("restartPolicy: ExitCode, retryExitCodes: [0]"), "out-of-range", kRole + ".retryExitCodes[0]",
             "1 to 255"},
        Case{"RetryCodesAlone", role("retryExitCodes: [75]"), "conflict", kRole + ".retryExitCodes", "restartPolicy: ExitCode"},
        Case{"RunTimeout", role("runTimeout: 10"), "wrong-type", kRole + ".runTimeout", "30s"},
        Case{"OverrideKey", role("overrides: {first: {env: {A: b}}}"), "wrong-type", kRole + ".overrides.first", "the index of a task"},
        Case{"OverrideList", role("overrides: [a]"), "wrong-type", kRole + ".overrides", "must be a map"},
        Case{"OverrideField", role("overrides: {0: {image: x}}"), "unknown-key", kRole + ".overrides.0.image", ""},
        Case{"OverrideOfNobody", role("replicas: 2, overrides: {1-2: {env: {A: b}}}"), "out-of-range", kRole + ".overrides.1-2", "0 to 1"},
        Case{"OverrideTwice", role("replicas: 4, overrides: {0-2: {env: {A: b}}, 2: {env: {A: c}}}"), "conflict", kRole + ".overrides.2",
             "0-2"},
        Case{"OverrideTwiceAround", role("replicas: 4, overrides: {2: {env: {A: b}}, 0-3: {env: {A: c}}}"), "conflict",
             kRole + ".overrides.0-3", "that 2 names"},
        Case{"OverrideTemplate", role("overrides: {0: {env: {A: \"{task.nme}\"}}}"), "template", kRole + ".overrides.0.env.A",
             "{task.name}"},
        Case{"StopSignal", role("stopSignal: SIGFOO"), "wrong-type", kRole + ".stopSignal", "SIGTERM"}),
    [](const auto& p) { return p.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Policy, OneMistake,
    ::testing::Values(
        Case{"BackoffLimit", policy("backoffLimit: -1"), "out-of-range", "spec.policy.backoffLimit", "from 0"},
        Case{"Backoff", policy("restartBackoff: 10"), "wrong-type", "spec.policy.restartBackoff", "10m"},
        Case{"BackoffList", policy("restartBackoff: [1s]"), "wrong-type", "spec.policy.restartBackoff", "a list"},
        Case{"BackoffOrder", policy("restartBackoff: {initial: 10s, max: 1s}"), "conflict", "spec.policy.restartBackoff.initial",
             "at most max (1s)"},
        Case{"BackoffKey", policy("restartBackoff: {reset: 1s}"), "unknown-key", "spec.policy.restartBackoff.reset", "resetAfter"},
        Case{"Threshold", policy("failureThreshold: {count: 1, within: 0s}"), "out-of-range", "spec.policy.failureThreshold.within",
             "above 0"},
        Case{"ThresholdText", policy("failureThreshold: off"), "wrong-type", "spec.policy.failureThreshold", "whole number"},
        Case{"OnPsFailure", policy("onPsFailure: stop"), "out-of-range", "spec.policy.onPsFailure", "halt or freeze"},
        Case{"Deadline", policy("activeDeadlineSeconds: 0"), "out-of-range", "spec.policy.activeDeadlineSeconds", "from 1"},
        Case{"DeadlineUnit", policy("activeDeadlineSeconds: 1h"), "wrong-type", "spec.policy.activeDeadlineSeconds", "whole number"},
        Case{"CleanPod", policy("cleanPodPolicy: running"), "out-of-range", "spec.policy.cleanPodPolicy", "did you mean `Running`?"},
        Case{"Success", policy("successPolicy: AllWorker"), "out-of-range", "spec.policy.successPolicy", "did you mean `AllWorkers`?"},
        Case{"Percent", policy("successPercent: 101"), "out-of-range", "spec.policy.successPercent", "from 1 to 100"},
        Case{"PercentOfOne", policy("successPercent: 50"), "conflict", "spec.policy.successPercent", "successPolicy: AllWorkers"},
        Case{"PercentOfAGang",
             job_text("    worker: {replicas: 2, command: [a]}",
                      "  policy: {successPercent: 50, successPolicy: AllWorkers, collective: true}"),
             "conflict", "spec.policy.successPercent", "without the others"},
        Case{"Evaluator", policy("evaluatorInCluster: no"), "out-of-range", "spec.policy.evaluatorInCluster", "self, never or always"},
        Case{"Dynamic", policy("enableDynamicWorker: 1"), "wrong-type", "spec.policy.enableDynamicWorker", "true or false"},
        Case{"Placement", policy("placement: packed"), "out-of-range", "spec.policy.placement", "pack or spread"},
        Case{"Priority", policy("priority: 3000000000"), "out-of-range", "spec.policy.priority", "2147483647"},
        Case{"GrowAtOnce", policy("growAfter: 0s"), "out-of-range", "spec.policy.growAfter", "growAfter: never"},
        Case{"GrowAfter", policy("growAfter: none"), "wrong-type", "spec.policy.growAfter", "10m"},
        Case{"Grace", policy("stopGracePeriod: 30"), "wrong-type", "spec.policy.stopGracePeriod", "30s"},
        Case{"SignalMissing", policy("signalBeforeDeadline: {signal: USR1}"), "missing", "spec.policy.signalBeforeDeadline.before",
             "is required"},
        Case{"SignalLate", policy("activeDeadlineSeconds: 60, signalBeforeDeadline: {signal: USR1, before: 60s}"), "conflict",
             "spec.policy.signalBeforeDeadline.before", "less than activeDeadlineSeconds"},
        Case{"Misspelt", policy("stopGracePeriods: 1s"), "unknown-key", "spec.policy.stopGracePeriods", "did you mean `stopGracePeriod`?"}),
    [](const auto& p) { return p.param.name; });

TEST(ManifestErrors, AreReportedAllAtOnceByLine) {
  const auto lines = error_lines(
      "apiVersion: dtrain/v1\nkind: Job\nmetadata: {name: Bad_Name}\nspec:\n  framework: tensorflow\n  "
      "roles:\n    worker:\n"
      "      replicas: two\n      comand: [a]\n    chief: {replicas: 3, command: [a]}\n");
  EXPECT_THAT(lines, ElementsAre(StartsWith("f.yaml:3: metadata.name: must be lower-case"),
                                 StartsWith("f.yaml:7: spec.roles.worker.command: is required"),
                                 StartsWith("f.yaml:8: spec.roles.worker.replicas: must be a whole number from 1 to 10000, not `two`"),
                                 StartsWith("f.yaml:9: spec.roles.worker.comand: unknown key `comand`; did you mean `command`?"),
                                 StartsWith("f.yaml:10: spec.roles.chief.replicas: must be 1")));
}

TEST(ManifestErrors, EndAtTheLimit) {
  std::string env = "  env: {";
  for (int i = 0; i < 250; ++i) env += "A" + std::to_string(i) + ": [], ";
  const ParsedJob job = parse(job_text(kWorker, env + "}"));
  ASSERT_THAT(job.errors, SizeIs(kReportedMistakes + 1));
  EXPECT_THAT(job.errors.back().text(), HasSubstr("further mistakes are not shown"));
}

// What searches for near words costs must not grow with the file.
TEST(ManifestErrors, ManyUnknownTemplatesAreOneMistakeEach) {
  std::string value;
  for (int i = 0; i < 20'000; ++i) value += "{task.x}{task.y" + std::to_string(i % 300) + "}";
  EXPECT_THAT(parse(role("env: {A: \"" + value + "\"}")).errors, SizeIs(kReportedMistakes + 1));
  EXPECT_THAT(parse(role("env: {A: \"{task.x} {task.x}\"}")).errors, SizeIs(1));
}

TEST(ManifestErrors, NamesTooLong) {
  const std::string head = "apiVersion: dtrain/v1\nkind: Job\nspec: {roles: {w: {command: [a]}}}\nmetadata: ";
  EXPECT_THAT(error_lines(head + "{name: " + std::string(63, 'a') + "}"), SizeIs(0));
  EXPECT_THAT(error_lines(head + "{name: " + std::string(64, 'a') + "}"), SizeIs(1));
  EXPECT_THAT(error_lines(head + "{name: ../../etc}"), ElementsAre(HasSubstr("metadata.name")));
  EXPECT_THAT(error_lines(head + "{name: -a}"), SizeIs(1));
  EXPECT_THAT(error_lines(head + "{generateName: a-}"), SizeIs(0));
  EXPECT_THAT(error_lines(head + "{generateName: " + std::string(44, 'a') + "}"), ElementsAre(HasSubstr("generateName")));
  EXPECT_THAT(error_lines(head + "{name: a, generateName: a-}"), ElementsAre(HasSubstr("both given")));
}

TEST(ManifestErrors, TooManyTasksAndRoles) {
  EXPECT_THAT(error_lines(job_text("    a: {replicas: 6000, command: [x]}\n    b: {replicas: 4001, command: [x]}", "", "generic")),
              ElementsAre(AllOf(HasSubstr("spec.roles: "), HasSubstr("at most 10000 replicas, not 10001"))));
  std::string roles;
  for (std::uint32_t i = 0; i <= limits::kRolesPerJob; ++i) roles += "    r" + std::to_string(i) + ": {command: [x]}\n";
  EXPECT_THAT(error_lines(job_text(roles, "", "generic")), ElementsAre(HasSubstr("at most 64 roles")));
  EXPECT_THAT(error_lines(job_text("    worker: {replicas: 10000, command: [x]}")), ElementsAre(HasSubstr("TF_CONFIG")));
  EXPECT_THAT(error_lines(job_text("    worker: {replicas: 10000, command: [x]}", "", "generic")), SizeIs(0));
  EXPECT_THAT(error_lines(job_text("    worker: {replicas: 10000, command: [x]}", "  policy: {enableDynamicWorker: true}")), SizeIs(0));
}

TEST(ManifestErrors, ArgumentsTooLong) {
  EXPECT_THAT(error_lines(job_text("    worker: {command: [echo, " + std::string(limits::kArgumentBytes + 1, 'x') + "]}")),
              ElementsAre(HasSubstr("spec.roles.worker.command[1]: has 131072 bytes or more")));
}

}  // namespace
}  // namespace dtrain::job
