// Fields of manifests that few have, and older versions: what pods may name beside their command, where they may run, and the forms that
// operators read before or after those of kube_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/job/kube_support.h"

namespace dtrain::job {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using namespace testing;  // NOLINT: the helpers of kube_support.h

std::string worker_pod(const std::string& lines) {
  return tf_job("\n    Worker:\n      replicas: 2\n      template:\n        metadata: {labels: {team: moss, app: fern}}\n        spec:\n" +
                lines);
}

TEST(KubeVariables, FieldsOfThePodAndAmountsOfTheContainer) {
  const ParsedJob job = one_job(worker_pod(R"(
          containers:
          - name: tensorflow
            command: [a]
            resources: {limits: {cpu: 1500m, memory: 3Gi}, requests: {memory: 1Gi}}
            env:
            - {name: TEAM, valueFrom: {fieldRef: {fieldPath: "metadata.labels['team']"}}}
            - {name: INDEX, valueFrom: {fieldRef: {fieldPath: "metadata.labels['training.kubeflow.org/replica-index']"}}}
            - {name: OLD_TYPE, valueFrom: {fieldRef: {fieldPath: "metadata.labels['tf-replica-type']"}}}
            - {name: CPUS, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
            - {name: MILLIS, valueFrom: {resourceFieldRef: {containerName: tensorflow, resource: requests.cpu, divisor: 1m}}}
            - {name: BYTES, valueFrom: {resourceFieldRef: {resource: requests.memory}}}
            - {name: MIB, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
)"));
  EXPECT_THAT(job.warnings, IsEmpty());
  const Rendered worker = rendered(job.spec, {"worker", 1});
  for (const auto& [name, value] : std::map<std::string, std::string>{{"TEAM", "moss"},
                                                                      {"INDEX", "1"},
                                                                      {"OLD_TYPE", "worker"},
                                                                      {"CPUS", "2"},
                                                                      {"MILLIS", "1500"},
                                                                      {"BYTES", "1073741824"},
                                                                      {"MIB", "3072"}})
    EXPECT_EQ(worker.env.at(name), value) << name;
}

TEST(KubeVariables, NamesOfPodsThatNoHostResolvesAreNamed) {
  const ParsedJob job = one_job(worker_pod(R"(
          containers:
          - name: tensorflow
            command: [a, "--log=reed-worker-0.log", "--at=reed-worker-1.default.svc:80", reed-worker-x]
            env: [{name: MASTER_ADDR, value: reed-worker-0}, {name: OTHER, value: weed-worker-0}]
)"));
  EXPECT_THAT(job.warnings, UnorderedElementsAre(HasSubstr("containers[0].command[2]: names reed-worker-1, which no host resolves"),
                                                 HasSubstr("containers[0].env[0].value: names reed-worker-0, which no host resolves")));
}

TEST(KubeVariables, AnAmountThatNobodyGivesIsRefused) {
  for (const char* reference :
       {"resource: limits.memory", "resource: limits.cpu, containerName: other", "resource: limits.cpu, divisor: 0m", "resource: cpu"}) {
    const auto errors =
        errors_of(worker_pod("          containers: [{name: t, command: [a], resources: {limits: {cpu: 2}}, env: [{name: K, "
                             "valueFrom: {resourceFieldRef: {" +
                             std::string(reference) + "}}}]}]\n"));
    EXPECT_THAT(errors, ElementsAre(HasSubstr("env[0].valueFrom.resourceFieldRef.resource: "))) << reference;
  }
}

TEST(KubePod, ItsOwnResourcesAreThoseOfAContainerWithoutAny) {
  const ParsedJob job = one_job(
      worker_pod("          resources: {limits: {cpu: 3, memory: 2Gi}}\n          containers: [{name: t, command: [a], resources: {}}]\n"));
  EXPECT_EQ(job.spec.roles.at("worker").resources.cpu_millis, 3000u);
  EXPECT_EQ(job.spec.roles.at("worker").resources.memory_bytes, 2ull << 30);
  EXPECT_THAT(job.warnings, IsEmpty());
}

TEST(KubePod, WhatAServerWritesUnaskedIsNotNamed) {
  const ParsedJob job = one_job(worker_pod(R"(
          schedulerName: default-scheduler
          serviceAccountName: default
          enableServiceLinks: true
          containers: [{name: t, command: [a], terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File}]
)"));
  EXPECT_THAT(job.warnings, IsEmpty());
}

TEST(KubePlaces, LabelsThatHostsMustHaveAreANodeSelector) {
  const ParsedJob job = one_job(worker_pod(R"(
          nodeSelector: {kubernetes.io/os: linux, rim: north}
          nodeName: gpu7
          affinity:
            nodeAffinity:
              requiredDuringSchedulingIgnoredDuringExecution:
                nodeSelectorTerms:
                - matchExpressions: [{key: model, operator: In, values: [A40]}, {key: region, operator: In, values: [east]}]
            podAntiAffinity:
              requiredDuringSchedulingIgnoredDuringExecution:
              - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: fern}}}
          containers: [{name: t, command: [a]}]
)"));
  const RoleSpec& worker = job.spec.roles.at("worker");
  EXPECT_EQ(worker.node_selector, (std::map<std::string, std::string>{
                                      {"rim", "north"}, {"kubernetes.io/hostname", "gpu7"}, {"model", "A40"}, {"region", "east"}}));
  EXPECT_EQ(worker.anti_affinity, "host");
  EXPECT_THAT(job.warnings, ElementsAre(HasSubstr("labelSelector: is not evaluated: tasks of this role alone are kept apart")));
}

TEST(KubePlaces, WhatIsMoreThanLabelsIsNamed) {
  const std::string head = "          containers: [{name: t, command: [a]}]\n          affinity: {";
  const std::string required = "requiredDuringSchedulingIgnoredDuringExecution";
  const auto warnings = [&](const std::string& affinity) {
    const ParsedJob job = one_job(worker_pod(head + affinity + "}\n"));
    EXPECT_THAT(job.spec.roles.at("worker").node_selector, IsEmpty()) << affinity;
    EXPECT_EQ(job.spec.roles.at("worker").anti_affinity, "none") << affinity;
    return job.warnings;
  };
  const auto terms = [&](const std::string& text) {
    return warnings("nodeAffinity: {" + required + ": {nodeSelectorTerms: [" + text + "]}}");
  };
  const auto named = ElementsAre(HasSubstr("nodeAffinity." + required + ": is not evaluated"));
  EXPECT_THAT(terms("{matchExpressions: [{key: a, operator: In, values: [b, c]}]}"), named);
  EXPECT_THAT(terms("{matchExpressions: [{key: a, operator: Exists}]}"), named);
  EXPECT_THAT(terms("{matchExpressions: [{key: a, operator: NotIn, values: [b]}]}"), named);
  EXPECT_THAT(terms("{matchFields: [{key: metadata.name, operator: In, values: [b]}]}"), named);
  EXPECT_THAT(terms("{matchExpressions: [{key: a, operator: In, values: [b]}]}, {matchExpressions: []}"), named);
  EXPECT_THAT(warnings("nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1}]}"),
              ElementsAre(HasSubstr("nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution: is not evaluated")));
  EXPECT_THAT(warnings("podAntiAffinity: {" + required + ": [{topologyKey: a}, {topologyKey: b}]}"),
              ElementsAre(HasSubstr("podAntiAffinity." + required + ": is not evaluated")));
  EXPECT_THAT(warnings("podAffinity: {" + required + ": [{topologyKey: a}]}"),
              ElementsAre(HasSubstr("affinity.podAffinity: has no effect")));
}

TEST(KubeVolumes, WhatHostsMountThemselvesIsMappedByWhatItNames) {
  const auto text = [](const std::string& volume) {
    return worker_pod("          volumes: [{" + volume +
                      ", name: v}]\n          containers: [{name: t, command: [a], volumeMounts: [{name: "
                      "v, mountPath: /data}]}]\n");
  };
  wire::ManifestSettings settings;
  settings.volumes = {{"stone.example:/exports/a", "/data"}, {"vol-1", "/data"}};
  for (const char* volume : {"nfs: {server: stone.example, path: /exports/a}", "awsElasticBlockStore: {volumeID: vol-1, fsType: ext4}"}) {
    const ParsedJob job = one_job(text(volume), settings);
    EXPECT_THAT(job.spec.require_paths, ElementsAre("/data")) << volume;
    EXPECT_THAT(job.warnings, IsEmpty()) << volume;
  }
  EXPECT_THAT(errors_of(text("nfs: {server: stone.example, path: /b}"), settings),
              ElementsAre(HasSubstr("volumes[0]: NFS directory stone.example:/b maps to no directory: volumes in dtraind.yaml has no entry "
                                    "for it; add there: volumes: {stone.example:/b: /the/directory/on/the/hosts}")));
  EXPECT_THAT(errors_of(text("csi: {driver: x}"), settings),
              ElementsAre(HasSubstr("volumes[0]: this version knows no directory for `csi`; mount what it is")));
  const ParsedJob own = one_job(text("ephemeral: {volumeClaimTemplate: {spec: {}}}"));
  EXPECT_THAT(own.spec.make_dirs, ElementsAre("/data"));
  EXPECT_THAT(own.warnings, ElementsAre(HasSubstr("volumeMounts[0].mountPath: is a directory of the host")));
}

TEST(KubePolicy, PriorityByTheNamesOfKubedlAndKueue) {
  wire::ManifestSettings settings;
  settings.priority_classes["gentle"] = 7;
  const std::string worker = "\n    Worker: {template: {spec: {containers: [{name: t, command: [a]}]}}}\n";
  EXPECT_EQ(one_job(tf_job(worker, "  schedulingPolicy: {priorityClassName: gentle}\n"), settings).spec.policy.priority, 7);
  std::string labelled = tf_job(worker);
  labelled.replace(labelled.find("{name: reed}"), 12, "{name: reed, labels: {kueue.x-k8s.io/priority-class: gentle}}");
  EXPECT_EQ(one_job(labelled, settings).spec.policy.priority, 7);
}

TEST(KubeKubedl, WhatItsAnnotationsHaveItDoIsNamed) {
  std::string text =
      tf_job("\n    Worker: {template: {spec: {containers: [{name: t, command: [a]}]}}}\n", "  cronPolicy: {schedule: '* * * * *'}\n");
  text.replace(text.find("{name: reed}"), 12, "{name: reed, annotations: {kubedl.io/git-sync-config: '{}', other: note}}");
  EXPECT_THAT(one_job(text).warnings, ElementsAre(HasSubstr("metadata.annotations.kubedl.io/git-sync-config: no code is fetched"),
                                                  HasSubstr("spec.cronPolicy: has no effect here: the job runs once")));
}

// Every field of a pod, a container and a job that the API knows (corev1 of Kubernetes 1.33, training-operator 1.9) and that is not
// honoured is named; those that need nothing here are not.
TEST(KubeFields, OfTheApiNoneIsDroppedInSilence) {
  struct Fields {
    std::string before, after;
    std::vector<std::string> named, quiet;
  };
  const std::string pod = "    Worker: {template: {spec: {";
  const std::string container = "containers: [{name: tensorflow, command: [a]";
  for (const Fields& part :
       {Fields{"\n" + pod,
               container + "}]}}}\n",
               {"automountServiceAccountToken: true",
                "dnsConfig: {nameservers: [x]}",
                "ephemeralContainers: [{name: x}]",
                "hostAliases: [{ip: x}]",
                "hostIPC: true",
                "hostPID: true",
                "hostUsers: true",
                "hostname: x",
                "os: {name: linux}",
                "overhead: {cpu: 1}",
                "preemptionPolicy: Never",
                "priority: 7",
                "readinessGates: [{conditionType: x}]",
                "resourceClaims: [{name: x}]",
                "runtimeClassName: x",
                "schedulerName: x",
                "schedulingGates: [{name: x}]",
                "securityContext: {runAsUser: 7}",
                "serviceAccount: x",
                "serviceAccountName: x",
                "setHostnameAsFQDN: true",
                "shareProcessNamespace: true",
                "subdomain: x",
                "tolerations: [{key: x}]",
                "topologySpreadConstraints: [{maxSkew: 1}]",
                "volumes: [{name: x, emptyDir: {}}]",
                "priorityClassName: x",
                "restartPolicy: Always"},
               {"hostNetwork: true", "dnsPolicy: Default", "imagePullSecrets: [{name: x}]", "nodeSelector: {a: b}", "nodeName: x",
                "activeDeadlineSeconds: 7", "terminationGracePeriodSeconds: 7", "enableServiceLinks: false"}},
        Fields{"\n" + pod + container + ", ",
               "}]}}}\n",
               {"lifecycle: {preStop: {exec: {}}}", "livenessProbe: {exec: {}}", "readinessProbe: {exec: {}}", "startupProbe: {exec: {}}",
                "resizePolicy: [{resourceName: cpu}]", "restartPolicyRules: [{action: Restart}]", "securityContext: {privileged: true}",
                "stdin: true", "tty: true", "terminationMessagePath: /x", "volumeDevices: [{name: x}]", "resources: {claims: [{name: x}]}",
                "resources: {limits: {hugepages-2Mi: 1}}", "resources: {requests: {memory: 1Gi}}"},
               {"imagePullPolicy: Always", "ports: [{containerPort: 1}]", "workingDir: /", "image: x", "resources: {}",
                "resources: {limits: {cpu: 1, memory: 1Gi, nvidia.com/gpu: 1}}"}}}) {
    for (const auto& [fields, named] : {std::pair(&part.named, true), std::pair(&part.quiet, false)})
      for (const std::string& field : *fields) {
        const ParsedJob job = one_job(tf_job(part.before + field + (part.before.ends_with("{") ? ", " : "") + part.after));
        EXPECT_EQ(!job.warnings.empty(), named) << field;
        for (const std::string& warning : job.warnings) EXPECT_THAT(warning, ::testing::Not(HasSubstr("did you mean"))) << field;
      }
  }
  const std::string worker = "\n    Worker: {template: {spec: {" + container + "}]}}}\n";
  for (const char* policy : {"minResources: {cpu: 1}", "queue: x", "scheduleTimeoutSeconds: 7", "minAvailable: 0", "priorityClass: x"})
    EXPECT_THAT(one_job(tf_job(worker, "  runPolicy: {schedulingPolicy: {" + std::string(policy) + "}}\n")).warnings, ::testing::SizeIs(1))
        << policy;
}

// ---------------------------------------------------------------- other forms

TEST(KubeLists, AKindsOwnListIsAList) {
  const JobFile file = read_file(
      "apiVersion: kubeflow.org/v1\nkind: TFJobList\nitems:\n- apiVersion: kubeflow.org/v1\n  kind: TFJob\n"
      "  metadata: {name: a}\n  spec: {tfReplicaSpecs: {Worker: {template: {spec: {containers: [{name: t, command: "
      "[a]}]}}}}}\n");
  EXPECT_THAT(file.errors, IsEmpty());
  ASSERT_EQ(file.jobs.size(), 1u);
  EXPECT_EQ(file.jobs.front().spec.name, "a");
}

std::string first_mpi(const std::string& spec, const std::string& resources = "") {
  return "apiVersion: kubeflow.org/v1alpha1\nkind: MPIJob\nmetadata: {name: cutter}\nspec:\n" + spec +
         "  template: {spec: {containers: [{name: helm, command: [mpirun, hostname]" + resources + "}]}}\n";
}

TEST(KubeMpi, TheFirstVersionCountsProcessingUnits) {
  struct Case {
    std::string spec, resources;
    std::uint32_t workers, gpus, slots;
  };
  for (const Case& c :
       {Case{"  gpus: 8\n  gpusPerNode: 4\n", "", 2, 4, 4}, Case{"  gpus: 2\n  gpusPerNode: 4\n", "", 1, 2, 2},
        Case{"  replicas: 3\n", ", resources: {limits: {nvidia.com/gpu: 2}}", 3, 2, 2}, Case{"  replicas: 3\n", "", 3, 0, 1},
        Case{"  processingUnits: 4\n  processingUnitsPerNode: 2\n  slotsPerWorker: 5\n", "", 2, 2, 5}}) {
    SCOPED_TRACE(c.spec);
    const ParsedJob job = one_job(first_mpi(c.spec, c.resources));
    EXPECT_THAT(job.warnings, IsEmpty());
    const RoleSpec &launcher = job.spec.roles.at("launcher"), &worker = job.spec.roles.at("worker");
    EXPECT_EQ(worker.replicas, c.workers);
    EXPECT_EQ(worker.resources.gpus, c.gpus);
    EXPECT_EQ(worker.nproc_per_node, c.slots);
    EXPECT_THAT(worker.command, ElementsAre("sleep", "infinity"));
    EXPECT_THAT(launcher.command, ElementsAre("mpirun", "hostname"));
    EXPECT_EQ(launcher.resources.gpus, 0u);
    EXPECT_EQ(launcher.restart_policy, RestartPolicy::on_failure);
    EXPECT_EQ(job.spec.policy.backoff_limit, 6u);
  }
  const ParsedJob cpus = one_job(first_mpi("  processingUnits: 2\n  processingUnitsPerNode: 2\n  processingResourceType: cpu\n"));
  EXPECT_EQ(cpus.spec.roles.at("worker").resources.cpu_millis, 2000u);
  EXPECT_THAT(one_job(first_mpi("  gpus: 16\n")).warnings,
              ElementsAre(HasSubstr("spec.gpus: gpusPerNode is not given: a worker has up to 8")));
  EXPECT_THAT(errors_of(first_mpi("  gpus: 7\n  gpusPerNode: 2\n")), ElementsAre(HasSubstr("spec.gpus: is no multiple of gpusPerNode, 2")));
  EXPECT_THAT(errors_of(first_mpi("")), ElementsAre(HasSubstr("spec.replicas: is required: the number of workers")));
}

TEST(KubeMpi, OfSeveralContainersTheFirstOrTheMainOneRuns) {
  const auto text = [](const std::string& more) {
    return "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: cutter}\nspec:\n" + more +
           "  mpiReplicaSpecs:\n    Launcher: {template: {spec: {containers: [{name: helm, command: [mpirun, a]}, {name: log, command: "
           "[b]}]}}}\n    Worker: {template: {spec: {containers: [{name: crew}]}}}\n";
  };
  const ParsedJob first = one_job(text("  mpiDistribution: IntelMPI\n")), main = one_job(text("  mainContainer: log\n"));
  EXPECT_THAT(first.spec.roles.at("launcher").command, ElementsAre("mpirun", "a"));
  EXPECT_THAT(first.warnings, ElementsAre(HasSubstr("Launcher.template.spec.containers[1]: is not started")));
  EXPECT_EQ(first.spec.options.at("implementation"), "Intel");
  EXPECT_THAT(main.spec.roles.at("launcher").command, ElementsAre("b"));
}

TEST(KubePaddle, TrainersOfPaddleOperatorKnowEachOther) {
  const auto text = [](const std::string& more) {
    return "apiVersion: batch.paddlepaddle.org/v1\nkind: PaddleJob\nmetadata: {name: dam}\nspec:\n  intranet: Service\n" + more +
           "  worker: {replicas: 2, template: {spec: {containers: [{name: w, command: [a]}]}}}\n";
  };
  const ParsedJob job = one_job(text(""));
  const Rendered worker = rendered(job.spec, {"worker", 1});
  for (const auto& [name, value] : std::map<std::string, std::string>{{"TRAINING_ROLE", "TRAINER"},
                                                                      {"PADDLE_TRAINER_ID", "1"},
                                                                      {"PADDLE_TRAINERS", "10.0.0.1,10.0.0.1"},
                                                                      {"PADDLE_TRAINERS_NUM", "2"},
                                                                      {"PADDLE_TRAINER_ENDPOINTS", "10.0.0.1:20000,10.0.0.1:20001"},
                                                                      {"PADDLE_PORT", "20001"}})
    EXPECT_EQ(worker.env.at(name), value) << name;
  EXPECT_EQ(job.spec.roles.at("worker").restart_policy, RestartPolicy::on_failure);
  EXPECT_THAT(errors_of(text("  heter: {replicas: 1}\n")),
              ElementsAre(HasSubstr("spec.heter: this version knows no workers of a second kind")));
}

TEST(KubeTorch, AnElasticJobMeetsByC10dUnlessItSaysOtherwise) {
  const auto backend = [](const std::string& policy) {
    const ParsedJob job =
        one_job("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: j}\nspec:\n  elasticPolicy: {" + policy +
                "}\n  pytorchReplicaSpecs: {Worker: {replicas: 2, template: {spec: {containers: [{name: c, command: [a]}]}}}}\n");
    return rendered(job.spec, {"worker", 0}).env.at("PET_RDZV_BACKEND");
  };
  EXPECT_EQ(backend("maxRestarts: 3"), "c10d");
  EXPECT_EQ(backend("rdzvBackend: etcd"), "etcd");
}

std::string train_job_of(const std::string& runtime, const std::string& rest) {
  return "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: onyx}\nspec:\n  runtimeRef: {name: " + runtime +
         "}\n" + rest;
}

TEST(KubeTrainJob, PatchesOfTheRuntimeCount) {
  const ParsedJob job = one_job(train_job_of("torch-distributed", R"(
  trainer: {command: [a]}
  runtimePatches:
  - manager: someone
    time: "2026-01-01T00:00:00Z"
    trainingRuntimeSpec:
      template:
        metadata: {labels: {a: b}}
        spec:
          replicatedJobs:
          - name: node
            template:
              metadata: {labels: {a: b}}
              spec:
                template:
                  metadata: {annotations: {a: b}}
                  spec:
                    nodeSelector: {rim: north}
                    tolerations: [{key: wet}]
                    volumes: [{name: d, hostPath: {path: /tmp/d}}]
                    containers: [{name: node, volumeMounts: [{name: d, mountPath: /tmp/d}], env: [{name: K, value: v}]}]
          - {name: launcher, template: {}}
)"));
  const std::string jobs = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs";
  EXPECT_THAT(job.warnings, UnorderedElementsAre(HasSubstr(jobs + "[0].template.spec.template.spec.tolerations: has no effect"),
                                                 HasSubstr(jobs + "[1]: the runtime has no such target: only node")));
  EXPECT_EQ(job.spec.roles.at("node").node_selector.at("rim"), "north");
  EXPECT_EQ(job.spec.roles.at("node").env.at("K"), "v");
  EXPECT_THAT(job.spec.require_paths, ElementsAre("/tmp/d"));
}

TEST(KubeTrainJob, ARuntimeOfTheSameFileIsTheTemplate) {
  const std::string runtime = R"(---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: quarry}
spec:
  mlPolicy: {numNodes: 3, torch: {}}
  podGroupPolicy: {volcano: {}}
  template:
    spec:
      network: {publishNotReadyAddresses: true}
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec:
            template:
              spec:
                tolerations: [{key: wet}]
                containers:
                - {name: node, image: rock, command: [torchrun, a.py], args: [--old], env: [{name: A, value: r}, {name: B, value: r}],
                   resources: {limits: {nvidia.com/gpu: 2}}}
)";
  const auto job_with = [&](const std::string& trainer) { return train_job_of("quarry", trainer) + runtime; };
  const ParsedJob job = one_job(job_with("  trainer: {args: [--new], env: [{name: B, value: j}]}\n"));
  EXPECT_THAT(job.warnings,
              ElementsAre(HasSubstr("f.yaml:24: spec.template.spec.replicatedJobs[0].template.spec.template.spec.tolerations")));
  const RoleSpec& node = job.spec.roles.at("node");
  EXPECT_EQ(job.spec.framework, Framework::pytorch);
  EXPECT_EQ(node.replicas, 3u);
  EXPECT_EQ(node.image, "rock");
  EXPECT_EQ(node.resources.gpus, 2u);
  EXPECT_THAT(node.command, ElementsAre("torchrun", "a.py", "--new"));
  EXPECT_EQ(node.env.at("A") + node.env.at("B"), "rj");
  EXPECT_EQ(rendered(job.spec, {"node", 2}).env.at("PET_NPROC_PER_NODE"), "2");
  const ParsedJob other = one_job(job_with("  trainer: {numNodes: 2, command: [b], resourcesPerNode: {limits: {cpu: 1}}}\n"));
  EXPECT_THAT(other.spec.roles.at("node").command, ElementsAre("b", "--old"));
  EXPECT_EQ(other.spec.roles.at("node").resources.gpus, 0u);
  EXPECT_EQ(other.spec.roles.at("node").replicas, 2u);
}

TEST(KubeTrainJob, OfARuntimeInTheFileWhatIsNotRunIsRefused) {
  const std::string head = train_job_of("quarry", "  trainer: {command: [a]}\n") +
                           "---\napiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainingRuntime\nmetadata: {name: quarry}\nspec:\n";
  EXPECT_THAT(
      errors_of(head + "  mlPolicy: {flux: {numProcPerNode: 1}}\n  template: {spec: {replicatedJobs: [{name: dataset-initializer}]}}\n"),
      ElementsAre(HasSubstr("f.yaml:12: spec.mlPolicy.flux: of the runtimes in a file this version reads those of torch, jax and xgboost"),
                  HasSubstr("f.yaml:13: spec.template.spec.replicatedJobs[0]: is not run by this version")));
  const JobFile unused = read_file(train_job_of("torch-distributed", "  trainer: {command: [a]}\n") + head.substr(head.find("---")));
  EXPECT_THAT(unused.errors, IsEmpty());
  EXPECT_THAT(unused.jobs.at(0).warnings,
              ElementsAre(HasSubstr("document 2: kind `TrainingRuntime` of `trainer.kubeflow.org/v1alpha1` is no job")));
}

TEST(KubeTrainJob, XgboostIsToldOfItsTracker) {
  const ParsedJob job = one_job(
      train_job_of("xgboost-distributed", "  trainer: {numNodes: 2, command: [a], resourcesPerNode: {limits: {nvidia.com/gpu: 4}}}\n"));
  EXPECT_THAT(job.warnings, IsEmpty());
  const Rendered node = rendered(job.spec, {"worker", 1});
  EXPECT_EQ(node.env.at("DMLC_TRACKER_URI") + ":" + node.env.at("DMLC_TRACKER_PORT"), "10.0.0.1:20000");
  EXPECT_EQ(node.env.at("DMLC_TASK_ID") + " of " + node.env.at("DMLC_NUM_WORKER"), "1 of 8");
  EXPECT_FALSE(deciding_task(job.spec));
}

}  // namespace
}  // namespace dtrain::job
