"""The agent is killed with -9 and started again, again and again, while three tasks count: none of them may notice.

Same processes at the end as at the beginning, no restart counted, every line exactly once and in order in the logs. The figure
is the time from the start of the agent to its first answer, which comes after it has adopted its tasks.
"""
import subprocess
import sys
import time

import common
from common import need

TASKS = 3
COUNT = """
import itertools, os, sys, time
for number in itertools.count():
    print(number)
    if os.path.exists(sys.argv[1]):
        break
    time.sleep(0.002)
"""
ANSWER_SECONDS = 30
LOOK_SECONDS = 0.002


def born(pid):
    """The kernel's start time of the process: a pid that was given anew has another one."""
    with open("/proc/%d/stat" % pid) as file:
        return file.read().rsplit(")", 1)[1].split()[19]


def running(agent):
    return {name: (task["pid"], born(task["pid"])) for name, task in common.tasks_of(agent, "count").items()
            if task["state"] == "Running"}


def restart_agent(agent):
    """Returns ms from the start of the new agent to its first answer."""
    since = time.monotonic()
    agent.spawn()
    command = agent.ctl_command("status")
    while time.monotonic() < since + ANSWER_SECONDS:
        if subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
            return (time.monotonic() - since) * 1000
        need(agent.process.poll() is None, "the agent ended with %s when it was started again" % agent.process.returncode)
        time.sleep(LOOK_SECONDS)
    raise AssertionError("the agent did not answer within %d s" % ANSWER_SECONDS)


def measure(bench, options):
    agent, stop = bench.agent(), bench.path("stop")
    agent.do("submit", bench.job_file("count", {"worker": {
        "replicas": TASKS, "command": ["/usr/bin/python3", "-u", "-c", COUNT, stop]}}))
    common.wait_for(agent, "count", "Running")
    before, times = running(agent), []
    need(len(before) == TASKS, "not all tasks run: %s" % before)
    for number in range(20 if options.quick else 200):
        agent.end()
        times.append(restart_agent(agent))
        now = running(agent)
        need(now == before, "after %d kills the processes are %s, not %s" % (number + 1, now, before))
    bench.write("stop", "")
    job = common.wait_for(agent, "count", "Succeeded")
    need((job["restarts"], job["generation"]) == (0, 1), "restarts %d, generation %d" % (job["restarts"], job["generation"]))
    for name in before:
        printed = agent.do("logs", "count", name).split()
        need(len(printed) > 1 and printed == [str(number) for number in range(len(printed))],
             "%s: a line is missing, doubled or out of order among %d" % (name, len(printed)))
    common.report("agent_kill", "start of the agent to its first answer, %d tasks adopted" % TASKS, "ms", times)


if __name__ == "__main__":
    sys.exit(common.run(measure, __doc__))
