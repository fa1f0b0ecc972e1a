"""A host of five is lost, or all that runs on it is killed: until what ran there begins again, by the tasks' own first act.

Two jobs with a task on every host: stateless workers, and parameter servers, which have leases. The agents run in namespaces of
their own (tests/system/agents_lab.py; root), with their defaults.

  power    no packet to or from the host passes any more, then its agent, shims and tasks are killed: nobody is told
           anything, as in a power cut
  restart  agent, shims and tasks are killed, and the agent is started again at once, as a supervisor does

Each for hosts that do not coordinate and for the one that does. What must hold: after a power cut a parameter server begins only when
its predecessor's lease must be over; a worker whose host is back begins there; workers of other hosts are not touched.
"""
import contextlib
import os
import sys
import time

import common
from common import harness, need, until

import agents_lab

AGENTS = 5
AT_MOST = 3600                  # seconds for all of it
PATIENCE = 120                  # seconds a condition may take on a loaded machine
LEASE_S = 10                    # timing.lease, the default
ASKED_S = 3                     # a lease is asked for every 2 s (common/task/lease.h), on a loaded machine a little later
# Of the time only hundredths; but no interpreter has to start.
FIRST_ACT = 'read now rest < /proc/uptime; echo "$DTRAIN_JOB $DTRAIN_ROLE-$DTRAIN_INDEX $DTRAIN_NODE $now" >> %s; exec sleep 1000000'


def now():
    """What /proc/uptime says."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Cluster:
    def __init__(self, bench):
        self.bench, self.number, self.acts = bench, 0, bench.path("acts")
        key = harness.make_key(bench.path("cluster.key"))
        self.agents = []
        for number in range(1, AGENTS + 1):
            joins = [self.agents[0].ip] if self.agents else []
            agent = bench.keep(agents_lab.Island(bench.top, "a%d" % number, "127.0.1.%d" % number, key, joins))
            agent.uid = agents_lab.FIRST_UID + number
            self.agents.append(agent.start())
        self.whole()

    def whole(self):
        """Until all see all, one coordinates, and every host takes tasks."""
        names = {agent.name: "alive" for agent in self.agents}

        def agreed():
            seen = [agent.ask("status") for agent in self.agents]
            return (len({s["coordinator"]["node"] for s in seen}) == 1 and not any(s["stale"] for s in seen) and
                    all(len(s["quorum"]["voters"]) == 3 for s in seen) and
                    all(agent.states() == names and all(node["schedulable"] for node in agent.ask("nodes")) for agent in self.agents))
        until(agreed, lambda: "one cluster: %s" % [(agent.ask("status"), agent.states()) for agent in self.agents], PATIENCE)

    def begin(self):
        """A job of workers and one with ps, of both one on every host; {job: its tasks}."""
        self.number += 1
        command = ["sh", "-c", FIRST_ACT % self.acts]
        on_all, one = ({"replicas": count, "command": command} for count in (AGENTS, 1))
        jobs = {}       # in this order
        for name, framework, roles in (("workers-%d" % self.number, "generic", {"worker": on_all}),
                                       ("training-%d" % self.number, "tensorflow", {"ps": on_all, "worker": one})):
            self.agents[0].do("submit", self.bench.job_file(name, roles, framework=framework, policy={"placement": "spread"}))
            jobs[name] = self.running(self.agents[0], name)
        return jobs

    def running(self, agent, name):
        def all_run():
            tasks = common.tasks_of(agent, name)
            return common.job_of(agent, name)["state"] == "Running" and all(t["state"] == "Running" for t in tasks.values()) and tasks
        return until(all_run, lambda: "%s to run: %s" % (name, agent.ask("describe", "job", name)), PATIENCE)

    def first_act(self, job, task, since):
        """Where and when the task first ran after that."""
        def acted():
            with open(self.acts) as file:
                for line in file:
                    who, which, node, at = line.split() if line.endswith("\n") else (None,) * 4
                    if (who, which) == (job, task) and float(at) > since:
                        return node, float(at)
            return None
        return until(acted, "%s of %s to begin again" % (task, job), PATIENCE)

    def once(self, coordinates, power):
        """Seconds from the fault to the first act of what succeeds the victim's worker, and its ps."""
        named = self.agents[0].ask("status")["coordinator"]["node"]
        others = [agent for agent in self.agents if agent.name != named]
        victim = next(a for a in self.agents if a.name == named) if coordinates else others[self.number % len(others)]
        rest = [agent for agent in self.agents if agent is not victim]
        jobs = self.begin()
        lost = [self.lost(name, role, tasks, victim) for (name, tasks), role in zip(jobs.items(), ("worker", "ps"))]
        with agents_lab.isolated([victim], rest) if power else contextlib.nullcontext():
            since = now()
            victim.process.kill()
            victim.process.wait()
            harness.end_processes_of(victim.directory)
            if not power:
                victim.spawn()
            acts = [self.first_act(name, task, since) for name, task in zip(jobs, lost)]
            after = [self.running(rest[0], name) for name in jobs]
        need((acts[0][0] != victim.name) == power, "the worker of %s began again on %s" % (victim.name, acts[0][0]))
        took = [at - since for _, at in acts]
        need(not power or took[1] > LEASE_S - ASKED_S, "a ps began %.2f s after its predecessor, whose lease was not over" % took[1])
        workers = list(jobs.values())[0]
        touched = {task: (t, after[0][task]) for task, t in workers.items()
                   if task != lost[0] and (t["pid"], t["attempt"]) != (after[0][task]["pid"], after[0][task]["attempt"])}
        need(not touched, "workers of other hosts were touched: %s" % touched)
        if power:
            victim.start()
        self.whole()
        for name in jobs:
            common.remove(self.agents[0], name)
        return took

    def lost(self, name, role, tasks, victim):
        """The one task of that role on the victim's host."""
        there = [task for task, t in tasks.items() if t["node"] == victim.name and task.startswith(role + "-")]
        need(there, "no %s of %s is on %s: %s" % (role, name, victim.name, tasks))
        return there[0]


def measure(bench, options):
    cluster = Cluster(bench)
    for fault, power in (("power cut of a host", True), ("agent, shims and tasks of a host killed, agent restarted", False)):
        for whose, coordinates, count in (("", False, 20), (" (it coordinates)", True, 10)):
            took = [cluster.once(coordinates, power) for _ in range((2 if coordinates else 4) if options.quick else count)]
            for what, samples in zip(("worker", "ps"), zip(*took)):
                common.report("host_loss", "%s%s: to the first act of its %s's successor" % (fault, whose, what), "s", samples)


if __name__ == "__main__":
    if agents_lab.INSIDE not in os.environ:
        common.need_packages("iproute2", "nftables")
    agents_lab.enter(AT_MOST)
    sys.exit(common.run(measure, __doc__))
