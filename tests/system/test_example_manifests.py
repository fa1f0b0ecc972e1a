"""The manifests among the examples train, all beside each other, as they are: TFJob, PyTorchJob, XGBoostJob, MPIJob, TrainJob. A worker of
XGBoost's is killed on the way, and the trees that the job ends with are as good as those of a run by hand."""
import os
import re
import socket
import subprocess

from harness import PATIENCE, SOURCE, SystemTest, main, until

SLOW = 4 * PATIENCE
EXAMPLES = os.path.join(SOURCE, "examples")
XGBOOST = os.path.join(EXAMPLES, "xgboost")


class ExampleManifests(SystemTest):
    def start(self):
        for setting in "tasks.imageEngine=none", "tasks.imageFallback=host":
            self.agent.options += ["--set", setting]
        self.agent.start()

    def submit_manifest(self, path, *options):
        path = os.path.join(EXAMPLES, path)
        return self.agent.do("submit", "--package", os.path.dirname(path), *options, path).strip()

    def by_hand(self):
        """What the ranks of XGBoost print when somebody starts them."""
        with socket.socket() as free:
            free.bind((self.ip, 0))
            port = str(free.getsockname()[1])
        ranks = [subprocess.Popen(["/usr/bin/python3", "train.py", "--models", self.path("by-hand")], cwd=XGBOOST, stdout=subprocess.PIPE,
                                  text=True, env=dict(os.environ, MASTER_ADDR=self.ip, MASTER_PORT=port, RANK=str(rank), WORLD_SIZE="3",
                                                      PYTHONDONTWRITEBYTECODE="1")) for rank in range(3)]
        return [self.result(rank.communicate(timeout=SLOW)[0]) for rank in ranks]

    def result(self, output):
        """(loss, accuracy)"""
        return tuple(float(value) for value in re.search(r"loss=(\S+) accuracy=(\S+)", output).groups())

    def test_a_package_that_is_none(self):
        for arguments in (["plan", "--package", self.path("nowhere"), os.path.join(EXAMPLES, "digits/tfjob.yaml")],
                          ["run", "--package", self.path("nowhere"), "--", "true"]):
            done = self.agent.ctl(*arguments)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("--package", done.stderr)
        self.assertEqual(self.agent.ask("jobs"), [])

    def test_all_train(self):
        models, master = self.path("models"), "spec.xgbReplicaSpecs.Master.template.spec."
        boost = self.submit_manifest("xgboost/xgboostjob.yaml", "--set", master + "containers.0.args.3=--models=" + models,
                                     "--set", master + "containers.0.volumeMounts.0.mountPath=" + models,
                                     "--set", master + "volumes.0.hostPath.path=" + models)
        until(lambda: "rounds_00020.json" in os.listdir(models), "two models", SLOW)
        self.kill_task(boost, "worker-1")
        others = "digits/tfjob.yaml", "ddp/pytorchjob.yaml", "ddp/trainjob.yaml", "mpi/mpijob.yaml"
        names = [self.submit_manifest(path) for path in others]
        job = self.wait_job(boost, "Succeeded", SLOW)
        self.assertEqual((job["generation"], job["restarts"]), (2, 1))
        log = self.agent.do("logs", boost)
        begun = {int(number) for number in re.findall(r"rank \d of 3 begins at round (\d+)", log)}
        self.assertEqual(len(begun), 1, log)
        self.assertGreaterEqual(min(begun), 20, "they went on from a model")
        loss, accuracy = self.result(log)
        for loss_by_hand, accuracy_by_hand in self.by_hand():
            self.assertLess(abs(loss - loss_by_hand), 0.02)
            self.assertLess(abs(accuracy - accuracy_by_hand), 0.02)
        self.assertGreater(accuracy, 0.9)
        logs = {}
        for name in names:
            self.wait_job(name, "Succeeded", SLOW)
            logs[name] = self.agent.do("logs", name)
        self.assertGreater(float(re.search(r"^accuracy=(\S+)", self.agent.do("logs", "tf-digits", "chief-0"), re.M)[1]), 0.9)
        for name in "torch-digits", "train-digits":
            said = re.findall(r"loss=\S+", logs[name])
            self.assertEqual((len(said), len(set(said))), (2, 1), logs[name])
            self.assertIn("rank 1 of 2 begins at step 0", logs[name])
        self.assertIn("rank 1 of 2 begins at step 0", logs["mpi-digits"])
        self.assertGreater(self.result(logs["mpi-digits"])[1], 0.9)


if __name__ == "__main__":
    main()
