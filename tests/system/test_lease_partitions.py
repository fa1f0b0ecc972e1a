"""Hosts of exclusive tasks are cut off from the network: never two at once, and nothing is lost without a quorum.

The agents run in namespaces of their own (agents_lab.py); the packets between them are dropped. All are on one machine, so that
their tasks write down by one clock when they ran.

DTRAIN_CUTS: hosts cut off, one after the other (default 3; tests/run.sh --soak: 50). Of every second one the agent dies with the cut.
DTRAIN_QUORUM_LOST_SECONDS: how long nobody reaches anybody (default 8; there: a minute).
"""
import contextlib
import itertools
import json
import os
import random
import statistics
import textwrap
import time
import unittest

import agents_lab
import ranks
import test_hosts
from agents_lab import cut, isolated
from harness import alive, until

CUTS = int(os.environ.get("DTRAIN_CUTS", "3"))
QUORUM_LOST = int(os.environ.get("DTRAIN_QUORUM_LOST_SECONDS", "8"))
AT_MOST = 600 + 60 * CUTS + 2 * QUORUM_LOST     # seconds for all tests
LEASE = 3.0
PATIENCE = 60                   # seconds for a death to be called one, a lease to end, and a successor, on a loaded machine
# Writes down, many times a second, that it runs.
BEATS = ("import os, sys, time\n"
         "e, file = os.environ, os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)\n"
         "who = '%s %s %d' % (e['DTRAIN_ROLE'] + '-' + e['DTRAIN_INDEX'], e['DTRAIN_NODE'], os.getpid())\n"
         "while True:\n"
         "    os.write(file, ('%s %.6f\\n' % (who, time.monotonic())).encode())\n"
         "    time.sleep(0.01)\n")


class Beats:
    """When each process of each task ran, by the file that they write."""

    def __init__(self, path):
        self.path, self.rest, self.of = path, b"", {}   # of: (task, node, pid) -> times, in order
        self.file = None

    def read(self):
        if self.file is None and os.path.exists(self.path):
            self.file = open(self.path, "rb")
        if self.file is not None:
            *lines, self.rest = (self.rest + self.file.read()).split(b"\n")
            for line in lines:
                task, node, pid, at = line.decode().split()
                self.of.setdefault((task, node, int(pid)), []).append(float(at))
        return self.of

    def close(self):
        if self.file is not None:
            self.file.close()

    def handovers(self):
        """Per task, of each process and its successor: (task, last of the one, first of the other)."""
        for task in {key[0] for key in self.read()}:
            ran = sorted(((times[0], times[-1], key) for key, times in self.of.items() if key[0] == task))
            for (_, last, before), (first, _, after) in itertools.pairwise(ran):
                yield "%s: %s then %s" % (task, before[1:], after[1:]), last, first

    def both(self):
        """Where two of a task ran at once."""
        return [(what, "%.3f s" % (last - first)) for what, last, first in self.handovers() if last >= first]


class Islands(test_hosts.Hosts):
    """Helpers: agents with short times, between which the network can be cut."""
    member = agents_lab.Island
    lease = LEASE

    def make(self, *arguments, **options):
        member = super().make(*arguments, **options)
        member.uid = agents_lab.FIRST_UID + len(self.members)
        member.options = ["--set", "timing.lease=%ds" % self.lease, "--set", "timing.downGrace=2s", "--set", "timing.agentGrace=5s"]
        return member

    def beats_of(self, name):
        beats = Beats(self.path(name))
        self.addCleanup(beats.close)
        return beats

    def writers(self, name, exclusive, replicas=3, **spec):
        """A job whose tasks write beats to the file of its name."""
        return self.write(name + ".json", json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"framework": "generic",
                     "policy": {"placement": "spread", "failureThreshold": {"count": 0}, "restartBackoff": "100ms"},
                     "roles": {"keeper" if exclusive else "worker": {
                         "replicas": replicas, "exclusive": exclusive,
                         "command": ["/usr/bin/python3", "-c", BEATS, self.path(name)]}}, **spec}}))

    def whole(self, agents, operate=lambda: None):
        """Until all see all, with one coordinator, and every host takes tasks. operate: what an operator does meanwhile."""
        names = {agent.name: "alive" for agent in agents}

        def agreed():
            operate()
            seen = [agent.ask("status") for agent in agents]
            return (len({s["coordinator"]["node"] for s in seen}) == 1 and not any(s["stale"] for s in seen) and
                    all(agent.states() == names for agent in agents) and
                    all(node["schedulable"] for agent in agents for node in agent.ask("nodes")))
        until(agreed, lambda: "one cluster again: %s" % [(agent.ask("status"), agent.states()) for agent in agents], PATIENCE)

    def says_who_is_missing(self, agent, agents):
        """Whether its status does; that the quorum is lost each look says."""
        status = agent.ask("status")
        self.assertTrue(status["stale"], status)
        self.assertFalse(status["quorum"]["healthy"] or status["coordinator"], status)
        missing = ", ".join(sorted(other.name for other in agents if other is not agent))
        return "Start the agents of %s;" % missing in status["quorum"]["next"]

    def identities(self, agent, name):
        return {task: (t["node"], t["pid"], t["attempt"]) for task, t in self.tasks_at(agent, name).items()}


class GangPartition(Islands):
    lease = 10.0        # the default, which is longer than a host is silent until it is called dead

    def test_a_gang_whose_host_is_cut_off_trains_elsewhere(self):
        """A gang of two on three hosts: the host of rank 0 is cut off, then that of rank 1. The figure: what is waited beyond the lease."""
        agents, beats = self.three(), self.beats_of("gang")
        script = self.write("gang.py", ranks.MEET + textwrap.dedent("""
            file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            meet()
            while True:
                step()
                os.write(file, ("%d %s %d %.6f\\n" % (rank, os.environ["DTRAIN_NODE"], os.getpid(), time.monotonic())).encode())
                time.sleep(0.01)
            """))
        agents[0].do("submit", self.write("gang.json", json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": "gang"},
            "spec": {"framework": "pytorch", "policy": {"placement": "spread", "failureThreshold": {"count": 0}},
                     "roles": {"worker": {"replicas": 2, "antiAffinity": "host", "warm": "none",
                                          "command": ["/usr/bin/python3", script, self.path("gang")]}}}})))
        figures = []
        for number in range(2):
            before = self.running(agents[0], "gang", 2)
            victim = next(a for a in agents if a.name == before["worker-%d" % (number % 2)]["node"])
            others = [agent for agent in agents if agent is not victim]
            coordinates = agents[0].ask("status")["coordinator"]["node"] == victim.name
            here = lambda: {key: times for key, times in beats.read().items() if key[1] != victim.name}
            both = {(str(t["index"]), t["node"], t["pid"]) for t in before.values()}
            until(lambda: both <= beats.read().keys(), "steps of both")
            known = set(beats.read())
            with cut([victim], others):
                since = time.monotonic()
                new = until(lambda: (k := [key for key in here() if key not in known]) and len({key[0] for key in k}) == 2 and k,
                            lambda: "steps elsewhere: %s" % others[0].do("describe", "job", "gang"), PATIENCE)
                first = max(here()[key][0] for key in new)
                last = max(times[-1] for key, times in beats.read().items() if key in known)
            self.assertLess(last, min(here()[key][0] for key in new), "no rank of before steps beside those of now")
            figures.append((first - since - self.lease, coordinates))
            self.whole(agents)
        print("a gang's host is cut off, lease %g s: first step of both elsewhere, beyond the lease: %s" %
              (self.lease, ", ".join("%.2f s%s" % (at, " (the coordinator's)" * led) for at, led in figures)))
        self.assertLess(max(at for at, _ in figures), 3)


class LeasePartitions(Islands):
    def test_hosts_that_are_cut_off(self):
        agents, beats, draw = self.three(), self.beats_of("keepers"), random.Random(CUTS)
        agents[0].do("submit", self.writers("keepers", exclusive=True))
        self.running(agents[0], "keepers")
        figures = {False: [], True: []}     # by whether its agent died: seconds between last and first beat, from the cut to each
        for number in range(CUTS):
            before = self.running(agents[0], "keepers")
            until(lambda: all(any(key[::2] == (name, t["pid"]) for key in beats.read()) for name, t in before.items()), "a beat of each")
            victim = draw.choice([agent for agent in agents if any(t["node"] == agent.name for t in before.values())])
            there = {name: t["pid"] for name, t in before.items() if t["node"] == victim.name}
            others = [agent for agent in agents if agent is not victim]
            agent_dies = number % 2 == 1
            with (isolated if agent_dies else cut)([victim], others):
                since = time.monotonic()
                if agent_dies:      # its shims stay, and freeze by themselves
                    victim.end()
                after = until(lambda: (t := self.running(others[0], "keepers")) and
                              all(t[name]["node"] != victim.name for name in there) and t,
                              lambda: "successors elsewhere: %s" % self.tasks_at(others[0], "keepers"), PATIENCE)
                firsts = until(lambda: {name: beats.read()[name, after[name]["node"], after[name]["pid"]][0] for name in there},
                               "the successors' first beats")
                for name, pid in there.items():
                    self.assertTrue(alive(pid), "%s of the host that is cut off is frozen, not killed" % name)
            if agent_dies:
                victim.start()
            until(lambda: not any(alive(pid) for pid in there.values()), "the end of what was superseded", PATIENCE)
            for name, pid in there.items():
                last = beats.read()[name, victim.name, pid][-1]
                figures[agent_dies].append((firsts[name] - last, last - since, firsts[name] - since))
            self.whole(agents)
            self.assertEqual(self.identities(agents[0], "keepers"), {n: (t["node"], t["pid"], t["attempt"]) for n, t in after.items()})
        self.assertEqual(beats.both(), [])
        for agent_dies, rows in figures.items():
            for what, samples in zip(("the old one's last beat to its successor's first", "the cut to the old one's last",
                                      "the cut to its successor's first"), zip(*rows)):
                print("%d cuts, lease %g s%s: from %s: median %.2f s, least %.2f s, most %.2f s, n = %d" %
                      (CUTS, LEASE, ", its agent died" * agent_dies, what, statistics.median(samples), min(samples), max(samples),
                       len(samples)))
        self.assertGreater(min(gap for rows in figures.values() for gap, *_ in rows), 0)

    def test_nobody_reaches_anybody_for_a_while(self):
        agents, keepers, workers = self.three(), self.beats_of("keepers"), self.beats_of("workers")
        for name, exclusive in (("keepers", True), ("workers", False)):
            agents[0].do("submit", self.writers(name, exclusive))
            self.running(agents[0], name)
        until(lambda: len(keepers.read()) == 3 and len(workers.read()) == 3, "the first beats")
        before = {name: self.identities(agents[0], name) for name in ("keepers", "workers")}
        with contextlib.ExitStack() as cuts:
            for pair in itertools.combinations(agents, 2):
                cuts.enter_context(cut(pair[:1], pair[1:]))
            since = time.monotonic()
            until(lambda: all((s := agent.ask("status"))["stale"] and s["coordinator"] is None for agent in agents),
                  lambda: "the coordinator's loss, known to all: %s" % [agent.ask("status") for agent in agents])
            until(lambda: all(task["state"] == "Frozen" for agent in agents for task in agent.ask("tasks", "keepers")
                              if task["node"] == agent.name),
                  lambda: "frozen tasks: %s" % [self.tasks_at(agent, "keepers") for agent in agents])
            last = {key: times[-1] for key, times in keepers.read().items()}
            self.assertLess(max(last.values()) - since, LEASE, "ran on after its lease")
            for number, agent in enumerate(agents):
                refused = agent.ctl("submit", self.spread("refused%d" % number))
                self.assertEqual(refused.returncode, 5, refused.stderr)
                self.assertIn("majority", refused.stderr)
                for verb in (["jobs"], ["tasks", "workers"], ["describe", "job", "keepers"], ["nodes"], ["events"],
                             ["logs", "workers", next(n for n, (node, *_) in before["workers"].items() if node == agent.name)]):
                    agent.do(*verb)
            until(lambda: all([self.says_who_is_missing(agent, agents) for agent in agents]),
                  lambda: "all to say who is missing: %s" % [agent.ask("status") for agent in agents])

            def explained():
                self.assertTrue(all([self.says_who_is_missing(agent, agents) for agent in agents]),
                                "each look explains it: %s" % [agent.ask("status") for agent in agents])
                return True
            # What needs nobody goes on, for as long as this lasts.
            until(lambda: explained() and all(times[-1] - since > QUORUM_LOST for times in workers.read().values()),
                  lambda: "beats of all workers: %s" % {key: times[-1] - since for key, times in workers.read().items()},
                  QUORUM_LOST + PATIENCE)
            self.assertEqual({key: times[-1] for key, times in keepers.read().items()}, last)
        self.whole(agents)
        self.assertEqual([agent.ask("status")["quorum"]["next"] for agent in agents], ["", "", ""])
        until(lambda: all(times[-1] > last[key] for key, times in keepers.read().items()), "what was frozen to go on", PATIENCE)
        for agent in agents:
            until(lambda: all(t["state"] == "Running" for name in before for t in agent.ask("tasks", name)),
                  lambda: "all to run: %s" % [self.tasks_at(agent, name) for name in before], PATIENCE)
            self.assertEqual({name: self.identities(agent, name) for name in before}, before)
            self.assertEqual({job["name"]: job["restarts"] for job in agent.ask("jobs")}, {"keepers": 0, "workers": 0})
        for key, times in workers.read().items():
            self.assertLess(max(b - a for a, b in itertools.pairwise(times)), QUORUM_LOST - LEASE, "%s stood still" % (key,))
        agents[0].do("submit", self.spread("afterwards"))
        self.running(agents[2], "afterwards")

    def test_two_of_three_lose_power_for_good(self):
        """The one that is left suspects them for ever: it may be cut off itself. An operator knows better."""
        agents = self.three()
        lost = [agent for agent in agents if agent.name == agents[0].ask("status")["coordinator"]["node"]]
        left = next(agent for agent in agents if agent not in lost)
        lost += [agent for agent in agents if agent not in (left, *lost)]
        left.do("submit", self.spread("both"))
        before = self.running(left, "both")
        with isolated(lost, [left]):
            for agent in lost:
                self.kill_host(agent)
            until(lambda: left.ask("status")["coordinator"] is None, "the loss of the coordinator")
            until(lambda: self.says_who_is_missing(left, agents), lambda: "its advice: %s" % left.ask("status"), PATIENCE)
            until(lambda: left.ctl("recover-quorum", "--yes").returncode == 0,
                  lambda: "a new history: %s" % left.ctl("recover-quorum").stderr, PATIENCE)
            until(lambda: (c := left.ask("status")["coordinator"]) and c["node"] == left.name, "it to coordinate")
            # What it had runs on; what the others had is begun there, by now or soon.
            kept = {n: t["pid"] for n, t in before.items() if t["node"] == left.name}
            now = self.tasks_at(left, "both")
            self.assertEqual({n: now[n]["pid"] for n in kept}, kept)
            self.running(left, "both")
            self.assertEqual({t["node"] for t in self.tasks_at(left, "both").values()}, {left.name})


if __name__ == "__main__":
    agents_lab.enter(AT_MOST)
    unittest.main(verbosity=2)
