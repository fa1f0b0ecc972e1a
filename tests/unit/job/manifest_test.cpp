// Every field of a job file with its default, and what --set and --param do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "common/job/names.h"
#include "common/wire/codec.h"
#include "tests/unit/job/support.h"

namespace dtrain::job {
namespace {

using ::testing::ElementsAre;
using testing::error_lines;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::job_text;
using testing::kWorker;
using ::testing::Pair;
using testing::parse;
using testing::parse_good;
using ::testing::SizeIs;

TEST(Manifest, Defaults) {
  const JobSpec spec = parse_good("apiVersion: dtrain/v1\nkind: Job\nmetadata: {name: x}\nspec: {roles: {worker: {command: [a]}}}");
  EXPECT_EQ(spec.name, "x");
  EXPECT_EQ(spec.framework, Framework::generic);
  EXPECT_EQ(spec.work_dir, ".");
  EXPECT_FALSE(spec.checkpoint);
  EXPECT_FALSE(spec.suspend);
  EXPECT_THAT(spec.notify.command, IsEmpty());
  const RoleSpec& worker = spec.roles.at("worker");
  EXPECT_EQ(worker.replicas, 1u);
  EXPECT_EQ(worker.min_replicas, 1u);
  EXPECT_EQ(worker.restart_policy, RestartPolicy::on_failure);
  EXPECT_EQ(worker.on_disconnect, OnDisconnect::by_class);
  EXPECT_EQ(worker.avoid_gpu_hosts, AvoidGpuHosts::no);
  EXPECT_EQ(worker.anti_affinity, "none");
  EXPECT_EQ(worker.stop_signal, SIGTERM);
  EXPECT_EQ(worker.signal_to, SignalTo::all);
  EXPECT_EQ(worker.watchdog, 0s);
  EXPECT_EQ(worker.start_timeout, 0s);
  EXPECT_FALSE(worker.exclusive);
  EXPECT_FALSE(worker.notify);
  EXPECT_THAT(worker.start_after, IsEmpty());
  EXPECT_EQ(wire::encode(spec.policy), wire::encode(Policy{}));
}

TEST(Manifest, EveryField) {
  const JobSpec spec = parse_good(R"(
apiVersion: dtrain/v1
kind: Job
metadata: {name: digits, labels: {team: vision, on: true}}
spec:
  framework: tensorflow
  package: ./trainer
  workDir: sub/dir
  env: {EPOCHS: 3, FLAG: on, EMPTY: ""}
  requires: {paths: [/data/digits, /opt]}
  roles:
    ps: {replicas: 2, command: [python3, train.py, "--ps_hosts={hosts:ps}"], resources: {cpus: 1, memory: 2Gi}}
    chief: {replicas: 1, command: [python3, train.py], notify: true, resources: {gpus: 1}}
    worker:
      replicas: 4
      minReplicas: 3
      command: [python3, 3, true]
      env: {A: b}
      resources: {cpus: 500m, memory: 8Gi, gpus: 1, gpuModel: A100}
      nodeSelector: {zone: a}
      antiAffinity: rack
      avoidGpuHosts: require
      restartPolicy: ExitCode
      retryExitCodes: [75, 128-255]
      runTimeout: 2h
      overrides:
        0: {env: {A: first}}
        2-3: {command: [python3, other.py], env: {C: d}}
      startAfter: {chief: Ready}
      onDisconnect: freeze
      exclusive: true
      watchdog: 90s
      stopSignal: USR2
      signalTo: main
      startTimeout: 5m
  checkpoint: {dir: /data/ckpt/digits, format: manifest, keep: 5, replicas: 1, restore: /data/old}
  policy:
    backoffLimit: 20
    restartBackoff: {first: 1s, initial: 200ms, max: 30s, resetAfter: 5m}
    failureThreshold: {count: 3, within: 1h}
    onPsFailure: freeze
    activeDeadlineSeconds: 86400
    ttlSecondsAfterFinished: 0
    cleanPodPolicy: All
    successPolicy: AllWorkers
    evaluatorInCluster: never
    enableDynamicWorker: true
    placement: spread
    priority: -5
    expectedSeconds: 60
    gang: true
    stopGracePeriod: 10s
    signalBeforeDeadline: {signal: SIGUSR1, before: 120s}
  notify: {command: [/usr/local/bin/page, -v], on: [Failed, Recovering]}
  suspend: true
)");
  EXPECT_THAT(spec.labels, ElementsAre(Pair("on", "true"), Pair("team", "vision")));
  EXPECT_EQ(spec.framework, Framework::tensorflow);
  EXPECT_EQ(spec.work_dir, "sub/dir");
  EXPECT_THAT(spec.env, ElementsAre(Pair("EMPTY", ""), Pair("EPOCHS", "3"), Pair("FLAG", "on")));
  EXPECT_THAT(spec.require_paths, ElementsAre("/data/digits", "/opt"));
  EXPECT_EQ(spec.roles.at("ps").resources.cpu_millis, 1000u);
  EXPECT_EQ(spec.roles.at("ps").resources.memory_bytes, 2ull << 30);
  EXPECT_TRUE(spec.roles.at("chief").notify);
  const RoleSpec& worker = spec.roles.at("worker");
  EXPECT_EQ(worker.replicas, 4u);
  EXPECT_EQ(worker.min_replicas, 3u);
  EXPECT_THAT(worker.command, ElementsAre("python3", "3", "true"));
  EXPECT_THAT(worker.env, ElementsAre(Pair("A", "b")));
  EXPECT_EQ(worker.resources.cpu_millis, 500u);
  EXPECT_EQ(worker.resources.gpus, 1u);
  EXPECT_EQ(worker.resources.gpu_model, "A100");
  EXPECT_THAT(worker.node_selector, ElementsAre(Pair("zone", "a")));
  EXPECT_EQ(worker.anti_affinity, "rack");
  EXPECT_EQ(worker.avoid_gpu_hosts, AvoidGpuHosts::require);
  EXPECT_EQ(worker.restart_policy, RestartPolicy::exit_code);
  EXPECT_THAT(worker.start_after, ElementsAre(Pair("chief", StartAfter::ready)));
  EXPECT_EQ(worker.on_disconnect, OnDisconnect::freeze);
  EXPECT_TRUE(worker.exclusive);
  EXPECT_EQ(worker.watchdog, 90s);
  EXPECT_EQ(worker.start_timeout, 5min);
  EXPECT_EQ(worker.stop_signal, SIGUSR2);
  EXPECT_EQ(worker.run_timeout, 2h);
  ASSERT_EQ(worker.retry_codes.size(), 2u);
  EXPECT_EQ(worker.retry_codes[0].first, 75u);
  EXPECT_EQ(worker.retry_codes[0].last, 75u);
  EXPECT_EQ(worker.retry_codes[1].last, 255u);
  ASSERT_EQ(worker.overrides.size(), 2u);
  EXPECT_EQ(override_of(worker, 1), nullptr);
  EXPECT_THAT(override_of(worker, 0)->env, ElementsAre(Pair("A", "first")));
  EXPECT_EQ(command_of(worker, 0), worker.command);
  EXPECT_THAT(command_of(worker, 3), ElementsAre("python3", "other.py"));
  EXPECT_EQ(worker.signal_to, SignalTo::main);
  ASSERT_TRUE(spec.checkpoint);
  EXPECT_EQ(spec.checkpoint->dir, "/data/ckpt/digits");
  EXPECT_EQ(word_for(spec.checkpoint->format), "manifest");
  EXPECT_EQ(spec.checkpoint->keep, 5u);
  EXPECT_EQ(spec.checkpoint->restore, "/data/old");
  const Policy& policy = spec.policy;
  EXPECT_EQ(policy.backoff_limit, 20u);
  EXPECT_EQ(policy.restart_backoff.first, 1s);
  EXPECT_EQ(policy.restart_backoff.initial, 200ms);
  EXPECT_EQ(policy.restart_backoff.max, 30s);
  EXPECT_EQ(policy.restart_backoff.reset_after, 5min);
  EXPECT_TRUE(policy.restart_backoff.jitter);
  EXPECT_EQ(policy.failure_threshold.count, 3u);
  EXPECT_EQ(policy.failure_threshold.within, 1h);
  EXPECT_EQ(policy.on_ps_failure, OnPsFailure::freeze);
  EXPECT_EQ(policy.active_deadline, 24h);
  EXPECT_EQ(policy.ttl_after_finished, 0s);
  EXPECT_EQ(policy.clean_pod_policy, CleanPodPolicy::all);
  EXPECT_EQ(policy.success_policy, SuccessPolicy::all_workers);
  EXPECT_EQ(policy.evaluator_in_cluster, EvaluatorInCluster::never);
  EXPECT_TRUE(policy.enable_dynamic_worker);
  EXPECT_EQ(policy.placement, Placement::spread);
  EXPECT_EQ(policy.priority, -5);
  EXPECT_EQ(policy.expected, 1min);
  EXPECT_TRUE(policy.gang);
  EXPECT_EQ(policy.stop_grace_period, 10s);
  ASSERT_TRUE(policy.signal_before_deadline);
  EXPECT_EQ(policy.signal_before_deadline->signal, SIGUSR1);
  EXPECT_EQ(policy.signal_before_deadline->before, 2min);
  EXPECT_THAT(spec.notify.command, ElementsAre("/usr/local/bin/page", "-v"));
  EXPECT_THAT(spec.notify.on, ElementsAre("Failed", "Recovering"));
  EXPECT_TRUE(spec.suspend);
}

TEST(Manifest, PackageIsReturnedAsWritten) {
  EXPECT_EQ(parse(job_text(kWorker, "  package: ../a b")).package_path, "../a b");
  EXPECT_EQ(parse(job_text(kWorker)).package_path, "");
}

TEST(Manifest, DefaultsThatDependOnTheRole) {
  const std::string roles =
      "    ps: {command: [a]}\n    chief: {command: [a]}\n    worker: {command: [a]}\n    evaluator: "
      "{command: [a]}\n    other: {command: [a]}";
  for (const char* framework : {"tensorflow", "generic"}) {
    const JobSpec spec = parse_good(job_text(roles, "", framework));
    EXPECT_EQ(spec.roles.at("ps").avoid_gpu_hosts, AvoidGpuHosts::prefer);
    EXPECT_EQ(spec.roles.at("chief").avoid_gpu_hosts, AvoidGpuHosts::no);
    EXPECT_THAT(spec.roles.at("ps").start_after, IsEmpty());
    EXPECT_THAT(spec.roles.at("chief").start_after, ElementsAre(Pair("ps", StartAfter::running)));
    for (const char* role : {"worker", "evaluator", "other"})
      EXPECT_THAT(spec.roles.at(role).start_after, ElementsAre(Pair("chief", StartAfter::running), Pair("ps", StartAfter::running)));
    for (const char* role : {"ps", "chief", "evaluator"})
      EXPECT_EQ(spec.roles.at(role).exclusive, std::string(framework) == "tensorflow") << role;
    for (const char* role : {"worker", "other"}) EXPECT_FALSE(spec.roles.at(role).exclusive);
  }
  const JobSpec spec = parse_good(job_text("    master: {command: [a]}\n    worker: {command: [a], startAfter: {}}"));
  EXPECT_THAT(spec.roles.at("master").start_after, IsEmpty());
  EXPECT_THAT(spec.roles.at("worker").start_after, IsEmpty());
}

TEST(Manifest, ShortFormsOfPolicy) {
  const auto policy = [](const std::string& fields) { return parse_good(job_text(kWorker, "  policy: {" + fields + "}")).policy; };
  const RestartBackoff all = policy("restartBackoff: 0s").restart_backoff;
  EXPECT_EQ(all.first, 0s);
  EXPECT_EQ(all.initial, 0s);
  EXPECT_EQ(all.max, 0s);
  EXPECT_FALSE(all.jitter);
  EXPECT_EQ(policy("restartBackoff: {max: 50ms}").restart_backoff.initial, 50ms);
  EXPECT_EQ(policy("restartBackoff: {initial: 2m}").restart_backoff.max, 2min);
  EXPECT_EQ(policy("restartBackoff: {first: 3m}").restart_backoff.max, 3min);
  EXPECT_EQ(policy("failureThreshold: 0").failure_threshold.count, 0u);
  EXPECT_EQ(policy("failureThreshold: 7").failure_threshold.within, 6h);
  EXPECT_EQ(policy("successPolicy: \"\"").success_policy, SuccessPolicy::by_framework);
  EXPECT_EQ(policy("failureThreshold: {count: 0, within: 0}").failure_threshold.count, 0u);
  EXPECT_EQ(policy("growAfter: 90s").grow_after, 90s);
  EXPECT_EQ(policy("successPolicy: AllWorkers, successPercent: 75").success_percent, 75u);
  EXPECT_EQ(policy("growAfter: never").grow_after, 0s);
}

TEST(Manifest, AcceptsTheMasterOfOlderTensorFlow) {
  EXPECT_TRUE(has_role(parse_good(job_text("    master: {command: [a]}\n    worker: {command: [a]}")), "master"));
}

ParsedJob with(const std::string& text, std::vector<std::pair<std::string, std::string>> sets,
               std::map<std::string, std::string> params = {}) {
  ParseOptions options;
  options.file_name = "f.yaml";
  options.sets = std::move(sets);
  options.params = std::move(params);
  return parse_manifest(text, options);
}

TEST(Manifest, SetReplacesAndAdds) {
  const ParsedJob job = with(job_text(kWorker), {{"spec.roles.worker.replicas", "3"},
                                                 {"spec.env.A\\.B", "c=d"},
                                                 {"spec.roles.worker.command.0", "false"},
                                                 {"metadata.name", "other"},
                                                 {"spec.roles.worker.replicas", "4"}});
  ASSERT_THAT(job.errors, IsEmpty());
  EXPECT_EQ(job.spec.roles.at("worker").replicas, 4u);
  EXPECT_THAT(job.spec.env, ElementsAre(Pair("A.B", "c=d")));
  EXPECT_THAT(job.spec.roles.at("worker").command, ElementsAre("false"));
  EXPECT_EQ(job.spec.name, "other");
}

TEST(Manifest, SetTakesListsAndMapsWhereTheFieldDoes) {
  const auto job_with = [](std::vector<std::pair<std::string, std::string>> sets) {
    return with(job_text("    worker: {command: [a, \"{hosts:worker}\"]}", "", "pytorch"), std::move(sets), {{"m", "numpy"}});
  };
  const ParsedJob job = job_with({{"spec.roles.worker.warm", "[torch, \"${param:m}\"]"},
                                  {"spec.env", "{A: b}"},
                                  {"spec.env.H", "{hosts:worker}"},
                                  {"spec.env.J", R"({"a": [1]})"},
                                  {"spec.env.L", "[a]"},
                                  {"spec.requires", "{paths: [/data]}"},
                                  {"spec.policy.failureThreshold", "{count: 2}"}});
  ASSERT_THAT(job.errors, IsEmpty());
  EXPECT_THAT(job.spec.roles.at("worker").warm, ElementsAre("torch", "numpy"));
  EXPECT_THAT(job.spec.env, ElementsAre(Pair("A", "b"), Pair("H", "{hosts:worker}"), Pair("J", R"({"a": [1]})"), Pair("L", "[a]")));
  EXPECT_THAT(job.spec.require_paths, ElementsAre("/data"));
  EXPECT_EQ(job.spec.policy.failure_threshold.count, 2u);
  const auto text_of = [&](const std::string& path, const std::string& value) {
    const ParsedJob wrong = job_with({{path, value}});
    return wrong.errors.empty() ? "" : wrong.errors[0].text();
  };
  EXPECT_EQ(text_of("spec.roles.worker.command", "[a, [b]]"), "--set: spec.roles.worker.command[1]: must be text, not a list");
  EXPECT_THAT(text_of("spec.roles.worker.command", "[a"), HasSubstr("--set: spec.roles.worker.command: must be a list such as"));
  EXPECT_THAT(text_of("spec.requires", "{pahts: [/data]}"), HasSubstr("--set: spec.requires.pahts: unknown key"));
  EXPECT_THAT(text_of("spec.env", "{A: b, A: c}"), HasSubstr("spec.env.A: key `A` is given twice"));
}

TEST(Manifest, MistakesInSetNameIt) {
  const auto text_of = [](const ParsedJob& job) { return job.errors.empty() ? "" : job.errors[0].text(); };
  EXPECT_EQ(text_of(with(job_text(kWorker), {{"spec.roles.worker.replicas", "x"}})),
            "--set: spec.roles.worker.replicas: must be a whole number from 1 to 10000, not `x`");
  EXPECT_THAT(text_of(with(job_text(kWorker), {{"spec.rolls", "x"}})), HasSubstr("--set: spec.rolls: unknown key"));
  for (const char* path : {"", ".", "a..b", "spec.", "spec.framework.x", "spec.roles.worker.command.9", "spec.roles.worker.command.x"})
    EXPECT_THAT(text_of(with(job_text(kWorker), {{path, "x"}})), HasSubstr("--set ")) << path;
}

TEST(Manifest, ParametersFillEveryScalar) {
  const std::string text = job_text("    worker: {replicas: \"${param:n}\", command: [a, \"x${param:who}y${param:who}\"]}",
                                    "  env: {A: \"$${param:who} $x ${y}\"}");
  const ParsedJob job = with(text, {}, {{"n", "3"}, {"who", "${param:n}"}});
  ASSERT_THAT(job.errors, IsEmpty());
  EXPECT_EQ(job.spec.roles.at("worker").replicas, 3u);
  EXPECT_EQ(job.spec.roles.at("worker").command[1], "x${param:n}y${param:n}");
  EXPECT_EQ(job.spec.env.at("A"), "${param:who} $x ${y}");
}

TEST(Manifest, ParametersWithoutValueAndUnused) {
  const ParsedJob job =
      with(job_text("    worker: {command: [\"${param:a}\", \"${param:b}\", \"${param:c\"]}"), {}, {{"b", "x"}, {"z", "y"}});
  ASSERT_THAT(job.errors, SizeIs(2));
  EXPECT_THAT(job.errors[0].text(), HasSubstr("f.yaml:7: spec.roles.worker.command[0]: parameter `a` has no value; give --param a=VALUE"));
  EXPECT_THAT(job.errors[1].text(), HasSubstr("command[2]: ${param: has no closing brace"));
  EXPECT_THAT(job.warnings, ElementsAre("--param z is not used in the file"));
}

TEST(Manifest, ParametersCannotBlowUpTheFile) {
  std::string list;
  for (int i = 0; i < 1000; ++i) list += "\"${param:a}\", ";
  const ParsedJob job = with(job_text("    worker: {command: [" + list + "]}"), {}, {{"a", std::string(100'000, 'x')}});
  ASSERT_FALSE(job.errors.empty());
  EXPECT_THAT(job.errors[0].text(), HasSubstr("parameters bring in more than"));
}

TEST(Manifest, Warnings) {
  EXPECT_THAT(parse(job_text("    ps: {command: [a]}\n    worker: {replicas: 50, command: [a]}")).warnings,
              ElementsAre(HasSubstr("50 workers on 1 ps")));
  EXPECT_THAT(parse(job_text("    ps: {replicas: 3, command: [a]}\n    worker: {replicas: 50, command: [a]}")).warnings, IsEmpty());
  EXPECT_THAT(parse(job_text(kWorker, "  checkpoint: {dir: /a, replicas: 2}")).warnings, ElementsAre(HasSubstr("makes no copies")));
  EXPECT_THAT(parse(job_text(kWorker, "  policy: {signalBeforeDeadline: {signal: 10, before: 1s}}")).warnings,
              ElementsAre(HasSubstr("never sent")));
  EXPECT_THAT(parse(job_text("    wroker: {command: [a]}")).warnings, ElementsAre(HasSubstr("did you mean worker?")));
}

TEST(Manifest, EmptyExamplesStayValid) {
  EXPECT_THAT(error_lines(job_text(kWorker, "  env: {}\n  policy: {}\n  requires: {}")), IsEmpty());
}

}  // namespace
}  // namespace dtrain::job
