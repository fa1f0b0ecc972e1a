"""PyTorch gangs with checkpoints that go on with fewer tasks when a host is lost, and grow again by themselves."""
import json
import os
import re
import textwrap
import unittest

import ranks
import test_hosts
from harness import SOURCE, until


def begun_last(log):
    """{rank: (step, world)} of each rank's furthest beginning: a task that was on two hosts has a log on each, and both are shown."""
    begun = {}
    for rank, world, step in re.findall(r"rank (\d+) of (\d+) begins at step (\d+)", log):
        begun[int(rank)] = max(begun.get(int(rank), (-1, 0)), (int(step), int(world)))
    return begun


class Elastic(test_hosts.Hosts):
    def make(self, *arguments, **options):
        member = super().make(*arguments, **options)
        member.options = ["--set", "timing.lease=3s", "--set", "timing.downGrace=1s", "--set", "timing.agentGrace=5s"]
        return member

    def test_with_checkpoints_it_grows_at_the_next_that_verifies(self):
        """4 -> 3 -> 4 by itself. While nothing is saved it goes on with three, since what they do would be lost."""
        agents = self.cluster_of(4)
        until(lambda: all(n["schedulable"] for n in agents[0].ask("nodes")) and len(agents[0].ask("nodes")) == 4, "four hosts")
        checkpoints, may_save = self.path("checkpoints"), self.path("may-save")
        os.makedirs(checkpoints)
        script = self.write("saves.py", ranks.MEET + textwrap.dedent("""
            import hashlib, json
            checkpoints, may_save = sys.argv[1:]
            done = int(os.environ.get("DTRAIN_RESTORE_STEP") or 0)
            print("rank %d of %d begins at step %d" % (rank, world, done), flush=True)
            meet()
            def save():
                path, data = os.path.join(checkpoints, "step-%d" % done), b"%d" % done
                os.makedirs(path + ".tmp", exist_ok=True)  # one that was halted while it saved has left its own
                with open(path + ".tmp/w", "wb") as file: file.write(data)
                with open(path + ".tmp/MANIFEST.json", "w") as file:
                    json.dump({"version": 1, "step": done, "files": [
                        {"name": "w", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}]}, file)
                os.rename(path + ".tmp", path)
            while generation < 3 or done % 50:
                done += 1
                step()
                if rank == 0 and done % 20 == 0 and (generation == 1 or os.path.exists(may_save)): save()
                time.sleep(0.01)
            print("done", flush=True)
            """))
        agents[0].do("submit", self.write("saves.json", json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": "saves"},
            "spec": {"framework": "pytorch", "policy": {"placement": "spread", "growAfter": "1s", "backoffLimit": 1},
                     "checkpoint": {"dir": checkpoints, "format": "manifest"},
                     "roles": {"worker": {"replicas": 4, "minReplicas": 3, "antiAffinity": "host",
                                          "command": ["python3", script, checkpoints, may_save]}}}})))
        tasks = self.running(agents[0], "saves", 4)
        saved = lambda agent: {c["step"] for c in agent.ask("checkpoints", "saves") if c["state"] == "verified"}
        until(lambda: saved(agents[0]), lambda: "a checkpoint: %s" % agents[0].ask("checkpoints", "saves"))
        victim = next(a for a in agents if a.name == tasks["worker-3"]["node"])
        rest = [a for a in agents if a is not victim]
        self.kill_host(victim)
        def small():
            job = self.job_at(rest[0], "saves")
            return job["generation"] == 2 and job["reason"] == "runs with 3 of 4 worker"
        until(small, lambda: "three of four: " + rest[0].do("describe", "job", "saves"), seconds=60)
        before = saved(rest[0])
        victim.start()
        until(lambda: "once its next checkpoint verifies" in rest[0].do("describe", "job", "saves"),
              lambda: "that it waits to save: " + rest[0].do("describe", "job", "saves"), seconds=60)
        self.assertTrue(small())
        open(may_save, "w").close()
        job = self.ended(rest[0], "saves")
        # A place whose port another test has is left for another one: a generation more, and no restart.
        self.assertEqual(job["restarts"], 2, rest[0].do("describe", "job", "saves"))
        log = rest[0].do("logs", "saves")
        restored = rest[0].ask("describe", "job", "saves")["restored"]["step"]
        self.assertEqual(begun_last(log), {rank: (restored, 4) for rank in range(4)})
        self.assertGreater(restored, max(before), "what the three had done since is not lost")

    def test_the_elastic_example_trains_through_the_loss_of_a_host(self):
        agents = self.three()
        checkpoints = self.path("elastic")
        os.makedirs(checkpoints)
        agents[0].do("submit", os.path.join(SOURCE, "examples", "elastic", "job.yaml"), "--set", "spec.checkpoint.dir=" + checkpoints,
                     "--set", "spec.policy.growAfter=1s", "--set", "spec.roles.worker.warm=none")
        tasks = self.running(agents[0], "elastic")
        until(lambda: "step_000020.pt" in os.listdir(checkpoints), "a checkpoint", seconds=60)
        victim = next(a for a in agents if a.name == tasks["worker-2"]["node"])
        rest = [a for a in agents if a is not victim]
        self.kill_host(victim)
        until(lambda: self.job_at(rest[0], "elastic")["reason"] == "runs with 2 of 3 worker",
              lambda: "two of three: " + rest[0].do("describe", "job", "elastic"), seconds=60)
        victim.start()
        job = self.ended(rest[0], "elastic")
        self.assertEqual((job["generation"], job["restarts"]), (3, 2), rest[0].do("describe", "job", "elastic"))
        log = rest[0].do("logs", "elastic")
        results = re.findall(r"loss=(\S+) accuracy=(\S+)", log)
        self.assertEqual((len(results), len(set(results))), (3, 1), log)
        self.assertGreater(float(results[0][1]), 0.9)
        steps = [step for step, _ in begun_last(log).values()]
        self.assertEqual((len(steps), min(steps) > 0), (3, True), log)


if __name__ == "__main__":
    unittest.main()
