"""Three agents, idle: from before a job of four tasks is submitted until the last of them runs; and 500 jobs at once.

The four programs are first_stamp.cpp, placed on all three hosts. The 500 jobs of one task are submitted over one connection
(submit_many.cpp), at an agent that does not coordinate: how many a second are finished.
"""
import os
import subprocess
import sys
import time

import common
import failover
from common import harness, until
from restart import Stamps
from submit import last_start

TASKS = 4
WARM_UP = 2                 # not counted: page cache, first-time paths


def measure(bench, options):
    key = harness.make_key(bench.path("cluster.key"))
    members = []
    for number in range(failover.MEMBERS):
        joins = [failover.ip_of(0)] if number else []
        members.append(bench.keep(harness.Member(bench.top, "a%d" % (number + 1), failover.ip_of(number), key, joins)).start())
    until(lambda: all(node["schedulable"] for node in members[0].ask("nodes")) and len(members[0].ask("nodes")) == len(members),
          "three hosts that take tasks")
    coordinator = members[0].ask("status")["coordinator"]["node"]
    other = next(member for member in members if member.name != coordinator)

    stamps = Stamps(bench.path("stamps"))
    command = [os.path.join(harness.BIN, "first_stamp"), stamps.path]
    times = []
    for number in range(WARM_UP + (5 if options.quick else 20)):
        name = "four-%d" % number
        job = bench.job_file(name, {"worker": {"replicas": TASKS, "command": command}}, policy={"placement": "spread"})
        since = time.monotonic_ns()
        client = subprocess.Popen(other.ctl_command("submit", job), stdout=subprocess.DEVNULL)
        elapsed, _ = last_start(stamps, since, TASKS)
        common.need(client.wait(harness.PATIENCE) == 0, "dtrainctl submit failed")
        hosts = {task["node"] for task in common.tasks_of(other, name).values()}
        common.need(len(hosts) > 1, "all tasks are on " + ", ".join(hosts))
        if number >= WARM_UP:
            times.append(elapsed)
        common.remove(other, name)
    common.report("launch", "submit to the last of four processes' own start, on three hosts", "ms", times)

    count = 100 if options.quick else 500
    done = subprocess.run([os.path.join(harness.BIN, "submit_many"), other.socket, str(count)], capture_output=True, text=True)
    common.need(done.returncode == 0, done.stderr.strip())
    acknowledged, finished = (int(word) / 1e6 for word in done.stdout.split())
    common.report("launch", "%d one-task jobs at once: acknowledged" % count, "per second", [count / acknowledged])
    common.report("launch", "%d one-task jobs at once: finished" % count, "per second", [count / finished])


if __name__ == "__main__":
    sys.exit(common.run(measure, __doc__))
