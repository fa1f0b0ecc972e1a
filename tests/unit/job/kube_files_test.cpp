// Manifests as files: $(NAME), volumes, mistakes of several documents at once, and the dtrain/v1 job that a manifest means.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <fstream>
#include <sstream>

#include "common/job/framework.h"
#include "common/job/kube_job.h"
#include "common/job/names.h"
#include "common/wire/codec.h"
#include "tests/unit/job/generators.h"
#include "tests/unit/job/kube_support.h"

namespace dtrain::job {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using namespace testing;  // NOLINT: the helpers of kube_support.h

// ---------------------------------------------------------------- $(NAME)

// A worker of two with these variables and arguments (from 10 spaces on).
std::string worker_with(const std::string& lines) {
  return tf_job("\n    Worker:\n      replicas: 2\n      template:\n        spec:\n          containers:\n          - name: tensorflow\n" +
                lines);
}

// expand_test.go of Kubernetes, case by case: what stays, what is a dollar, what is a variable.
TEST(KubeExpansion, IsThatOfKubernetes) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"$(VAR_A)", "A"},
      {"___$(VAR_B)___", "___B___"},
      {"$(VAR_A)$(VAR_B)", "AB"},
      {"$$(VAR_A)", "$(VAR_A)"},
      {"$$$(VAR_A)", "$A"},
      {"$$$$(VAR_A)", "$$(VAR_A)"},
      {"$(NOT_THERE)", "$(NOT_THERE)"},
      {"$VAR_A ${VAR_A} $", "$VAR_A ${VAR_A} $"},
      {"$(VAR_A", "$(VAR_A"},
      {"$(VAR_A)_$(", "A_$("},
      {"$(uname -n)", "$(uname -n)"},
      {"{task.index} {{hosts:worker}} {hosts:nobody}", "{task.index} {{hosts:worker}} {hosts:nobody}"},
      {"{\"a\": $(VAR_A)}", "{\"a\": A}"},
      {"{$(VAR_C)}", "{task.index}"},
      {"${param:x}", "${param:x}"},
  };
  for (const auto& [from, to] : cases) {
    std::string quoted = "'";
    for (const char c : from) quoted += c == '\'' ? std::string("''") : std::string(1, c);
    const ParsedJob job =
        one_job(worker_with("            env: [{name: VAR_A, value: A}, {name: VAR_B, value: B}, {name: VAR_C, value: task.index}]\n"
                            "            command: [" +
                            quoted + "']\n"));
    EXPECT_EQ(rendered(job.spec, {"worker", 1}).argv.at(0), to) << from;
  }
}

TEST(KubeExpansion, AValueSeesThoseAboveItAndNoneOfTheFrameworks) {
  const ParsedJob job = one_job(worker_with(R"(
            command: [a, $(TF_CONFIG), $(B)]
            env:
            - {name: A, value: $(B)-$(TF_CONFIG)}
            - {name: B, value: b}
            - {name: C, value: $(B)$$x}
            - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
            - {name: AT, value: "$(IP):80"}
            - {name: ME, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}}
            - {name: NS, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
            - {name: ON, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
            - {name: MAYBE, valueFrom: {secretKeyRef: {name: s, key: k, optional: true}}}
)"));
  const Rendered worker = rendered(job.spec, {"worker", 1});
  EXPECT_EQ(worker.argv.at(1), worker.env.at("TF_CONFIG"));
  EXPECT_EQ(worker.argv.at(2), "b");
  const std::map<std::string, std::string> expected = {
      {"A", "$(B)-$(TF_CONFIG)"}, {"C", "b$x"},      {"IP", "10.0.0.1"}, {"AT", "10.0.0.1:80"},
      {"ME", "reed-worker-1"},    {"NS", "default"}, {"ON", "gpu1"}};
  for (const auto& [name, value] : expected) EXPECT_EQ(worker.env.at(name), value) << name;
  EXPECT_FALSE(worker.env.contains("MAYBE"));
  EXPECT_THAT(job.warnings, ElementsAre(HasSubstr("env[8].valueFrom.secretKeyRef: secret s maps to no directory: it is left out")));
}

TEST(KubeExpansion, BracesAroundWhatOnlyTheClusterKnowsAreRefused) {
  EXPECT_THAT(errors_of(worker_with("            command: [a, '{$(TF_CONFIG)}']\n")),
              ElementsAre(HasSubstr("command[1]: a variable of the cluster's")));
}

// ---------------------------------------------------------------- volumes

std::string with_volume(const std::string& volume, const std::string& mount) {
  return tf_job("\n    Worker:\n      template:\n        spec:\n          volumes: [{name: v, " + volume +
                "}]\n          containers: [{name: tensorflow, command: [a], volumeMounts: [{name: v, " + mount + "}]}]\n");
}

TEST(KubeVolumes, AreDirectoriesOfTheHosts) {
  wire::ManifestSettings settings;
  settings.volumes = {{"shards", "/data/shards/"}};
  const auto job = [&](const std::string& volume, const std::string& mount) { return one_job(with_volume(volume, mount), settings); };
  const ParsedJob claim = job("persistentVolumeClaim: {claimName: shards}", "mountPath: /data/shards");
  EXPECT_THAT(claim.spec.require_paths, ElementsAre("/data/shards"));
  EXPECT_THAT(claim.warnings, IsEmpty());
  const ParsedJob made = job("hostPath: {path: /tmp/x, type: DirectoryOrCreate}", "mountPath: /tmp/x/");
  EXPECT_THAT(made.spec.make_dirs, ElementsAre("/tmp/x"));
  EXPECT_THAT(made.warnings, IsEmpty());
  const ParsedJob shared = job("emptyDir: {medium: Memory}", "mountPath: /dev/shm");
  EXPECT_THAT(shared.spec.make_dirs, IsEmpty());
  EXPECT_THAT(shared.warnings, IsEmpty());
  const ParsedJob empty = job("emptyDir: {}", "mountPath: /scratch");
  EXPECT_THAT(empty.spec.make_dirs, ElementsAre("/scratch"));
  EXPECT_THAT(empty.warnings, ElementsAre(HasSubstr("volumeMounts[0].mountPath: is a directory of the host")));
  const ParsedJob elsewhere = job("secret: {secretName: shards}", "mountPath: /keys, subPath: a, readOnly: true");
  EXPECT_THAT(elsewhere.spec.require_paths, ElementsAre("/data/shards/a", "/keys"));
  EXPECT_THAT(elsewhere.warnings, ElementsAre(HasSubstr("readOnly: is not enforced"),
                                              HasSubstr("/keys must lead to /data/shards/a (ln -s /data/shards/a /keys); ")));
  const ParsedJob odd = job("hostPath: {path: /tmp/x}", "mountPath: \"/a; touch b\"");
  EXPECT_THAT(odd.warnings, ElementsAre(AllOf(HasSubstr("`/a; touch b` must lead to `/tmp/x`; "), Not(HasSubstr("ln -s")))));
}

TEST(KubeVolumes, WhatNobodyMapsIsRefusedWithTheLineOfTheConfiguration) {
  EXPECT_THAT(errors_of(with_volume("configMap: {name: knobs}", "mountPath: /k")),
              ElementsAre(HasSubstr("spec.tfReplicaSpecs.Worker.template.spec.volumes[0]: configMap knobs maps to no directory: volumes in "
                                    "dtraind.yaml has no entry for it; add there: volumes: {knobs: /the/directory/on/the/hosts}")));
  EXPECT_THAT(errors_of(with_volume("csi: {driver: x}", "mountPath: /k")),
              ElementsAre(HasSubstr("volumes[0]: this version knows no directory for `csi`")));
  EXPECT_THAT(one_job(with_volume("configMap: {name: knobs, optional: true}", "mountPath: /k")).warnings,
              ElementsAre(HasSubstr("volumes[0]: configMap knobs maps to no directory: it is left out")));
}

// ---------------------------------------------------------------- mistakes

TEST(KubeMistakes, AllOfAllDocumentsAtOnceWithLineAndCure) {
  const JobFile file = read_file(R"(apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: good}
spec: {tfReplicaSpecs: {Worker: {template: {spec: {containers: [{name: t, command: [a]}]}}}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: knobs}
---
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: bad}
spec:
  runPolicy: {cleanPodPolicy: Sometimes, backoffLimit: -1}
  pytorchReplicaSpecs:
    Masters: {}
    Worker:
      replicas: some
      restartPolicy: Perhaps
      template:
        spec:
          initContainers: [{name: sow}]
          containers:
          - name: pytorch
            args: [x]
            env: [{name: K, valueFrom: {secretKeyRef: {name: s, key: k}}}]
            volumeMounts: [{name: nowhere, mountPath: rel}]
)");
  std::vector<std::string> texts;
  for (const FileError& error : file.errors) texts.push_back(error.text());
  EXPECT_THAT(
      texts,
      ElementsAre(
          HasSubstr("f.yaml:14: spec.runPolicy.cleanPodPolicy: must be Running, All or None, not `Sometimes`; choose"),
          HasSubstr("f.yaml:14: spec.runPolicy.backoffLimit: must be a whole number from 0"),
          HasSubstr("f.yaml:16: spec.pytorchReplicaSpecs.Masters: a PyTorchJob has no role `Masters`; its roles are Master and Worker"),
          HasSubstr("f.yaml:18: spec.pytorchReplicaSpecs.Worker.replicas: must be a whole number"),
          HasSubstr("f.yaml:19: spec.pytorchReplicaSpecs.Worker.restartPolicy: must be OnFailure"),
          HasSubstr("f.yaml:22: spec.pytorchReplicaSpecs.Worker.template.spec.initContainers[0]: has no command"),
          AllOf(HasSubstr("f.yaml:24: "), HasSubstr("containers[0]: has no command, and the entry point of an image")),
          HasSubstr("containers[0].env[0].valueFrom.secretKeyRef: secret s maps to no directory"),
          HasSubstr("containers[0].volumeMounts[0].name: the pod has no volume `nowhere`")));
  EXPECT_THAT(file.jobs.at(0).warnings, ElementsAre(HasSubstr("f.yaml:6: document 2: kind `ConfigMap` of `v1` is no job")));
}

TEST(KubeMistakes, OfRolesThatAreMissingAndNamesThatAre) {
  EXPECT_THAT(errors_of(R"(apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: a}
spec:
  mpiReplicaSpecs:
    Launcher: {template: {spec: {containers: [{name: mpi, command: [mpirun, a], env: [{name: K, valueFrom: {configMapKeyRef: {key: k}}}]}]}}}
)"),
              ElementsAre(HasSubstr("f.yaml:5: spec.mpiReplicaSpecs: an mpi job needs a worker"),
                          HasSubstr("valueFrom.configMapKeyRef: names no configMap; give its name")));
}

TEST(KubeMistakes, GroupsKindsAndFilesThatAreNotRead) {
  EXPECT_THAT(errors_of("apiVersion: example.test/v1\nkind: PaddleJob\nmetadata: {name: j}\nspec: {worker: {}}\n"),
              ElementsAre(HasSubstr("f.yaml:1: apiVersion: a PaddleJob of `example.test/v1` is not read")));
  EXPECT_THAT(errors_of("apiVersion: v1\nkind: Pod\nmetadata: {name: j}\n"), ElementsAre(HasSubstr("the file holds no job")));
  EXPECT_THAT(
      errors_of("apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: Bad_Name}\nspec: {tfReplicaSpecs: {}}\n"),
      ElementsAre(HasSubstr("f.yaml:3: metadata.name: must be lower-case"), HasSubstr("f.yaml:4: spec.tfReplicaSpecs: is required")));
  EXPECT_THAT(errors_of("kind: Job\n"), SizeIs(::testing::Ge(1u))) << "a job file of dtrain, with its own mistakes";
}

TEST(KubeFiles, ListsAndSeveralDocuments) {
  const std::string one = R"(apiVersion: v1
kind: List
items:
- apiVersion: kubeflow.org/v1
  kind: JAXJob
  metadata: {name: a}
  spec: {jaxReplicaSpecs: {Worker: {template: {spec: {schedulerName: x, containers: [{name: jax, command: [a]}]}}}}}
- {apiVersion: v1, kind: Service}
metadata: {resourceVersion: ""}
---
apiVersion: dtrain/v1
kind: Job
metadata: {name: b}
spec: {roles: {worker: {command: [x]}}}
)";
  const JobFile file = read_file(one);
  EXPECT_THAT(file.errors, IsEmpty());
  ASSERT_THAT(file.jobs, SizeIs(2));
  EXPECT_EQ(file.jobs[0].spec.name + file.jobs[1].spec.name, "ab");
  EXPECT_THAT(file.jobs[0].warnings,
              ElementsAre(HasSubstr("job a: f.yaml:7: items[0].spec.jaxReplicaSpecs.Worker.template.spec.schedulerName: "),
                          HasSubstr("f.yaml:8: items[1]: kind `Service`")))
      << "in the order of the file";
  EXPECT_THAT(file.warnings, IsEmpty());
  std::string twice = one;
  twice.replace(twice.find("{name: b}"), 9, "{name: a}");
  EXPECT_THAT(errors_of(twice), ElementsAre(HasSubstr("two jobs of the file are called `a`")));
  EXPECT_TRUE(needs_settings(one));
  EXPECT_FALSE(needs_settings(one.substr(one.find("---") + 4)));
}

TEST(KubeFiles, SetAndParamReachManifests) {
  ParseOptions options;
  options.file_name = "f.yaml";
  options.sets = {{"spec.tfReplicaSpecs.Worker.replicas", "3"},
                  {"spec.tfReplicaSpecs.Worker.template.spec.containers.0.args", "[--lr, \"0.1\"]"}};
  options.params = {{"lr", "0.1"}};
  const JobFile file = read_job_file(worker_with("            command: [a, '${param:lr}', '${param:other}']\n"), options, {});
  ASSERT_THAT(file.errors, IsEmpty());
  EXPECT_EQ(file.jobs.at(0).spec.roles.at("worker").replicas, 3u);
  EXPECT_THAT(file.jobs[0].spec.roles.at("worker").command, ElementsAre("a", "0.1", "${param:other}", "--lr", "0.1"));
}

// ---------------------------------------------------------------- convert

TEST(KubeConvert, SaysWhatIsNotHonoured) {
  const JobFile file = read_file(worker_with("            command: [a]\n            securityContext: {privileged: true}\n"));
  const std::string text = to_job_file(file);
  EXPECT_THAT(text,
              AllOf(HasSubstr("# not honoured: f.yaml:"), HasSubstr("securityContext: has no effect here"), HasSubstr("kind: Job\n")));
}

RC_GTEST_PROP(KubeConvert, WhatIsPrintedMeansTheSameJob, ()) {
  const auto coin = [] { return *rc::gen::inRange(0, 2) == 1; };
  const auto quoted = [] {
    std::string out = "\"";
    for (const char c : *awkward_text()) {
      if (c == '"' || c == '\\') out += '\\';
      if (c == '\n') out += "\\n";
      else if (c == '\r') out += "\\r";
      else if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) out += c;
    }
    return out + "\"";
  };
  const auto kinds = manifest_kinds();
  const ManifestKind& kind = kinds[*rc::gen::inRange<std::size_t>(0, kinds.size())];
  RC_PRE(rules_of(kind.framework).built);
  const std::string group = kind.group.empty() ? "kubeflow.org" : std::string(kind.group);
  std::string text = "apiVersion: " + group + "/v1\nkind: " + std::string(kind.kind) + "\nmetadata: {name: j, labels: {a: b}}\nspec:\n";
  if (coin()) text += "  runPolicy: {cleanPodPolicy: Running, backoffLimit: 3, suspend: true}\n";
  if (coin()) text += "  nprocPerNode: 3\n";
  const std::string indent = kind.replica_specs.empty() ? "  " : "    ";
  if (!kind.replica_specs.empty()) text += "  " + std::string(kind.replica_specs) + ":\n";
  bool chief = false;
  for (const KindRole& role : kind.roles) {
    if (role_rules(kind.framework, role.role).leads && std::exchange(chief, true)) continue;
    text += indent + std::string(role.spelled) + ":\n";
    if (coin()) text += "      restartPolicy: " + std::string(coin() ? "ExitCode" : "Always") + "\n";
    text += "      template: {spec: {containers: [{name: c, command: [p" + std::string(coin() ? ", $(RANK), $(TF_CONFIG)" : "") +
            "], args: [" + quoted() + "], env: [{name: A, value: " + quoted() + "}, {name: B, value: " + quoted() + "}], workingDir: /w, " +
            "volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, emptyDir: {}}]}}\n";
  }
  const JobFile file = read_file(text);
  for (const FileError& error : file.errors) {
    RC_PRE(error.code != "template" && error.code != "conflict");
    RC_FAIL(error.text() + "\n" + text);
  }
  const std::string printed = to_job_file(file);
  const JobFile back = read_file(printed);
  for (const FileError& error : back.errors) RC_FAIL(error.text() + "\n" + printed);
  RC_ASSERT(back.jobs.size() == 1u);
  RC_ASSERT(wire::encode(back.jobs[0].spec) == wire::encode(file.jobs[0].spec));
}

// ---------------------------------------------------------------- the table of docs/manifests.md

// What a kind's line says, from the rules that jobs of it follow.
std::string table_row(const ManifestKind& kind) {
  JobSpec spec;
  spec.framework = kind.framework;
  std::string roles, leaders, stands_in;
  for (const KindRole& role : kind.roles) {
    const RoleRules& rules = role_rules(kind.framework, role.role);
    spec.roles[std::string(role.role)].replicas = std::min(rules.most, 2u);
    roles += (roles.empty() ? "" : ", ") + std::string(role.spelled) + " " + std::string(word_for(role.restart));
    if (rules.leads) leaders += (leaders.empty() ? "" : " or ") + std::string(role.spelled);
    if (rules.stands_in) stands_in = std::string(role.spelled) + " 0";
  }
  std::string succeeds = leaders;
  if (!stands_in.empty()) succeeds += (succeeds.empty() ? "" : ", else ") + stands_in + " (AllWorkers: all of Worker)";
  else succeeds += (succeeds.empty() ? "" : ", else ") + std::string("all of Worker");
  std::string recovers, restarts;
  for (const KindRole& role : kind.roles) {
    std::string& list = is_stateful(spec, {std::string(role.role), 0}) ? recovers : restarts;
    list += (list.empty() ? "" : ", ") + std::string(role.spelled);
  }
  const std::string group = kind.group.empty() ? "" : " of " + std::string(kind.group);
  return "| `" + std::string(kind.kind) + "`" + group + " | `" + std::string(kind.replica_specs.empty() ? "spec" : kind.replica_specs) +
         "` | `" + std::string(kind.container) + (kind.else_first ? "`, else the first | " : "` | ") + roles + " | " + succeeds + " | " +
         recovers + " | " + (restarts.empty() ? "none" : restarts) + " |";
}

TEST(KubeDocs, TheTableOfStateRulesIsThatOfTheCode) {
  std::ifstream file(std::string(DTRAIN_SOURCE_DIR) + "/docs/manifests.md");
  std::ostringstream text;
  text << file.rdbuf();
  std::size_t rows = 0;
  for (const ManifestKind& kind : manifest_kinds()) {
    EXPECT_THAT(text.str(), HasSubstr(table_row(kind) + "\n"));
    ++rows;
  }
  std::size_t lines = 0;
  for (std::size_t at = text.str().find("\n| `"); at != std::string::npos; at = text.str().find("\n| `", at + 1))
    lines += text.str().substr(at + 4, text.str().find('`', at + 4) - at - 4).ends_with("Job") ? 1 : 0;
  EXPECT_EQ(lines, rows) << "a line for each kind, and none for others";
}

}  // namespace
}  // namespace dtrain::job
