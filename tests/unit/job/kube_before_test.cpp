// What a pod does before its container's command: init containers, and variables from files. A shell does it, so it is run here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/unit/job/kube_support.h"

namespace dtrain::job {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace testing;  // NOLINT: the helpers of kube_support.h

// A worker of two, with these lines of its pod (from 10 spaces on).
std::string pod_with(const std::string& lines) {
  return tf_job("\n    Worker:\n      replicas: 2\n      template:\n        spec:\n" + lines);
}

class KubeBefore : public ::testing::Test {
 protected:
  KubeBefore() {
    char name[] = "/tmp/dtrain-before-XXXXXX";
    top_ = ::mkdtemp(name);
  }
  ~KubeBefore() override { std::filesystem::remove_all(top_); }

  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((top_ / name).parent_path());
    std::ofstream(top_ / name) << text;
  }
  // What the task's processes print, started in an empty environment in the directory `top_`, and the exit code.
  std::pair<std::string, int> run(const ParsedJob& job) {
    std::string line = "cd '" + top_.string() + "' && exec env -i PATH=\"$PATH\"";
    for (const std::string& word : rendered(job.spec, {"worker", 1}).argv) {
      line += " '";
      for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
      line += "'";
    }
    std::FILE* output = ::popen((line + " 2>&1").c_str(), "r");
    std::string text;
    for (int c = std::fgetc(output); c != EOF; c = std::fgetc(output)) text += static_cast<char>(c);
    const int status = ::pclose(output);
    return {text, WIFEXITED(status) ? WEXITSTATUS(status) : -1};
  }
  std::filesystem::path top_;
};

TEST_F(KubeBefore, InitContainersRunInTheirOrderWithTheirOwnVariables) {
  const ParsedJob job = one_job(pod_with(R"(
          initContainers:
          - {name: first, image: a, command: [sh, -c, "echo $0 $KIND {task.index} > said; pwd"], args: ["$(KIND) it's"],
             env: [{name: KIND, value: one}]}
          - {name: second, image: a, command: [cat, said]}
          - {name: third, image: a, command: [pwd], workingDir: /usr}
          containers: [{name: tensorflow, image: a, command: [sh, -c, 'echo main $KIND $0 $1', "x y", '$(KIND)']}]
)"));
  EXPECT_THAT(job.warnings, IsEmpty());
  const auto [text, code] = run(job);
  EXPECT_EQ(text, top_.string() + "\none it's one {task.index}\n/usr\nmain x y $(KIND)\n");
  EXPECT_EQ(code, 0);
}

TEST_F(KubeBefore, OneThatFailsEndsTheAttemptWithItsCode) {
  const auto job = [](const std::string& first) {
    return one_job(pod_with("          initContainers: [{name: i, command: [" + first +
                            "]}, {name: j, command: [echo, more]}]\n          containers: [{name: t, command: [echo, main]}]\n"));
  };
  EXPECT_EQ(run(job("sh, -c, 'exit 7'")), (std::pair<std::string, int>("init container i failed with exit code 7\n", 7)));
  EXPECT_EQ(run(job("\"true\"")), (std::pair<std::string, int>("more\nmain\n", 0)));
  EXPECT_EQ(run(job("/no/such/program")).second, 127);
}

TEST_F(KubeBefore, WhatItNeedsIsNamed) {
  const ParsedJob job = one_job(pod_with(R"(
          initContainers:
          - {name: a, image: seeds, command: [a], resources: {limits: {cpu: 1}}, volumeMounts: [{name: v, mountPath: /v}]}
          - {name: b, command: [b], restartPolicy: Always}
          containers: [{name: tensorflow, image: soil, command: [c]}]
          volumes: [{name: v, hostPath: {path: /v}}]
)"));
  EXPECT_THAT(job.spec.require_paths, ElementsAre("/v"));
  EXPECT_THAT(
      job.warnings,
      ElementsAre(HasSubstr("initContainers[0].resources: has no effect"),
                  HasSubstr("initContainers[0].image: runs before the command of its task, where that runs, which must have what `seeds`"),
                  HasSubstr("initContainers[1]: is not started: each task runs one command")));
  EXPECT_THAT(errors_of(pod_with("          initContainers: [{name: i}]\n          containers: [{name: t, command: [a]}]\n")),
              ElementsAre(HasSubstr("initContainers[0]: has no command")));
}

TEST_F(KubeBefore, VariablesAreReadFromFiles) {
  write("knobs/RATE", "0.1\n");
  write("knobs/DEPTH", "two\nlines\n\n");
  write("knobs/a.b", "no variable");
  write("knobs/GIVEN", "by file");
  write("keys/RATE", "0.2");
  wire::ManifestSettings settings;
  settings.volumes = {{"knobs", (top_ / "knobs").string()}, {"keys", (top_ / "keys").string() + "/"}};
  const std::string text = pod_with(R"(
          initContainers: [{name: i, command: [sh, -c, 'echo $RATE'], envFrom: [{configMapRef: {name: knobs}}]}]
          containers:
          - name: tensorflow
            command: [env, GIVEN=by hand, sh, -c, 'echo "$RATE $K_RATE $GIVEN $DEPTH"']
            envFrom:
            - {configMapRef: {name: knobs}}
            - {secretRef: {name: keys}}
            - {prefix: K_, configMapRef: {name: knobs}}
)");
  const ParsedJob job = one_job(text, settings);
  EXPECT_THAT(job.warnings, IsEmpty());
  EXPECT_THAT(job.spec.require_paths, ::testing::UnorderedElementsAre((top_ / "knobs").string(), (top_ / "keys").string()));
  EXPECT_EQ(run(job), (std::pair<std::string, int>("0.1\n0.2 0.1 by hand two\nlines\n", 0)));
  EXPECT_THAT(errors_of(text), ElementsAre(HasSubstr("initContainers[0].envFrom[0].configMapRef: configMap knobs maps to no directory"),
                                           HasSubstr("containers[0].envFrom[0].configMapRef: configMap knobs maps to no directory: volumes "
                                                     "in dtraind.yaml has no entry for it; add there: volumes: {knobs: "),
                                           HasSubstr("containers[0].envFrom[1].secretRef: secret keys maps"),
                                           HasSubstr("containers[0].envFrom[2].configMapRef: configMap knobs")));
}

TEST_F(KubeBefore, AVariableThatTheTaskHasStays) {
  write("knobs/GIVEN", "by file");
  wire::ManifestSettings settings;
  settings.volumes = {{"knobs", (top_ / "knobs").string()}};
  const ParsedJob job = one_job(pod_with(R"(
          containers:
          - {name: tensorflow, command: [sh, -c, 'echo $GIVEN $PATH $0', $(GIVEN)], envFrom: [{configMapRef: {name: knobs}}]}
)"),
                                settings);
  write("knobs/PATH", "/nowhere");
  EXPECT_EQ(run(job).first, "by file " + std::string(std::getenv("PATH")) + " $(GIVEN)\n");
  EXPECT_THAT(job.warnings, ElementsAre(HasSubstr("containers[0]: variables from files are not known where $(NAME) is expanded")));
  const ParsedJob optional =
      one_job(pod_with("          containers: [{name: t, command: [a], envFrom: [{secretRef: {name: s, optional: true}}]}]\n"));
  EXPECT_THAT(optional.spec.roles.at("worker").command, ElementsAre("a"));
  EXPECT_THAT(optional.warnings, ElementsAre(HasSubstr("secret s maps to no directory: it is left out")));
}

TEST_F(KubeBefore, AVariableIsReadFromOneFile) {
  write("keys/token.txt", "s3 cr\"et\n");
  write("keys/TOKEN", "of envFrom");
  wire::ManifestSettings settings;
  settings.volumes = {{"keys", (top_ / "keys").string()}};
  const auto job = [&](const std::string& key) {
    return pod_with(R"(
          containers:
          - name: tensorflow
            command: [sh, -c, 'echo "$TOKEN ${NONE-none}"']
            envFrom: [{secretRef: {name: keys}}]
            env:
            - {name: TOKEN, valueFrom: {secretKeyRef: {name: keys, key: )" +
                    key + R"(}}}
            - {name: NONE, valueFrom: {configMapKeyRef: {name: keys, key: no, optional: true}}}
)");
  };
  EXPECT_EQ(run(one_job(job("token.txt"), settings)), (std::pair<std::string, int>("s3 cr\"et none\n", 0)));
  const auto [text, code] = run(one_job(job("missing"), settings));
  EXPECT_THAT(text, HasSubstr("could not set variable TOKEN: " + (top_ / "keys/missing").string() + " could not be read\n"));
  EXPECT_EQ(code, 1);
  EXPECT_THAT(errors_of(job("../x"), settings), ElementsAre(HasSubstr("secretKeyRef.key: must be letters, digits, ")));
  EXPECT_THAT(errors_of(pod_with("          containers: [{name: t, command: [a], env: [{name: a.b, valueFrom: {secretKeyRef: {name: keys, "
                                 "key: k}}}]}]\n"),
                        settings),
              ElementsAre(HasSubstr("env[0].valueFrom.secretKeyRef: a shell reads the value, and knows no variable `a.b`")));
}

TEST(KubePod, ItsDeadlineIsThatOfEachAttempt) {
  const ParsedJob job = one_job(pod_with("          activeDeadlineSeconds: 90\n          containers: [{name: t, command: [a]}]\n"));
  EXPECT_THAT(job.warnings, IsEmpty());
  EXPECT_EQ(job.spec.roles.at("worker").run_timeout, Duration(90s));
  EXPECT_FALSE(job.spec.policy.active_deadline);
}

}  // namespace
}  // namespace dtrain::job
