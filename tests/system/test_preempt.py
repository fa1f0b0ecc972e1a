"""Three agents that are full, and a job of higher priority: who makes room, how it ends, and how it comes again."""
import json
import os
import unittest

import test_hosts
from harness import alive, until

# Counts up; on the stop signal it commits what it has as a checkpoint (MANIFEST.json), as a trainer does in its grace.
TRAINER = r'''
import hashlib, json, os, signal, sys, time
top, said = sys.argv[1:3]
step = int(os.environ.get("DTRAIN_RESTORE_STEP", "0"))
with open(said, "a") as file:
    file.write("begins at %d in generation %s\n" % (step, os.environ["DTRAIN_GENERATION"]))
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
while not asked:
    step += 1
    time.sleep(0.05)
time.sleep(1)       # it takes its time, within the grace
data = b"parameters %d" % step
path = os.path.join(top, "ckpt-%d" % step)
os.mkdir(path + ".tmp")
with open(path + ".tmp/shard-0", "wb") as file:
    file.write(data)
with open(path + ".tmp/MANIFEST.json", "w") as file:
    json.dump({"version": 1, "step": step, "files": [
        {"name": "shard-0", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}]}, file)
os.rename(path + ".tmp", path)
with open(said, "a") as file:
    file.write("saved %d\n" % step)
'''


class Preempt(test_hosts.Hosts):
    def job_with(self, name, priority, workers, cpus, command, grace="20s", **spec):
        """`workers` tasks that take `cpus` each and know all others' addresses."""
        policy = {"placement": "spread", "stopGracePeriod": grace, "priority": priority, "backoffLimit": 0}
        return self.write(name + ".json", json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"framework": "generic", "env": {"PEERS": "{hosts:worker}"}, "policy": policy,
                     "roles": {"worker": {"replicas": workers, "command": list(command), "resources": {"cpus": cpus}}}, **spec}}))

    def full(self, agents):
        return min(n["cpus"]["total"] for n in agents[0].ask("nodes"))

    def waiting_for(self, agent, name):
        return agent.ask("describe", "job", name).get("waiting_for") or ""

    def preempted(self, agent):
        return [event["object"] for event in agent.events() if event["type"] == "job.preempted"]

    def test_a_job_makes_room_saves_what_it_has_and_goes_on_from_there(self):
        agents = self.three()
        cpus = self.full(agents)
        said, done, checkpoints = self.path("said"), self.path("done"), self.path("checkpoints")
        os.mkdir(checkpoints)
        agents[0].do("submit", self.job_with("learner", 0, 1, cpus, ["python3", "-c", TRAINER, checkpoints, said],
                                             checkpoint={"dir": checkpoints, "format": "manifest"}))
        self.running(agents[0], "learner", 1)
        stubborn = ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]
        agents[0].do("submit", self.job_with("stubborn", 0, 2, cpus, stubborn, "4s"))
        before = self.running(agents[0], "stubborn", 2)
        until(lambda: self.lines("said"), "its first step")
        agents[1].do("submit", self.job_with("equal", 0, 1, cpus, ["true"]))
        until(lambda: self.waiting_for(agents[0], "equal"), "its reason to wait")
        self.assertEqual(self.preempted(agents[0]), [])
        wait = ["sh", "-c", "while ! [ -e %s ]; do sleep 0.1; done" % done]
        agents[1].do("submit", self.job_with("urgent", 7, 3, cpus, wait))
        for agent in agents:
            until(lambda: self.waiting_for(agent, "stubborn").startswith("preempted by urgent"),
                  lambda: "who takes its place; seen: %s" % self.waiting_for(agent, "stubborn"))
        self.assertIn("which make room for its higher priority", self.waiting_for(agents[0], "urgent"))
        self.running(agents[0], "urgent", 3)
        self.assertFalse(any(alive(task["pid"]) for task in before.values()))
        self.assertEqual(sorted(self.preempted(agents[2])), ["learner", "stubborn"])
        first, saved = self.lines("said")
        self.assertEqual(first, "begins at 0 in generation 1")
        for name in ("learner", "stubborn"):
            job = self.job_at(agents[0], name)
            self.assertEqual((job["state"], job["restarts"]), ("Pending", 0), job)
            self.assertIn("preempted by urgent", self.waiting_for(agents[0], name))
        self.write("done", "")
        until(lambda: self.job_at(agents[0], "urgent")["state"] == "Succeeded", "its end")
        self.running(agents[0], "learner", 1)
        self.running(agents[0], "stubborn", 2)
        until(lambda: len(self.lines("said")) > 2, "its next generation's first step")
        self.assertEqual(self.lines("said")[2], "begins at %s in generation 2" % saved.split()[1])
        for name in ("learner", "stubborn"):
            job = self.job_at(agents[0], name)
            self.assertEqual((job["restarts"], job["generation"]), (0, 2), job)
        self.assertEqual(len(self.preempted(agents[0])), 2)
        restored = agents[0].ask("describe", "job", "learner")["restored"]
        self.assertEqual(restored["step"], int(saved.split()[1]))

    def test_only_who_is_needed_also_when_the_coordinator_dies_meanwhile(self):
        agents = self.three()
        cpus = self.full(agents)
        for name in ("one", "two", "three"):
            agents[0].do("submit", self.job_with(name, 0, 1, cpus, ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"], "15s"))
            self.running(agents[0], name, 1)
        before = {name: self.tasks_at(agents[0], name)["worker-0"] for name in ("one", "two")}
        agents[0].do("submit", self.job_with("urgent", 1, 1, cpus, ["sleep", "1000"]))
        until(lambda: self.waiting_for(agents[1], "three").startswith("preempted by urgent"), "the youngest to make room")
        self.assertEqual(agents[1].ask("status")["coordinator"]["node"], "a1")
        agents[0].end()
        until(lambda: (c := agents[1].ask("status")["coordinator"]) and c["node"] != "a1", "another coordinator")
        agents[0].start()
        self.running(agents[1], "urgent", 1)
        self.assertEqual(self.preempted(agents[1]), ["three"])
        for name, task in before.items():
            now = self.tasks_at(agents[1], name)["worker-0"]
            self.assertEqual((now["pid"], now["attempt"], now["state"]), (task["pid"], task["attempt"], "Running"), name)
        self.assertEqual(self.job_at(agents[1], "three")["state"], "Pending")


if __name__ == "__main__":
    unittest.main()
