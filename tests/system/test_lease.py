"""Exclusive tasks over several hosts: a successor is begun where its host says nothing any more, and never runs beside it."""
import json
import os
import signal
import sys
import unittest

import test_hosts
from harness import alive, until

LEASE = 3.0
# Writes down, many times a second, that it runs: the clock is one, for all agents are on this machine.
BEATS = ("import os, sys, time\n"
         "while True:\n"
         "    e = os.environ\n"
         "    line = '%s-%s %s %.6f\\n' % (e['DTRAIN_ROLE'], e['DTRAIN_INDEX'], e['DTRAIN_NODE'], time.monotonic())\n"
         "    with open(sys.argv[1], 'a') as file: file.write(line)\n"
         "    time.sleep(0.01)\n")


class LeaseTest(test_hosts.Hosts):
    def make(self, *arguments, **options):
        member = super().make(*arguments, **options)
        member.options = ["--set", "timing.lease=3s", "--set", "timing.downGrace=1s", "--set", "timing.agentGrace=5s"]
        return member

    def keepers(self, name):
        path = self.write(name + ".json", json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"framework": "generic", "policy": {"placement": "spread"},
                     "roles": {"keeper": {"replicas": 3, "exclusive": True,
                                          "command": [sys.executable, "-c", BEATS, self.path("beats")]}}}}))
        return path

    def beats(self, task, node):
        """When that task ran on that host."""
        with open(self.path("beats")) as file:
            lines = [line.split() for line in file if line.endswith("\n")]
        return [float(line[2]) for line in lines if line[:2] == [task, node]]

    def moved(self, agent, task, name):
        return until(lambda: (t := self.running(agent, name)) and t[task]["node"] != "a3" and t,
                     lambda: "%s elsewhere; seen %s, %s" % (task, self.tasks_at(agent, name), agent.ask("describe", "job", name)), 60)

    def begin(self, name):
        agents = self.three()
        agents[0].do("submit", self.keepers(name))
        before = self.running(agents[0], name)
        until(lambda: all(self.beats(n, t["node"]) for n, t in before.items()), "the first beats")
        return agents, before, next(n for n, t in before.items() if t["node"] == "a3")

    def test_what_ran_on_a_host_that_is_gone_runs_elsewhere(self):
        agents, before, kept = self.begin("gone")
        here = next(n for n, t in before.items() if t["node"] == "a1")
        os.kill(before[here]["pid"], signal.SIGKILL)        # in place, with a new grant
        until(lambda: (t := self.tasks_at(agents[0], "gone")[here])["attempt"] == 2 and t["state"] == "Running" and t["node"] == "a1",
              lambda: "its second attempt: %s" % self.tasks_at(agents[0], "gone"))
        self.kill_host(agents[2])
        after = self.moved(agents[0], kept, "gone")
        until(lambda: self.beats(kept, after[kept]["node"]), "its successor's first beat")
        gap = self.beats(kept, after[kept]["node"])[0] - self.beats(kept, "a3")[-1]
        self.assertGreater(gap, LEASE - 1, "begun before its lease could be over")
        print("host gone: %.2f s from the last beat to the successor's first" % gap)
        agents[2].start()
        until(lambda: agents[0].nodes()["a3"]["schedulable"], "the host that is back to be given tasks again")
        self.assertEqual(self.running(agents[0], "gone")[kept]["pid"], after[kept]["pid"])

    def test_what_runs_on_a_host_that_is_cut_off_stands_still_first(self):
        agents, before, kept = self.begin("cut")
        agents[2].process.send_signal(signal.SIGSTOP)       # says nothing and hears nothing, like a host that is cut off
        self.addCleanup(lambda: agents[2].process.poll() is None and agents[2].process.send_signal(signal.SIGCONT))
        after = self.moved(agents[0], kept, "cut")
        until(lambda: self.beats(kept, after[kept]["node"]), "its successor's first beat")
        self.assertTrue(alive(before[kept]["pid"]), "it is frozen, not killed")
        agents[2].process.send_signal(signal.SIGCONT)
        until(lambda: not alive(before[kept]["pid"]), "the end of what was superseded")
        gap = self.beats(kept, after[kept]["node"])[0] - self.beats(kept, "a3")[-1]
        self.assertGreater(gap, 0, "both ran")
        print("host cut off: %.2f s between the last beat of the one and the first of the other" % gap)
        until(lambda: agents[0].nodes()["a3"]["schedulable"], "the host that is back to be given tasks again")
        self.assertEqual(self.running(agents[0], "cut")[kept]["pid"], after[kept]["pid"])

    def test_a_cluster_without_a_quorum_stands_still_and_goes_on(self):
        agents, before, kept = self.begin("still")
        for agent in agents[:2]:
            agent.process.send_signal(signal.SIGSTOP)
            self.addCleanup(lambda a=agent: a.process.poll() is None and a.process.send_signal(signal.SIGCONT))
        until(lambda: self.tasks_at(agents[2], "still")[kept]["state"] == "Frozen", "it to be shown frozen")
        last = self.beats(kept, "a3")[-1]
        for agent in agents[:2]:
            agent.process.send_signal(signal.SIGCONT)
        until(lambda: self.beats(kept, "a3")[-1] > last, "it to go on")
        until(lambda: all(t["state"] == "Running" for t in self.tasks_at(agents[0], "still").values()), "all to run")
        after = self.tasks_at(agents[0], "still")
        self.assertEqual({n: (t["pid"], t["attempt"]) for n, t in after.items()}, {n: (t["pid"], t["attempt"]) for n, t in before.items()})


if __name__ == "__main__":
    unittest.main()
