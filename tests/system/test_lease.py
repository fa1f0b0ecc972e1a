"""Exclusive tasks over several hosts: a successor is begun where its host says nothing any more, and never runs beside it."""
import json
import os
import signal
import sys
import time
import unittest

import test_hosts
from harness import alive, until

LEASE = 3.0
# Writes down, many times a second, that it runs: the clock is one, for all agents are on this machine.
BEATS = ("import os, sys, time\n"
         "while True:\n"
         "    e = os.environ\n"
         "    line = '%s-%s %s %.6f %d\\n' % (e['DTRAIN_ROLE'], e['DTRAIN_INDEX'], e['DTRAIN_NODE'], time.monotonic(), os.getpid())\n"
         "    with open(sys.argv[1], 'a') as file: file.write(line)\n"
         "    time.sleep(0.01)\n")


class LeaseTest(test_hosts.Hosts):
    def make(self, *arguments, **options):
        member = super().make(*arguments, **options)
        member.options = ["--set", "timing.lease=3s", "--set", "timing.downGrace=1s", "--set", "timing.agentGrace=5s"]
        return member

    def keepers(self, name, **policy):
        path = self.write(name + ".json", json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"framework": "generic", "policy": {"placement": "spread", **policy},
                     "roles": {"keeper": {"replicas": 3, "exclusive": True,
                                          "command": [sys.executable, "-c", BEATS, self.path("beats")]}}}}))
        return path

    def beats(self, task, node, pid=None):
        """When that task, or that process of it, ran on that host."""
        with open(self.path("beats")) as file:
            lines = [line.split() for line in file if line.endswith("\n")]
        return [float(line[2]) for line in lines if line[:2] == [task, node] and pid in (None, int(line[3]))]

    def moved(self, agent, task, name):
        return until(lambda: (t := self.running(agent, name)) and t[task]["node"] != "a3" and t,
                     lambda: "%s elsewhere; seen %s, %s" % (task, self.tasks_at(agent, name), agent.ask("describe", "job", name)), 60)

    def begin(self, name, **policy):
        agents = self.three()
        agents[0].do("submit", self.keepers(name, **policy))
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

    def waits_for(self, agent, name, text):
        until(lambda: text in agent.ask("describe", "job", name)["waiting_for"],
              lambda: "%s in what it waits for: %s" % (text, agent.ask("describe", "job", name)))

    def event_types(self, agent, name):
        return [event["type"] for event in agent.ask("describe", "job", name)["events"]]

    def kill_there(self, agent, name, task):
        """The only process of that task; what became of it, once the ledger knows."""
        at = time.monotonic()
        os.kill(self.tasks_at(agent, name)[task]["pid"], signal.SIGKILL)
        until(lambda: self.tasks_at(agent, name)[task]["state"] in ("Backoff", "Failed"),
              lambda: "its end to be known: %s" % self.tasks_at(agent, name))
        self.assertEqual(self.tasks_at(agent, name)[task]["state"], "Backoff", "its end counts")
        return at

    # With no restart allowed.
    def test_while_one_is_frozen_the_others_wait_and_cost_nothing(self):
        agents, before, kept = self.begin("spared", backoffLimit=0)
        here = next(n for n, t in before.items() if t["node"] == "a1")
        with open("/proc/%d/stat" % before[kept]["pid"]) as stat:
            shim = int(stat.read().rpartition(")")[2].split()[1])
        os.kill(shim, signal.SIGSTOP)           # its agent freezes the task in its place
        self.addCleanup(lambda: alive(shim) and os.kill(shim, signal.SIGCONT))
        until(lambda: self.tasks_at(agents[0], "spared")[kept]["state"] == "Frozen", "it to be known as frozen")
        self.waits_for(agents[0], "spared", kept)
        # The coordinator knows that it must be frozen before its host has said so.
        until(lambda: "task.frozen" in self.event_types(agents[0], "spared"), "its host to report it")
        killed = self.kill_there(agents[0], "spared", here)
        frozen = self.beats(kept, "a3")[-1]
        os.kill(shim, signal.SIGCONT)
        after = self.running(agents[0], "spared")
        self.assertEqual((after[kept]["pid"], after[kept]["attempt"]), (before[kept]["pid"], 1), "thawed")
        self.assertEqual((after[here]["node"], after[here]["attempt"]), ("a1", 2))
        until(lambda: self.beats(here, "a1")[-1] > killed + 0.5 and self.beats(kept, "a3")[-1] > frozen, "both to go on")
        thawed = next(beat for beat in self.beats(kept, "a3") if beat > frozen)
        again = self.beats(here, "a1", after[here]["pid"])[0]
        self.assertGreater(again, thawed, "restarted while the other was frozen")
        print("restart %.2f s after the thaw, %.2f s after the kill" % (again - thawed, again - killed))
        job = self.job_at(agents[0], "spared")
        self.assertEqual((job["state"], job["restarts"]), ("Running", 1))
        types = self.event_types(agents[0], "spared")
        for event in ("job.stands-still", "job.goes-on", "task.frozen", "task.thawed"):
            self.assertIn(event, types)

    # One restart is allowed: that of what was frozen and is begun elsewhere.
    def test_what_must_be_frozen_on_a_host_that_is_cut_off_makes_the_others_wait(self):
        agents, before, kept = self.begin("away", backoffLimit=1)
        here = next(n for n, t in before.items() if t["node"] == "a1")
        agents[2].process.send_signal(signal.SIGSTOP)
        self.addCleanup(lambda: agents[2].process.poll() is None and agents[2].process.send_signal(signal.SIGCONT))
        until(lambda: any(event["type"] == "job.stands-still" for event in agents[0].ask("describe", "job", "away")["events"]),
              "the job to stand still")
        self.assertEqual(self.tasks_at(agents[0], "away")[kept]["node"], "a3", "not begun elsewhere yet")
        self.kill_there(agents[0], "away", here)
        after = self.moved(agents[0], kept, "away")
        self.assertEqual((after[here]["node"], after[here]["attempt"]), ("a1", 2))
        job = self.job_at(agents[0], "away")
        self.assertEqual((job["state"], job["restarts"]), ("Running", 2))

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
