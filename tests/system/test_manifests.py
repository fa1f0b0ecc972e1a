"""Manifests of Kubernetes' training operators, submitted as they are: the programs in them look at what they are told and at what they
were promised, and succeed or not. One mistake keeps all jobs of a file away; what `convert` prints is the same job."""
import json
import os
import shutil
import tempfile

import harness

LOOK = "import json, os, sys; e = os.environ; assert %s, dict(e)"
TF = LOOK % 'json.loads(e["TF_CONFIG"])["task"]["type"] == "worker" and os.path.exists("STORE")'
TORCH = LOOK % 'sys.argv[1] == e["RANK"] and e["WORLD_SIZE"] == "3" and e["PET_NPROC_PER_NODE"] == "auto"'
XGB = LOOK % 'e["RANK"] in "012" and e["WORLD_SIZE"] == "3" and e["WORKER_ADDRS"]'
JAX = LOOK % 'e["JAX_PROCESS_ID"] == e["SLURM_PROCID"] == e["PROCESS_ID"] and os.getcwd() == "/"'
PADDLE = LOOK % 'e["PADDLE_MASTER"].startswith(e["ME"] + ":") and "PADDLE_TRAINER_NUM" not in e'
MX = LOOK % 'json.loads(e["MX_CONFIG"])["task"]["type"] == e["DMLC_ROLE"]'
MPI = LOOK % 'e["OMPI_COMM_WORLD_SIZE"] == "4" and e["DTRAIN_TASK"] == "worker-%d" % (int(e["OMPI_COMM_WORLD_RANK"]) // 2)'
DEEP = LOOK % 'e["OMPI_COMM_WORLD_SIZE"] == "4" and e["DTRAIN_TASK"] == ("launcher-0", "worker-0")[int(e["OMPI_COMM_WORLD_RANK"]) // 2]'
SOWN = LOOK % 'e["SOWN"] == "wheat" and e["RATE"] == e["KEY"] == "0.1" and open("seed").read() == "first\\nsecond\\n"'
# As horovodrun asks which hosts there are, and starts its ranks there.
HOROVODRUN = """#!/bin/sh
test "$1" = --host-discovery-script || exit
hosts=$("$2") && echo "$hosts"
test "$(for host in $hosts; do ssh -o StrictHostKeyChecking=no ${host%:*} 'echo $DTRAIN_TASK'; done | tr '\\n' ' ')" = 'worker-0 worker-1 '
"""
NODE = LOOK % 'e["PET_NNODES"] == "2" and e["PET_NPROC_PER_NODE"] == "2" and e["CHISEL"] == "fine"'


def container(name, script, *arguments, **more):
    return {"name": name, "image": "localhost/none:1", "command": ["/usr/bin/python3", "-c", script, *arguments], **more}


def replica(count, one, **pod):
    return {"replicas": count, "template": {"metadata": {"creationTimestamp": None}, "spec": {"containers": [one], **pod}}}


def manifest(kind, name, specs, roles, version="kubeflow.org/v1", **spec):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "uid": "1-2-3"}, "spec": {**spec, specs: roles}}


def volumes(store):
    return {"volumeMounts": [{"name": "v", "mountPath": store}]}, [{"name": "v", "persistentVolumeClaim": {"claimName": "store"}}]


class Manifests(harness.SystemTest):
    def start(self):
        self.store = os.path.join(self.top, "store")
        os.makedirs(self.store)
        for setting in "tasks.imageEngine=none", "tasks.imageFallback=host", "volumes.store=" + self.store:
            self.agent.options += ["--set", setting]
        self.agent.start()

    def documents(self):
        mounts, pod_volumes = volumes(self.store)
        sleeper = {"name": "tensorflow", "command": ["sleep", "infinity"]}
        pair = {"Master": replica(1, container("pytorch", TORCH, "$(RANK)")), "Worker": replica(2, container("pytorch", TORCH, "$(RANK)"))}
        boost = {role: replica(count, container("xgboost", XGB)) for role, count in (("Master", 1), ("Worker", 2))}
        lite = {role: replica(1, container("mxnet", MX)) for role in ("Scheduler", "Server", "Worker")}
        launcher = {"name": "mpi", "image": "localhost/none:1", "command": ["mpirun.openmpi"], "args": [
            "-np", "4", "--allow-run-as-root", "-bind-to", "none", "-map-by", "slot", "-x", "PATH", "/usr/bin/python3", "-c", MPI]}
        crew = {"name": "mpi", "image": "localhost/none:1"}     # which waits
        horovodrun = self.write("bin/horovodrun", HOROVODRUN)
        os.chmod(horovodrun, 0o755)
        deck = {"name": "mpi", "image": "localhost/none:1",
                "command": [horovodrun, "--host-discovery-script", "/etc/mpi/discover_hosts.sh"]}
        self.write("store/RATE", "0.1\n")
        before = [{"name": word, "command": ["sh", "-c", "echo %s >> seed" % word]} for word in ("first", "second")]
        sown = {"env": [{"name": "SOWN", "value": "wheat"}], "envFrom": [{"configMapRef": {"name": "store"}}]}
        sown["env"].append({"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "store", "key": "RATE"}}})
        me = [{"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
        return [
            manifest("TFJob", "reed", "tfReplicaSpecs", {
                "PS": replica(1, sleeper),
                "Worker": replica(2, container("tensorflow", TF.replace("STORE", self.store), **mounts), volumes=pod_volumes)},
                     successPolicy="AllWorkers", runPolicy={"cleanPodPolicy": "Running"}),
            manifest("PyTorchJob", "slate", "pytorchReplicaSpecs", pair),
            manifest("XGBoostJob", "hazel", "xgbReplicaSpecs", boost, version="xgboostjob.kubeflow.org/v1alpha1"),
            manifest("JAXJob", "quartz", "jaxReplicaSpecs", {"Worker": replica(2, container("jax", JAX, workingDir="/"))}),
            manifest("PaddleJob", "otter", "paddleReplicaSpecs", {"Worker": replica(2, container("paddle", PADDLE, env=me))}),
            manifest("MPIJob", "cedar", "mpiReplicaSpecs", {"Launcher": replica(1, launcher), "Worker": replica(2, crew)},
                     slotsPerWorker=2),
            manifest("MXJob", "bronze", "mxReplicaSpecs", lite, runPolicy={"cleanPodPolicy": "All"}),
            manifest("MPIJob", "larch", "mpiReplicaSpecs", {"Launcher": replica(1, deck), "Worker": replica(2, crew)}),
            manifest("JAXJob", "meadow", "jaxReplicaSpecs", {
                "Worker": replica(1, container("jax", SOWN, **sown), initContainers=before, activeDeadlineSeconds=600)}),
            {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "onyx"}, "spec": {
                "runtimeRef": {"name": "deepspeed-distributed"},
                "trainer": {"numNodes": 2, "numProcPerNode": 2, "command": ["mpirun.openmpi", "/usr/bin/python3", "-c", DEEP]}}},
            {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "marble"}, "spec": {
                "runtimeRef": {"name": "torch-distributed"},
                "trainer": {"numNodes": 2, "numProcPerNode": 2, "command": ["/usr/bin/python3", "-c", NODE],
                            "env": [{"name": "CHISEL", "value": "fine"}]}}},
        ]

    def test_they_succeed_as_they_are(self):
        documents = self.documents()
        text = "\n---\n".join(json.dumps(document, indent=1) for document in documents[:3])
        text += "\n---\n" + json.dumps({"apiVersion": "v1", "kind": "List", "items": documents[3:]}, indent=1)
        text += "\n---\n" + json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "knobs"}})
        done = self.agent.ctl("submit", self.write("all.yaml", text))
        self.assertEqual(done.returncode, 0, done.stderr)
        names = [document["metadata"]["name"] for document in documents]
        self.assertEqual(done.stdout.split(), names)
        self.assertIn("kind `ConfigMap` of `v1` is no job", done.stderr)
        self.assertIn("containers[0].image: on a host without podman or enroot the command runs on the host itself", done.stderr)
        for name in names:
            self.wait_job(name, "Succeeded")

    def test_one_mistake_keeps_all_away(self):
        good, bad = self.documents()[:2]
        bad["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["volumes"] = [{"name": "v", "secret": {"secretName": "keys"}}]
        bad["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0].update(
            volumeMounts=[{"name": "v", "mountPath": "/keys"}], command=None)
        done = self.agent.ctl("submit", self.write("bad.yaml", json.dumps(good) + "\n---\n" + json.dumps(bad)))
        self.assertEqual(done.returncode, 2)
        self.assertIn("volumes[0]: secret keys maps to no directory", done.stderr)
        self.assertIn("containers[0]: has no command", done.stderr)
        self.assertEqual(self.agent.ask("jobs"), [])
        two = self.write("two.yaml", json.dumps(good) + "\n---\n" + json.dumps(self.documents()[2]))
        self.assertEqual(self.agent.ctl("run", two).returncode, 2, "which of them would be followed?")
        self.assertEqual(self.agent.ask("jobs"), [])

    def test_what_convert_prints_is_the_same_job(self):
        for document in self.documents():
            with self.subTest(document["kind"]):
                path = self.write("m.yaml", json.dumps(document))
                printed = self.agent.do("convert", path)
                self.assertEqual("# not honoured: " in printed, "image" in json.dumps(document))
                for _ in range(2):      # what was printed is printed again as it is
                    converted = self.write("c.yaml", printed)
                    self.assertEqual(self.agent.ask("plan", converted)["tasks"], self.agent.ask("plan", path)["tasks"])
                    printed = self.agent.do("convert", converted)
                again = [line for line in printed.splitlines() if "not honoured" in line]
                self.assertEqual([line for line in again if "starts nothing in images" not in line], [])

    def test_directories_are_made_as_the_user(self):
        made = os.path.join(tempfile.mkdtemp(), "a", "b")
        self.addCleanup(shutil.rmtree, os.path.dirname(os.path.dirname(made)))
        self.submit("made", {"worker": {"replicas": 1, "command": ["test", "-d", made]}}, requires={"directories": [made]})
        self.wait_job("made", "Succeeded")
        self.submit("not", {"worker": {"replicas": 1, "command": ["true"]}}, requires={"directories": ["/proc/none"]})
        harness.until(lambda: "directory /proc/none cannot be made" in self.job("not")["reason"], lambda: str(self.job("not")))


if __name__ == "__main__":
    harness.main()
