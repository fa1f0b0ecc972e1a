"""Programs of two versions in one cluster under training: nothing that one of them does not know is skipped, nobody diverges, and training
goes on. The newer one is dtraind_rehearsal, which knows a version of the ledger that no release knows."""
import json
import os
import re
import time
import unittest

import control_wire
import test_hosts
from harness import SOURCE, Member, alive, until

REHEARSAL = "1000000"   # the version (common/wire/since.h)
with open(os.path.join(SOURCE, "common/cluster/versions.h"), encoding="utf-8") as header:
    NEWEST = re.search(r"kNewestVersion = (\d+);", header.read()).group(1)     # of this release
GENERIC = 8             # Framework


class Agent(Member):
    newer = False

    def command(self):
        command = super().command()
        if self.newer:
            program = next(i for i, word in enumerate(command) if os.path.basename(word) == "dtraind")
            command[program] += "_rehearsal"
        return command


class Upgrade(test_hosts.Hosts):
    member = Agent

    def give(self, agent, newer):
        """Another program, as an upgrade of the package does it: the tasks run on."""
        agent.end()
        agent.newer = newer
        agent.start()

    def submit_newer(self, agent, name):
        """A job with a field that only the newer program gives a meaning. (number, text) of the answer."""
        spec = control_wire.packed({"name": name, "framework": GENERIC, "rehearsal": "it",
                                    "roles": {"worker": {"replicas": 1, "min_replicas": 1, "command": ["sleep", "600"]}}})
        number, said = control_wire.answer(control_wire.asked(agent.socket, control_wire.request(control_wire.SUBMIT, spec=spec)))
        errors = said.get(b"errors", [])
        return number, b"; ".join(error[b"message"] for error in errors).decode()

    def steps(self):
        """What the trainer of each task counted."""
        def step(name):
            with open(self.path(name)) as file:
                return int(file.read())
        return {name: step(name) for name in sorted(os.listdir(self.top)) if name.startswith("step-")}

    def trains(self):
        before = self.steps()
        until(lambda: all(self.steps()[n] > before[n] for n in before), lambda: "steps: %s then %s" % (before, self.steps()))

    def test_one_host_after_the_other(self):
        agents = a1, a2, a3 = self.three()
        trainer = ["sh", "-c", 'i=0; while :; do i=$((i+1)); echo $i >$0/tmp-$DTRAIN_TASK; mv $0/tmp-$DTRAIN_TASK $0/step-$DTRAIN_TASK; '
                   'sleep 0.1; done', self.top]
        self.write("train.json", json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": "train"},
            "spec": {"framework": "tensorflow", "policy": {"placement": "spread", "backoffLimit": 0},
                     "roles": {"chief": {"replicas": 1, "command": trainer}, "ps": {"replicas": 1, "command": trainer},
                               "worker": {"replicas": 1, "command": trainer}}}}))
        a1.do("submit", self.path("train.json"))
        tasks = self.running(a1, "train", 3)
        self.assertEqual({t["node"] for t in tasks.values()}, {"a1", "a2", "a3"})
        until(lambda: len(self.steps()) == 3, "a step of each task")
        pids = {name: t["pid"] for name, t in tasks.items()}

        until(lambda: [e["object"] for e in a1.events() if e["type"] == "ledger.version"] == [NEWEST], "the ledger to be raised")
        # All old: what needs the newer version is refused, and who is behind is named.
        number, said = self.submit_newer(a1, "early")
        self.assertEqual(number, control_wire.ERROR)
        behind = "it needs version %s of the ledger, which has version %s, as these hosts run an older dtrain: "
        self.assertIn(behind % (REHEARSAL, NEWEST), said)
        # Two of three new: still refused, and only the third is named.
        self.give(a1, True)
        self.give(a2, True)
        until(lambda: self.submit_newer(a2, "early")[1].endswith("older dtrain: a3"),
              lambda: "a3 named: %s" % (self.submit_newer(a2, "early"),))
        self.trains()
        # All new: the ledger is raised, and the job runs.
        self.give(a3, True)
        until(lambda: self.submit_newer(a1, "newer")[0] == control_wire.SUBMITTED, "the newer job to be taken", seconds=60)
        self.running(a2, "newer", 1)
        self.assertEqual([e["object"] for e in a1.events() if e["type"] == "ledger.version"], [NEWEST, REHEARSAL])
        self.trains()

        # One is given the old program again: it reads nothing that it does not know, and says so everywhere.
        self.give(a3, False)
        why = "this host's dtrain knows version %s of the ledger, which has version %s" % (NEWEST, REHEARSAL)
        until(lambda: why in a3.do("status"), lambda: "what a3 says: " + a3.do("status"))
        until(lambda: why in a1.do("nodes"), lambda: "what a1 says of it: " + a1.do("nodes"))
        self.assertIn("cannot read on in the ledger", a3.ctl("doctor").stdout)
        self.assertEqual(a3.saw("ledger.behind", "a3", needs=REHEARSAL, knows=NEWEST), 1)
        a1.do("submit", self.spread("more", 2))
        self.assertEqual({t["node"] for t in self.running(a1, "more", 2).values()}, {"a1", "a2"})
        self.assertEqual({j["name"] for j in a3.ask("jobs")}, {"train", "newer", "more"})  # asked of another agent
        # Longer than a lease: also what runs under one trains on there.
        until(lambda: a1.ask("status")["coordinator"], "a coordinator")
        begun = time.monotonic()
        until(lambda: time.monotonic() - begun > 15, "the time of a lease and a half", seconds=60)
        self.trains()
        self.assertEqual({n: t["pid"] for n, t in self.tasks_at(a1, "train").items()}, pids)
        self.assertTrue(all(alive(pid) for pid in pids.values()))

        # Upgraded, it catches up: the same jobs, events and tasks everywhere.
        self.give(a3, True)
        until(lambda: a3.ask("status")["ledger"] and not a3.ask("status")["stale"], "a copy at a3")
        until(lambda: a3.nodes()["a3"]["schedulable"], lambda: "a3 takes tasks: %s" % a3.nodes()["a3"])
        history = [[(e["seq"], e["type"], e["object"]) for e in a.events() if "local" not in e] for a in agents]
        self.assertEqual(history[0], history[2])
        self.assertEqual({n: t["pid"] for n, t in self.tasks_at(a3, "train").items()}, pids)
        self.assertEqual(self.job_at(a3, "train")["generation"], 1)
        self.trains()


if __name__ == "__main__":
    unittest.main(verbosity=2)
