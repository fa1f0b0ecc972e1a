"""Three agents, idle: from before a job of four tasks is submitted until the last of them runs; and 500 jobs at once; beside Slurm.

The four programs are first_stamp.cpp, placed on all three hosts. The 500 jobs of one task are submitted over one connection
(submit_many.cpp), at an agent that does not coordinate: how many a second are finished. Slurm has three nodes on this machine (slurm.py):
`srun` of four tasks in interleaved pairs, the order changing from pair to pair, and one array of 500 batch jobs, until nine of ten are
finished: now and then it takes two minutes to launch the last of them.
"""
import os
import subprocess
import sys
import time

import common
import failover
from common import harness, until
from restart import Stamps
from slurm import Slurm
from submit import last_start

TASKS = 4
WARM_UP = 2                 # not counted: page cache, first-time paths
ARRAY_PATIENCE_S = 300      # for Slurm's array
LOOK_S = 0.5                # between two looks at Slurm's queue: each costs some 20 ms of a processor


class Ours:
    def __init__(self, bench):
        self.bench, self.number, self.stamps = bench, 0, Stamps(bench.path("ours.stamps"))
        key = harness.make_key(bench.path("cluster.key"))
        members = []
        for number in range(failover.MEMBERS):
            joins = [failover.ip_of(0)] if number else []
            members.append(bench.keep(harness.Member(bench.top, "a%d" % (number + 1), failover.ip_of(number), key, joins)).start())
        until(lambda: all(node["schedulable"] for node in members[0].ask("nodes")) and len(members[0].ask("nodes")) == len(members),
              "three hosts that take tasks")
        coordinator = members[0].ask("status")["coordinator"]["node"]
        self.other = next(member for member in members if member.name != coordinator)

    def four(self):
        self.number += 1
        name = "four-%d" % self.number
        command = [os.path.join(harness.BIN, "first_stamp"), self.stamps.path]
        job = self.bench.job_file(name, {"worker": {"replicas": TASKS, "command": command}}, policy={"placement": "spread"})
        since = time.monotonic_ns()
        client = subprocess.Popen(self.other.ctl_command("submit", job), stdout=subprocess.DEVNULL)
        elapsed, _ = last_start(self.stamps, since, TASKS)
        common.need(client.wait(harness.PATIENCE) == 0, "dtrainctl submit failed")
        hosts = {task["node"] for task in common.tasks_of(self.other, name).values()}
        common.need(len(hosts) > 1, "all tasks are on " + ", ".join(hosts))
        common.remove(self.other, name)
        return elapsed

    def many(self, count):
        """Acknowledged and finished, a second."""
        done = subprocess.run([os.path.join(harness.BIN, "submit_many"), self.other.socket, str(count)], capture_output=True, text=True)
        common.need(done.returncode == 0, done.stderr.strip())
        return [count / (int(word) / 1e6) for word in done.stdout.split()]


class Peer:
    def __init__(self, bench):
        self.slurm, self.stamps = Slurm(bench), Stamps(bench.path("slurm.stamps"))

    def four(self):
        since = time.monotonic_ns()
        client = self.slurm.run_tasks(TASKS, [os.path.join(harness.BIN, "first_stamp"), self.stamps.path])
        elapsed, _ = last_start(self.stamps, since, TASKS)
        self.slurm.clear(client)
        return elapsed

    def many(self, count):
        """Finished, a second, until nine of ten are."""
        since = time.monotonic()
        self.slurm.submit_many(count)
        while (left := self.slurm.unfinished()) > count / 10:
            common.need(time.monotonic() - since < ARRAY_PATIENCE_S, "%d of Slurm's jobs are left after %d s" % (left, ARRAY_PATIENCE_S))
            time.sleep(LOOK_S)
        return (count - left) / (time.monotonic() - since)


def measure(bench, options):
    ours, peer = Ours(bench), Peer(bench) if os.geteuid() == 0 else None
    if peer is None:
        common.say("launch: not root: without Slurm")
    times = {ours: [], peer: []}
    for number in range(WARM_UP + (5 if options.quick else 20)):
        for side in (ours, peer) if number % 2 else (peer, ours):
            if side is not None:
                elapsed = side.four()
                if number >= WARM_UP:
                    times[side].append(elapsed)
    count = 100 if options.quick else 500
    acknowledged, finished = ours.many(count)
    slurm = [peer.many(count)] if peer else []
    if peer:
        peer.slurm.end()
    named = "Slurm" if peer else None
    common.report("launch", "submit to the last of four processes' own start, on three hosts", "ms", times[ours], named, times[peer])
    common.report("launch", "%d one-task jobs at once: acknowledged" % count, "per second", [acknowledged])
    common.report("launch", "%d one-task jobs at once: finished" % count, "per second", [finished], named, slurm)


if __name__ == "__main__":
    sys.exit(common.run(measure, __doc__))
