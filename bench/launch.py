"""Three agents, idle: from the submit of a job of four tasks until the last of them runs; and 500 jobs at once; beside Slurm.

The four programs are first_stamp.cpp, two on each of two hosts. They are submitted in two ways, in turns: by a client that is connected
already (submit_files.cpp), counted from its request, which is what a cluster's own log of "submitted" and "running" shows and less than
it does, since the programs' own starts are in it; and by `dtrainctl submit`, counted from before it is started. `srun` of four tasks on
two of Slurm's three nodes on this machine (slurm.py) is beside the second.

The 500 jobs of one task are submitted over one connection (submit_many.cpp), at an agent that does not coordinate: how many a second are
finished. Their program is `true`; the same again with no_op.cpp, since dynamic linking may cost more than a job does. Slurm's are one
array of 500 batch jobs, until nine of ten are finished: now and then it takes two minutes to launch the last.
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
HOSTS = 2                   # that the four are on
WARM_UP = 2                 # not counted: page cache, first-time paths
NO_OP = os.path.join(harness.BIN, "no_op")
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

        self.cpus = "%dm" % (1000 * members[0].ask("nodes")[0]["cpus"]["total"] * HOSTS // TASKS)
        self.client = subprocess.Popen([os.path.join(harness.BIN, "submit_files"), self.other.socket],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def four(self):
        """By dtrainctl."""
        name, job = self.job()
        since = time.monotonic_ns()
        client = subprocess.Popen(self.other.ctl_command("submit", job), stdout=subprocess.DEVNULL)
        elapsed, _ = last_start(self.stamps, since, TASKS)
        common.need(client.wait(harness.PATIENCE) == 0, "dtrainctl submit failed")
        self.clear(name)
        return elapsed

    def four_by_request(self):
        """To the last start, and to the acknowledgement."""
        name, job = self.job()
        print(job, file=self.client.stdin, flush=True)
        sent, acknowledged = map(int, self.client.stdout.readline().split())
        elapsed, _ = last_start(self.stamps, sent, TASKS)
        self.clear(name)
        return elapsed, (acknowledged - sent) / 1e6

    def job(self):
        """Of which two tasks fit on a host."""
        self.number += 1
        name = "four-%d" % self.number
        command = [os.path.join(harness.BIN, "first_stamp"), self.stamps.path]
        role = {"replicas": TASKS, "command": command, "resources": {"cpus": self.cpus}}
        return name, self.bench.job_file(name, {"worker": role}, policy={"placement": "pack"})

    def clear(self, name):
        hosts = {task["node"] for task in common.tasks_of(self.other, name).values()}
        common.need(len(hosts) == HOSTS, "the tasks are on " + ", ".join(hosts))
        common.remove(self.other, name)

    def many(self, count, program):
        """Acknowledged and finished, a second."""
        done = subprocess.run([os.path.join(harness.BIN, "submit_many"), self.other.socket, str(count), program],
                              capture_output=True, text=True)
        common.need(done.returncode == 0, done.stderr.strip())
        return [count / (int(word) / 1e6) for word in done.stdout.split()]


class Peer:
    def __init__(self, bench):
        self.slurm, self.stamps = Slurm(bench), Stamps(bench.path("slurm.stamps"))

    def four(self):
        since = time.monotonic_ns()
        client = self.slurm.run_tasks(TASKS, HOSTS, [os.path.join(harness.BIN, "first_stamp"), self.stamps.path])
        elapsed, _ = last_start(self.stamps, since, TASKS)
        self.slurm.clear(client)
        return elapsed

    def many(self, count, program):
        """Finished, a second, until nine of ten are."""
        since = time.monotonic()
        self.slurm.submit_many(count, program)
        while (left := self.slurm.unfinished()) > count / 10:
            common.need(time.monotonic() - since < ARRAY_PATIENCE_S, "%d of Slurm's jobs are left after %d s" % (left, ARRAY_PATIENCE_S))
            time.sleep(LOOK_S)
        return (count - left) / (time.monotonic() - since)


def measure(bench, options):
    ours, peer = Ours(bench), Peer(bench) if os.geteuid() == 0 else None
    if peer is None:
        common.say("launch: not root: without Slurm")
    whole, requests, theirs = [], [], []
    for number in range(WARM_UP + (5 if options.quick else 20)):
        turns = [(ours.four, whole), (ours.four_by_request, requests)]
        if peer:
            turns.insert(1, (peer.four, theirs))
        for once, times in turns if number % 2 else reversed(turns):
            elapsed = once()
            if number >= WARM_UP:
                times.append(elapsed)
    count = 100 if options.quick else 500
    acknowledged, finished = ours.many(count, "true")
    _, finished_no_op = ours.many(count, NO_OP)
    slurm = [peer.many(count, "true")] if peer else []
    if peer:
        peer.slurm.end()
    named = "Slurm" if peer else None
    common.report("launch", "submit request to the last of four processes' own start, on two hosts", "ms",
                  [started for started, _ in requests])
    common.report("launch", "submit request to its acknowledgement", "ms", [acknowledged for _, acknowledged in requests])
    common.report("launch", "whole dtrainctl submit to the last of four processes' own start, on two hosts", "ms", whole, named, theirs)
    common.report("launch", "%d one-task jobs of `true` at once: acknowledged" % count, "per second", [acknowledged])
    common.report("launch", "%d one-task jobs of `true` at once: finished" % count, "per second", [finished], named, slurm)
    common.report("launch", "%d one-task jobs of a static program at once: finished" % count, "per second", [finished_no_op])


if __name__ == "__main__":
    sys.exit(common.run(measure, __doc__))
