"""What an agent costs that has nothing to do: memory, CPU, wake-ups; without a job, and with one of five sleeping tasks."""
import os
import sys
import time

import common

TASKS = 5
SETTLE_SECONDS = 3          # what was begun at the start is done by then


def threads(pid):
    """{thread: (nanoseconds on a CPU, times that it waited and was woken)}"""
    found = {}
    for name in os.listdir("/proc/%d/task" % pid):
        place = "/proc/%d/task/%s/" % (pid, name)
        with open(place + "schedstat") as file:
            used = int(file.read().split()[0])
        with open(place + "status") as file:
            found[name] = used, next(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches"))
    return found


def resident_mib(pid):
    with open("/proc/%d/status" % pid) as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS:"))


def look(pid, seconds, what):
    time.sleep(SETTLE_SECONDS)
    before, began = threads(pid), time.monotonic()
    time.sleep(seconds)
    after, passed = threads(pid), time.monotonic() - began
    nanoseconds, wakes = (sum(after[name][field] - before.get(name, (0, 0))[field] for name in after) for field in (0, 1))
    common.report("idle", "resident memory, " + what, "MiB", [resident_mib(pid)])
    common.report("idle", "CPU, " + what, "percent of one core", [nanoseconds / passed / 1e7])
    common.report("idle", "wake-ups of all threads, " + what, "per second", [wakes / passed])


def measure(bench, options):
    seconds = 20 if options.quick else 60
    agent = bench.agent()
    look(agent.process.pid, seconds, "no job")
    agent.do("submit", bench.job_file("sleep", {"worker": {"replicas": TASKS, "command": ["sleep", "1000000"]}}))
    common.wait_for(agent, "sleep", "Running")
    look(agent.process.pid, seconds, "%d sleeping tasks" % TASKS)
    common.remove(agent, "sleep")


if __name__ == "__main__":
    sys.exit(common.run(measure, __doc__))
