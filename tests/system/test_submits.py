"""Submits to any of three agents while agents are killed and started again: what was acknowledged runs, and runs once.

DTRAIN_SUBMITS: how many (default 120; tests/run.sh --soak: 10,000).
"""
import json
import os
import random
import threading
import unittest

import harness
import test_members
from harness import until

SUBMITS = int(os.environ.get("DTRAIN_SUBMITS", "120"))
CLIENTS = 3
TRY_S = 5                       # a client that is not answered asks again, maybe another agent
LONGEST_DOWN_S, LONGEST_UP_S = 0.5, 1.5
KILLS = 3                       # at least so many, however fast the submits are


class SubmitsTest(test_members.Members):
    def setUp(self):
        super().setUp()
        self.done, self.errors = threading.Event(), []
        self.next, self.lock = iter(range(SUBMITS)), threading.Lock()

    def guarded(self, act):
        """Runs in a thread: what goes wrong there fails the test."""
        try:
            act()
        except BaseException as error:      # noqa: B902 - all of it is told
            self.errors.append(error)
            self.done.set()

    def submit_all(self, agents, seed):
        """Takes numbers until none is left; each is asked for until some agent acknowledges it."""
        draw = random.Random(seed)
        while not self.done.is_set():
            with self.lock:
                number = next(self.next, None)
            if number is None:
                return
            name = "s%d" % number
            path = self.write("jobs/%s.json" % name, json.dumps({
                "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": name},
                "spec": {"framework": "generic", "roles": {"worker": {
                    "replicas": 1, "command": harness.sh("echo %s >> %s" % (name, self.path("ran")))}}}}))
            until(lambda: self.done.is_set() or self.try_at(draw.choice(agents), path) == 0, "acknowledged: " + name, 120)

    def try_at(self, agent, path):
        return agent.ctl("--timeout", "%ds" % TRY_S, "submit", path).returncode

    def kill_some(self, agents, seed):
        """One at a time, so that a majority is always there to elect."""
        draw = random.Random(seed)
        while not self.done.is_set() or self.kills < KILLS:
            victim = draw.choice(agents)
            victim.end()
            self.kills += 1
            self.done.wait(draw.uniform(0, LONGEST_DOWN_S))
            victim.start()
            self.done.wait(draw.uniform(0, LONGEST_UP_S))

    def ran(self):
        return sorted(self.lines("ran"))

    def test_none_lost_and_none_doubled(self):
        agents = self.cluster_of(3)
        until(lambda: all(len(agent.ask("status")["quorum"]["voters"]) == 3 for agent in agents), "three voters")
        self.kills = 0
        killer = threading.Thread(target=self.guarded, args=(lambda: self.kill_some(agents, SUBMITS),))
        clients = [threading.Thread(target=self.guarded, args=(lambda seed=seed: self.submit_all(agents, seed),))
                   for seed in range(CLIENTS)]
        for thread in [killer, *clients]:
            thread.start()
        for thread in clients:
            thread.join()
        self.done.set()
        killer.join()
        self.assertEqual(self.errors, [])
        wanted = sorted("s%d" % number for number in range(SUBMITS))
        until(lambda: len(self.ran()) >= SUBMITS, lambda: "all to run; missing: %s" % sorted(set(wanted) - set(self.ran()))[:9])
        until(lambda: all(job["state"] in harness.FINAL for agent in agents for job in agent.ask("jobs")), "all to have ended")
        self.assertEqual(self.ran(), wanted)
        states = {job["state"] for agent in agents for job in agent.ask("jobs")}
        self.assertEqual(states, {"Succeeded"})
        print("%d submits acknowledged, %d agents killed: each ran once" % (SUBMITS, self.kills))


if __name__ == "__main__":
    unittest.main()
