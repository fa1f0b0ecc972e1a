"""Every example runs as it is; digits also under kills, to the accuracy that its README promises."""
import glob
import os
import re
import signal
import socket
import subprocess
import unittest

from harness import PATIENCE, SOURCE, SystemTest, main, processes_of, until

SLOW = 4 * PATIENCE


class Examples(SystemTest):
    def example(self, name):
        return os.path.join(SOURCE, "examples", name, "job.yaml")

    def test_all_have_a_test(self):
        self.assertEqual({os.path.basename(os.path.dirname(path)) for path in glob.glob(os.path.join(SOURCE, "examples", "*", "job.yaml"))},
                         {"ddp", "digits", "elastic", "generic-ps", "hello", "mpi", "rpc-ps"})

    def test_hello(self):
        done = self.agent.ctl("run", self.example("hello"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("hello from worker-1 of hello on n1", done.stdout)

    def test_generic_ps(self):
        done = self.agent.ctl("run", self.example("generic-ps"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the sum reached 20", done.stdout)

    def by_hand(self, ranks, *arguments):
        """The losses that the ranks print when they are started as torchrun starts them."""
        with socket.socket() as free:
            free.bind((self.ip, 0))
            port = str(free.getsockname()[1])
        processes = [subprocess.Popen(["/usr/bin/python3", "train.py", "--checkpoints", self.path("by-hand"), *arguments],
                                      cwd=os.path.dirname(self.example("ddp")), stdout=subprocess.PIPE, text=True,
                                      env=dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR=self.ip, MASTER_PORT=port,
                                               OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1"))
                     for rank in range(ranks)]
        return [re.findall(r"loss=\S+", process.communicate(timeout=SLOW)[0]) for process in processes]

    def test_mpi_heals_and_ends_with_the_loss_of_a_run_by_hand(self):
        steps, every = "--steps=200", "--save-every=20"
        alone = subprocess.run(["/usr/bin/python3", "train.py", "--checkpoints", self.path("by-hand"), steps, every], timeout=SLOW,
                               cwd=os.path.dirname(self.example("mpi")), stdout=subprocess.PIPE, text=True, check=True)
        expected = re.search(r"loss=\d+\.\d{4}", alone.stdout).group()    # in another order sums differ in the last digits
        checkpoints = self.path("checkpoints")
        self.agent.do("submit", "--set", "spec.checkpoint.dir=" + checkpoints, "--set", "spec.roles.launcher.command.3=" + steps,
                      self.example("mpi"))
        until(lambda: "step_000040.npz" in os.listdir(checkpoints), "two checkpoints", SLOW)
        os.kill(self.rank_of("worker-1"), signal.SIGKILL)
        job = self.wait_job("mpi", "Succeeded", SLOW)
        self.assertEqual((job["generation"], job["restarts"]), (2, 1))
        log = self.agent.do("logs", "mpi")
        self.assertIn(expected, log)
        begun = [int(step) for step in re.findall(r"rank \d of 2 begins at step (\d+)", log)]
        self.assertEqual(len(begun), 2)
        self.assertGreaterEqual(min(begun), 40, "they went on from a checkpoint")

    def rank_of(self, task):
        """The process of mpirun's that runs in that task."""
        for pid in processes_of(self.top):
            with open("/proc/%d/environ" % pid, "rb") as environment, open("/proc/%d/cmdline" % pid, "rb") as arguments:
                if b"DTRAIN_TASK=" + task.encode() in environment.read().split(b"\0") and b"train.py" in arguments.read():
                    return pid
        raise AssertionError("no rank in " + task)

    def test_ddp_heals_and_ends_with_the_loss_of_a_run_by_hand(self):
        steps, every = "--steps=200", "--save-every=20"
        (expected,), *others = self.by_hand(4, steps, every)
        self.assertEqual(others, [[expected]] * 3, "the ranks agree")
        checkpoints = self.path("checkpoints")
        self.agent.do("submit", "--set", "spec.checkpoint.dir=" + checkpoints,
                      "--set", "spec.roles.worker.command.2=" + steps, "--set", "spec.roles.worker.command.3=" + every, self.example("ddp"))
        self.wait_job("ddp", "Running", SLOW)
        until(lambda: "step_000040.pt" in os.listdir(checkpoints), "two checkpoints", SLOW)
        self.kill_task("ddp", "worker-1")
        job = self.wait_job("ddp", "Succeeded", SLOW)
        self.assertEqual((job["generation"], job["restarts"]), (2, 1))
        log = self.agent.do("logs", "ddp")
        self.assertEqual(log.count(expected), 4, log)
        begun = [int(step) for step in re.findall(r"rank \d of 4 begins at step (\d+)", log)]
        self.assertEqual(len(begun), 4)
        self.assertGreaterEqual(min(begun), 40, "they went on from a checkpoint")
        restored = self.agent.ask("describe", "job", "ddp")["restored"]
        self.assertEqual(set(begun), {restored["step"]}, "the checkpoint that dtrain verified")

    def test_rpc_ps_trains_and_goes_on_from_a_checkpoint(self):
        checkpoints = self.path("checkpoints")
        self.agent.do("submit", "--set", "spec.checkpoint.dir=" + checkpoints, "--set", "spec.roles.master.command.3=--save-every=20",
                      self.example("rpc-ps"))
        until(lambda: os.path.isdir(checkpoints) and "step_000040.pt" in os.listdir(checkpoints), "two checkpoints", SLOW)
        self.kill_task("rpc-ps", "worker-0")
        job = self.wait_job("rpc-ps", "Succeeded", SLOW)
        self.assertEqual((job["generation"], job["restarts"]), (2, 1))
        log = self.agent.do("logs", "rpc-ps", "master-0")
        restored = self.agent.ask("describe", "job", "rpc-ps")["restored"]["step"]
        self.assertIn("server begins at step %d" % restored, log)
        self.assertGreaterEqual(restored, 40)
        self.assertGreater(float(re.search(r"steps=300 accuracy=(\S+)", log)[1]), 0.9)

    def test_digits_heals(self):
        self.agent.do("submit", "--set", "spec.checkpoint.dir=" + self.path("checkpoints"), self.example("digits"))
        self.wait_job("digits", "Running")

        def good():
            return [c["step"] for c in self.agent.ask("checkpoints", "digits") if c["state"] in ("complete", "verified")]
        until(lambda: len(good()) >= 2, "two checkpoints", SLOW)
        before = self.kill_task("digits", "worker-1")
        after = self.wait_task("digits", "worker-1", attempt=2, state="Running")
        self.assertEqual(after["address"], before["address"])
        until(lambda: len(good()) >= 3, "a third checkpoint", SLOW)
        self.kill_task("digits", "ps-0")
        until(lambda: self.job("digits")["generation"] == 2 and self.job("digits")["state"] == "Running", "the second generation")
        restored = self.agent.ask("describe", "job", "digits")["restored"]
        until(lambda: "restored step=%d" % restored["step"] in self.agent.do("logs", "digits", "ps-0", "--attempt", "2"),
              "ps-0 to restore step %d" % restored["step"])
        job = self.wait_job("digits", "Succeeded", SLOW)
        self.assertEqual(job["restarts"], 2)
        accuracy = [line for line in self.agent.do("logs", "digits", "chief-0").splitlines() if line.startswith("accuracy=")]
        self.assertGreater(float(accuracy[-1].split("=")[1]), 0.9)


if __name__ == "__main__":
    main()
