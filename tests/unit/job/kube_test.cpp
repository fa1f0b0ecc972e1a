// Manifests of Kubernetes' training operators, in the shapes in which people have them: what becomes of each field, what is named as not
// honoured, and what is refused. $(NAME), volumes and mistakes: the other kube_*_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/job/framework.h"
#include "tests/unit/job/kube_support.h"

namespace dtrain::job {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace testing;  // NOLINT: the helpers of kube_support.h

TEST(KubeTf, PolicyAndRolesAndTheirDefaults) {
  const ParsedJob job = one_job(R"(
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: wheat-yield
  namespace: farm
  labels: {crop: wheat}
  uid: 11-22
  creationTimestamp: null
  annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}
spec:
  successPolicy: AllWorkers
  runPolicy: {cleanPodPolicy: All, backoffLimit: 4, activeDeadlineSeconds: 900, ttlSecondsAfterFinished: 60, suspend: true,
              schedulingPolicy: {minAvailable: 4}}
  tfReplicaSpecs:
    PS:
      template: {spec: {terminationGracePeriodSeconds: 12, containers: [{name: tensorflow, command: [sleep, infinity]}]}}
    worker:
      replicas: 3
      restartPolicy: ExitCode
      template:
        metadata: {creationTimestamp: null, labels: {a: b}}
        spec:
          terminationGracePeriodSeconds: 12
          nodeSelector: {zone: east}
          containers:
          - name: tensorflow
            command: [python3, -c]
            args: [pass]
            workingDir: /tmp
            ports: [{containerPort: 2222, name: tfjob-port}]
            resources: {limits: {cpu: 2, memory: 1Gi, nvidia.com/gpu: 1}, requests: {cpu: 500m, memory: 256Mi}}
status: {conditions: []}
)");
  const JobSpec& spec = job.spec;
  EXPECT_THAT(job.warnings, IsEmpty());
  EXPECT_EQ(spec.name, "wheat-yield");
  EXPECT_EQ(spec.framework, Framework::tensorflow);
  EXPECT_EQ(spec.labels, (std::map<std::string, std::string>{{"crop", "wheat"}}));
  EXPECT_TRUE(spec.suspend);
  EXPECT_EQ(spec.policy.success_policy, SuccessPolicy::all_workers);
  EXPECT_EQ(spec.policy.clean_pod_policy, CleanPodPolicy::all);
  EXPECT_EQ(spec.policy.backoff_limit, 4u);
  EXPECT_EQ(spec.policy.failure_threshold.count, 0u) << "the manifest's limit counts alone";
  EXPECT_EQ(spec.policy.active_deadline, Duration(900s));
  EXPECT_EQ(spec.policy.ttl_after_finished, Duration(60s));
  EXPECT_EQ(spec.policy.stop_grace_period, Duration(12s));
  EXPECT_EQ(spec.roles.at("ps").restart_policy, RestartPolicy::never);
  EXPECT_TRUE(spec.roles.at("ps").exclusive);
  const RoleSpec& worker = spec.roles.at("worker");
  EXPECT_EQ(worker.replicas, 3u);
  EXPECT_EQ(worker.restart_policy, RestartPolicy::exit_code);
  EXPECT_THAT(worker.command, ElementsAre("python3", "-c", "pass"));
  EXPECT_EQ(worker.work_dir, "/tmp");
  EXPECT_EQ(worker.node_selector.at("zone"), "east");
  EXPECT_EQ(worker.resources.cpu_millis, 500u) << "places are found by requests";
  EXPECT_EQ(worker.resources.memory_bytes, 1ull << 30) << "and memory is limited by limits";
  EXPECT_EQ(worker.resources.gpus, 1u);
  EXPECT_EQ(worker.start_after, (std::map<std::string, StartAfter>{{"ps", StartAfter::running}}));
}

// Objects of other kinds beside a job are left out; one that was meant to be a job is not.
TEST(KubeJobs, AKindThatIsSpelledWrongIsNoOtherObject) {
  for (const char* other : {"batch/v1\nkind: Job", "ray.io/v1\nkind: RayJob"})
    EXPECT_THAT(errors_of("apiVersion: " + std::string(other) + "\nmetadata: {name: j}\nspec: {}\n"),
                ::testing::Not(::testing::Contains(HasSubstr("unknown kind"))))
        << other;
  EXPECT_THAT(errors_of("apiVersion: kubeflow.org/v1\nkind: PytorchJob\nmetadata: {name: j}\nspec: {}\n"),
              ElementsAre(HasSubstr("kind: unknown kind `PytorchJob`; did you mean PyTorchJob?")));
}

TEST(KubeTf, TheFirstVersionsHaveAListAndThePodsPolicy) {
  const ParsedJob job = one_job(R"(
apiVersion: tensorflow.org/v1alpha1
kind: TfJob
metadata: {name: old-oak}
spec:
  RuntimeId: x1
  replicaSpecs:
  - {replicas: 1, tfReplicaType: MASTER, tfPort: 2222, IsDefaultPS: false,
     template: {spec: {restartPolicy: OnFailure, containers: [{name: any, command: [a]}]}}}
  - {replicas: 2, tfReplicaType: WORKER, template: {spec: {restartPolicy: Never, containers: [{name: any, command: [a]}]}}}
  terminationPolicy: {chief: {replicaName: MASTER, replicaIndex: 0}}
)");
  EXPECT_THAT(job.warnings, IsEmpty());
  EXPECT_EQ(job.spec.roles.at("master").restart_policy, RestartPolicy::on_failure);
  EXPECT_EQ(job.spec.roles.at("worker").restart_policy, RestartPolicy::never);
  const auto errors = errors_of(R"(
apiVersion: kubeflow.org/v1alpha1
kind: TFJob
metadata: {name: old-oak}
spec:
  replicaSpecs:
  - {tfReplicaType: WORKER, template: {spec: {containers: [{name: any, command: [a]}]}}}
  - {replicas: 2, tfReplicaType: PS}
)");
  EXPECT_THAT(errors, ElementsAre(HasSubstr("f.yaml:8: spec.replicaSpecs[1].template: is required")));
}

TEST(KubeTf, ThePodsPolicyIsNamedWhereTheRolesDiffers) {
  const ParsedJob job = one_job(tf_job(R"(
    Worker:
      template: {spec: {restartPolicy: OnFailure, containers: [{name: tensorflow, command: [a]}]}}
    PS:
      restartPolicy: ExitCode
      template: {spec: {restartPolicy: Never, containers: [{name: tensorflow, command: [a]}]}}
)"));
  EXPECT_THAT(
      job.warnings,
      ElementsAre(HasSubstr("spec.tfReplicaSpecs.Worker.template.spec.restartPolicy: the role's restartPolicy decides, which is Never")));
}

TEST(KubeTf, OfSeveralContainersTheFrameworksIsTheTask) {
  const ParsedJob job = one_job(tf_job(R"(
    Worker:
      template: {spec: {containers: [{name: dust, command: [b]}, {name: tensorflow, command: [a]}]}}
)"));
  EXPECT_THAT(job.spec.roles.at("worker").command, ElementsAre("a"));
  EXPECT_THAT(job.warnings, ElementsAre(HasSubstr("spec.tfReplicaSpecs.Worker.template.spec.containers[0]: is not started")));
  const auto errors = errors_of(tf_job(R"(
    Worker:
      template: {spec: {containers: [{name: dust, command: [b]}, {name: ash, command: [a]}]}}
)"));
  EXPECT_THAT(errors, ElementsAre(HasSubstr("has several containers, and none is called tensorflow")));
}

TEST(KubeTorch, RanksAreAsTheOperatorCountsThem) {
  const ParsedJob job = one_job(R"(
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: slate-relay}
spec:
  nprocPerNode: "2"
  pytorchReplicaSpecs:
    Master: {template: {spec: {containers: [{name: pytorch, command: [sh, -c, 'echo $(WORLD_SIZE)']}]}}}
    Worker: {replicas: 2, template: {spec: {containers: [{name: pytorch, command: [a, $(RANK)]}]}}}
)");
  EXPECT_THAT(job.warnings, IsEmpty());
  EXPECT_EQ(job.spec.roles.at("master").restart_policy, RestartPolicy::on_failure);
  EXPECT_EQ(job.spec.policy.clean_pod_policy, CleanPodPolicy::none);
  const Rendered worker = rendered(job.spec, {"worker", 1});
  EXPECT_THAT(worker.argv, ElementsAre("a", "2"));
  EXPECT_EQ(worker.env.at("WORLD_SIZE"), "6");
  EXPECT_EQ(worker.env.at("PET_NPROC_PER_NODE"), "2");
  EXPECT_EQ(rendered(job.spec, {"master", 0}).argv.back(), "echo 6");
}

TEST(KubeTorch, ElasticPolicyIsTorchruns) {
  const std::string text = R"(
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: slate-drift}
spec:
  elasticPolicy: {rdzvBackend: c10d, minReplicas: 1, maxReplicas: 4, maxRestarts: 12,
                  rdzvConf: [{key: join_timeout, value: "90"}, {key: close_timeout, value: "5"}], metrics: [{type: Resource}]}
  pytorchReplicaSpecs:
    Worker: {replicas: 2, template: {spec: {containers: [{name: pytorch, command: [a]}]}}}
)";
  const ParsedJob job = one_job(text);
  EXPECT_EQ(job.spec.roles.at("worker").min_replicas, 1u);
  const Rendered worker = rendered(job.spec, {"worker", 1});
  for (const auto& [name, value] : std::map<std::string, std::string>{{"PET_NNODES", "1:4"},
                                                                      {"PET_RDZV_BACKEND", "c10d"},
                                                                      {"PET_RDZV_ENDPOINT", "10.0.0.1:20000"},
                                                                      {"PET_MAX_RESTARTS", "12"},
                                                                      {"PET_NPROC_PER_NODE", "auto"},
                                                                      {"PET_RDZV_CONF", "join_timeout=90,close_timeout=5"}})
    EXPECT_EQ(worker.env.at(name), value) << name;
  EXPECT_THAT(job.warnings,
              ElementsAre(HasSubstr("spec.elasticPolicy.metrics: has no effect here: the number of tasks follows no metrics")));
  std::string more = text;
  more.replace(more.find("minReplicas: 1"), 14, "minReplicas: 3");
  EXPECT_THAT(errors_of(more), ElementsAre(HasSubstr("spec.elasticPolicy.minReplicas: is 3, more than the 2 replicas of Worker")));
}

TEST(KubeOthers, EachKindHasItsRolesAndFramework) {
  struct Kind {
    std::string kind, specs, roles, framework;
  };
  for (const Kind& k :
       {Kind{"XGBoostJob", "xgbReplicaSpecs", "Master Worker", "xgboost"}, Kind{"PaddleJob", "paddleReplicaSpecs", "Worker", "paddle"},
        Kind{"JAXJob", "jaxReplicaSpecs", "Worker", "jax"}, Kind{"MXJob", "mxReplicaSpecs", "Scheduler Server Worker", "mxnet"}}) {
    SCOPED_TRACE(k.kind);
    std::string text = "apiVersion: kubeflow.org/v1\nkind: " + k.kind + "\nmetadata: {name: j}\nspec:\n  " + k.specs + ":\n";
    std::istringstream roles(k.roles);
    for (std::string role; roles >> role;) text += "    " + role + ": {template: {spec: {containers: [{name: c, command: [a]}]}}}\n";
    const ParsedJob job = one_job(text);
    EXPECT_EQ(to_string(job.spec.framework), k.framework);
    EXPECT_THAT(job.warnings, IsEmpty());
  }
}

TEST(KubeMx, LabelsOfRolesAreThoseOfMxConfig) {
  const ParsedJob job = one_job(R"(
apiVersion: kubeflow.org/v1beta1
kind: MXJob
metadata: {name: tin-cast}
spec:
  jobMode: MXTrain
  cleanPodPolicy: Running
  mxReplicaSpecs:
    Scheduler: {template: {spec: {containers: [{name: mxnet, command: [a]}]}}}
    Server: {label: mould, template: {spec: {containers: [{name: mxnet, command: [a]}]}}}
    Worker: {template: {metadata: {annotations: {tuner-server-key: deep}}, spec: {containers: [{name: mxnet, command: [a]}]}}}
)");
  EXPECT_THAT(job.warnings, IsEmpty());
  EXPECT_EQ(job.spec.policy.clean_pod_policy, CleanPodPolicy::running);
  EXPECT_THAT(rendered(job.spec, {"worker", 0}).env.at("MX_CONFIG"),
              HasSubstr(R"("labels":{"scheduler":"","server":"mould","worker":"deep"})"));
}

TEST(KubePaddle, ThatOfPaddleOperatorHasItsRolesInSpecAndThePodsPolicy) {
  const ParsedJob job = one_job(R"(
apiVersion: batch.paddlepaddle.org/v1
kind: PaddleJob
metadata: {name: dam}
spec:
  withGloo: 1
  intranet: PodIP
  cleanPodPolicy: OnCompletion
  worker: {replicas: 2, template: {spec: {restartPolicy: OnFailure, containers: [{name: paddle, command: [a]}]}}}
  ps: {replicas: 1, template: {spec: {containers: [{name: paddle, command: [b]}]}}}
)");
  EXPECT_THAT(job.warnings, ElementsAre(HasSubstr("spec.withGloo: has no effect here"), HasSubstr("spec.cleanPodPolicy: ")));
  EXPECT_EQ(job.spec.roles.at("worker").restart_policy, RestartPolicy::on_failure);
  EXPECT_EQ(job.spec.roles.at("ps").restart_policy, RestartPolicy::never);
  EXPECT_EQ(rendered(job.spec, {"worker", 1}).env.at("PADDLE_PSERVERS_IP_PORT_LIST"), "10.0.0.1:20000");
  EXPECT_THAT(
      errors_of("apiVersion: batch.paddlepaddle.org/v1\nkind: PaddleJob\nmetadata: {name: j}\nspec: {cleanPodPolicy: All, worker: {}}\n"),
      ::testing::UnorderedElementsAre(HasSubstr("spec.cleanPodPolicy: must be Always"), HasSubstr("spec.worker.template: is required")));
}

TEST(KubeMpi, TheWorkersWaitForTheLauncher) {
  const ParsedJob job = one_job(R"(
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: cutter}
spec:
  slotsPerWorker: 3
  runPolicy: {cleanPodPolicy: Running}
  sshAuthMountPath: /keys/.ssh
  launcherCreationPolicy: WaitForWorkersReady
  runLauncherAsWorker: true
  mpiImplementation: Intel
  mpiReplicaSpecs:
    Launcher: {template: {spec: {containers: [{name: helm, command: [mpirun, -n, "6", hostname]}]}}}
    Worker: {replicas: 2, template: {spec: {containers: [{name: crew, command: [/usr/sbin/sshd], args: [-De]}]}}}
)");
  EXPECT_THAT(job.warnings, IsEmpty());
  EXPECT_THAT(job.spec.roles.at("worker").command, ElementsAre("sleep", "infinity")) << "nothing has to be started for the launcher";
  EXPECT_EQ(rendered(job.spec, {"launcher", 0}).env.at("DTRAIN_HOSTS"), "launcher-0.cutter:3\nworker-0.cutter:3\nworker-1.cutter:3\n");
  EXPECT_EQ(deciding_task(job.spec)->text(), "launcher-0");
}

std::string train_job(const std::string& runtime, const std::string& rest) {
  return "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: onyx}\nspec:\n  runtimeRef: {name: " + runtime +
         "}\n" + rest;
}

TEST(KubeTrainJob, TorchCountsItsProcesses) {
  const ParsedJob job = one_job(train_job("torch-distributed", R"(
  trainer:
    numNodes: 3
    numProcPerNode: auto
    command: [a]
    env: [{name: CHISEL, value: fine}]
    resourcesPerNode: {requests: {cpu: 1500m}}
)"));
  EXPECT_THAT(job.warnings, IsEmpty());
  const Rendered node = rendered(job.spec, {"node", 2});
  EXPECT_EQ(node.env.at("PET_NNODES") + node.env.at("PET_NPROC_PER_NODE") + node.env.at("PET_NODE_RANK"), "322");
  EXPECT_EQ(node.env.at("CHISEL"), "fine");
  EXPECT_FALSE(deciding_task(job.spec));
}

TEST(KubeTrainJob, JaxSuspendedWithOverrides) {
  const ParsedJob job = one_job(train_job("jax-distributed", R"(
  suspend: true
  labels: {a: b}
  managedBy: trainer.kubeflow.org/trainjob-controller
  trainer: {numNodes: 2, command: [sh, -c], args: ['echo $JAX_PROCESS_ID']}
  podTemplateOverrides:
  - targetJobs: [{name: node}]
    spec:
      serviceAccountName: runner
      nodeSelector: {rim: north}
      volumes: [{name: dust, hostPath: {path: /tmp/dust, type: DirectoryOrCreate}}]
      containers: [{name: node, volumeMounts: [{name: dust, mountPath: /tmp/dust}]}]
)"));
  EXPECT_TRUE(job.spec.suspend);
  EXPECT_EQ(rendered(job.spec, {"node", 1}).env.at("JAX_PROCESS_ID"), "1");
  EXPECT_EQ(job.spec.roles.at("node").node_selector.at("rim"), "north");
  EXPECT_THAT(job.spec.make_dirs, ElementsAre("/tmp/dust"));
  EXPECT_THAT(job.warnings, ElementsAre(HasSubstr("spec.podTemplateOverrides[0].spec.serviceAccountName: has no effect here")));
}

TEST(KubeTrainJob, UnknownRuntimesAreNamedWithThoseThatAreKnown) {
  EXPECT_THAT(errors_of(train_job("house-runtime", "  trainer: {numNodes: 4}\n")),
              ElementsAre(HasSubstr(
                  "spec.runtimeRef.name: unknown runtime `house-runtime`: this version knows torch-distributed, jax-distributed, ")));
}

// The plugin mpi of the trainer: of so many nodes one is the launcher, if the runtime says so; there is always one more.
TEST(KubeTrainJob, OfTheRuntimesOfMpirunTheLauncherRunsTheCommand) {
  const std::string trainer = R"(
  trainer:
    numNodes: 3
    numProcPerNode: 2
    command: [mpirun, a]
    env: [{name: CHISEL, value: fine}]
    resourcesPerNode: {limits: {nvidia.com/gpu: 2}}
  podTemplateOverrides:
  - targetJobs: [{name: node}, {name: launcher}]
    spec: {nodeSelector: {rim: north}, serviceAccountName: runner}
  - targetJobs: [{name: launcher}]
    spec: {containers: [{name: node, env: [{name: A, value: b}]}]}
  - targetJobs: [{name: dataset-initializer}]
)";
  for (const char* runtime : {"deepspeed-distributed", "mlx-distributed"}) {
    const ParsedJob job = one_job(train_job(runtime, trainer));
    EXPECT_THAT(job.warnings, ElementsAre(HasSubstr("podTemplateOverrides[0].spec.serviceAccountName: has no effect"),
                                          HasSubstr("podTemplateOverrides[2]: the runtime has no such target: only launcher and node")));
    const Rendered launcher = rendered(job.spec, {"launcher", 0}), worker = rendered(job.spec, {"worker", 1});
    EXPECT_EQ(launcher.env.at("DTRAIN_HOSTS"), "launcher-0.onyx slots=2\nworker-0.onyx slots=2\nworker-1.onyx slots=2\n");
    EXPECT_EQ(launcher.argv.back(), "a");
    EXPECT_EQ(launcher.env.at("CHISEL") + worker.env.at("CHISEL") + launcher.env.at("A"), "finefineb");
    EXPECT_FALSE(worker.env.contains("A"));
    EXPECT_THAT(worker.argv, ElementsAre("sleep", "infinity"));
    for (const char* role : {"launcher", "worker"}) {
      EXPECT_EQ(job.spec.roles.at(role).node_selector.at("rim"), "north");
      EXPECT_EQ(job.spec.roles.at(role).resources.gpus, 2u);
    }
    EXPECT_EQ(deciding_task(job.spec)->text(), "launcher-0");
    EXPECT_EQ(job.spec.policy.clean_pod_policy, CleanPodPolicy::running);
  }
  const ParsedJob apart =
      one_job(train_job("mpi-distributed", "  trainer: {command: [mpirun, a], resourcesPerNode: {limits: {cpu: 1}}}\n"));
  EXPECT_EQ(rendered(apart.spec, {"launcher", 0}).env.at("DTRAIN_HOSTS"), "worker-0.onyx slots=1\nworker-1.onyx slots=1\n");
  EXPECT_EQ(apart.spec.roles.at("launcher").resources.cpu_millis, 0u) << "it has no ranks";
  const ParsedJob least =
      one_job(train_job("deepspeed-distributed", "  trainer: {command: [a], resourcesPerNode: {limits: {amd.com/gpu: 4}}}\n"));
  EXPECT_EQ(rendered(least.spec, {"launcher", 0}).env.at("DTRAIN_HOSTS"), "launcher-0.onyx slots=4\nworker-0.onyx slots=4\n");
}

TEST(KubeFields, WhatHasNoEffectIsNamedOnce) {
  const ParsedJob job = one_job(tf_job(R"(
    Worker:
      template:
        spec:
          schedulerName: volcano
          priorityClassName: gentle
          tolerations: [{key: wet}]
          hostNetwork: true
          enableServiceLinks: false
          volumes: []
          containers:
          - name: tensorflow
            command: [a]
            stdin: false
            securityContext: {runAsUser: 1000}
            frobnicate: 7
            workinDir: /x
            resources: {limits: {rdma/hca: 1, memory: 1Gi}, requests: {rdma/hca: 1, memory: 1Gi}}
)"));
  const std::string pod = "spec.tfReplicaSpecs.Worker.template.spec.";
  EXPECT_THAT(job.warnings, ::testing::UnorderedElementsAre(
                                HasSubstr(pod + "schedulerName: "), HasSubstr(pod + "priorityClassName: priorityClasses in dtraind.yaml"),
                                HasSubstr(pod + "tolerations: "), HasSubstr(pod + "containers[0].securityContext: "),
                                HasSubstr(pod + "containers[0].frobnicate: has no effect here"),
                                HasSubstr(pod + "containers[0].workinDir: has no effect here; did you mean `workingDir`?"),
                                HasSubstr(pod + "containers[0].resources.limits.rdma/hca: ")));
}

TEST(KubeFields, APriorityClassIsAPriority) {
  wire::ManifestSettings settings;
  settings.priority_classes["gentle"] = -5;
  const ParsedJob job = one_job(tf_job(R"(
    Worker: {template: {spec: {priorityClassName: gentle, containers: [{name: tensorflow, command: [a]}]}}}
)"),
                                settings);
  EXPECT_EQ(job.spec.policy.priority, -5);
  EXPECT_THAT(job.warnings, IsEmpty());
}

TEST(KubeFields, AnImageIsTheRolesAndMayRunOnAHostThatHasNoEngine) {
  const std::string text = tf_job(R"(
    Worker: {template: {spec: {containers: [{name: tensorflow, image: "localhost/w:1", command: [a]}]}}}
)");
  EXPECT_EQ(one_job(text).spec.roles.at("worker").image, "localhost/w:1");
  EXPECT_THAT(one_job(text).warnings, IsEmpty());
  wire::ManifestSettings settings;
  settings.image_fallback = true;
  EXPECT_THAT(one_job(text, settings).warnings,
              ElementsAre(HasSubstr("containers[0].image: on a host without podman or enroot the command runs on the host itself")));
}

TEST(KubeFields, MemoryThatIsOnlyRequestedLimitsNothing) {
  const ParsedJob job = one_job(tf_job(R"(
    Worker: {template: {spec: {containers: [{name: tensorflow, command: [a], resources: {requests: {memory: 64Mi}}}]}}}
)"));
  EXPECT_EQ(job.spec.roles.at("worker").resources.memory_bytes, 0u);
  EXPECT_THAT(job.warnings, ElementsAre(HasSubstr("resources.requests.memory: is not reserved")));
}

}  // namespace
}  // namespace dtrain::job
