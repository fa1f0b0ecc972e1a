"""A thousand submits in a row and two hundred at once, while status is asked for every 20 ms over a connection of its own.

No submit may be lost, job ids follow the order of submits, every job succeeds, and the agent's memory stops growing.
"""
import json
import os
import subprocess
import sys
import time

import common
from common import need, until

INTERVAL_MS = 20
FLAT_KIB = 6 << 10          # growth over the last two rounds that still counts as flat: 3 KiB a job, what fragmentation explains


class Probe:
    """status_probe.cpp at work; ends with its samples in ms."""

    def __init__(self, agent):
        self.process = subprocess.Popen([os.path.join(common.harness.BIN, "status_probe"), agent.socket, str(INTERVAL_MS)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def end(self):
        printed, _ = self.process.communicate(timeout=common.harness.PATIENCE)
        need(self.process.returncode == 0, "a status was not answered during the storm")
        return [int(line) / 1000 for line in printed.split()]


def resident_kib(agent):
    with open("/proc/%d/status" % agent.process.pid) as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))


def submit_command(bench, agent, name):
    job = bench.job_file(name, {"worker": {"replicas": 1, "command": ["true"]}})
    return agent.ctl_command("-o", "json", "submit", job)


def accepted(returncode, printed, name):
    need(returncode == 0, "submit of %s: exit %d" % (name, returncode))
    answer = json.loads(printed)
    need(answer["name"] == name, "submit of %s was answered with %s" % (name, answer))
    return answer["id"]


def in_a_row(bench, agent, prefix, count):
    """Returns ({name: id}, ms of each submit)."""
    names = ["%s-%d" % (prefix, number) for number in range(count)]
    commands = [submit_command(bench, agent, name) for name in names]
    ids, times = {}, []
    for name, command in zip(names, commands):
        since = time.monotonic()
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60)
        times.append((time.monotonic() - since) * 1000)
        ids[name] = accepted(done.returncode, done.stdout, name)
    order = list(ids.values())
    need(order == sorted(set(order)), "job ids do not follow the order of submits")
    return ids, times


def at_once(bench, agent, prefix, count):
    names = ["%s-%d" % (prefix, number) for number in range(count)]
    commands = [submit_command(bench, agent, name) for name in names]
    clients = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    ids = {}
    for name, client in zip(names, clients):
        printed, _ = client.communicate(timeout=60)
        ids[name] = accepted(client.returncode, printed, name)
    need(len(set(ids.values())) == count, "a job id was given twice")
    return ids


def all_succeed(agent, ids):
    def settled():
        jobs = {job["name"]: job for job in agent.ask("jobs")}
        return all(job["state"] in common.harness.FINAL for job in jobs.values()) and jobs
    jobs = until(settled, "the end of all jobs", 300)
    lost = [name for name in ids if name not in jobs]
    need(not lost, "%d jobs are lost, among them %s" % (len(lost), lost[:3]))
    other = [job for name, job in jobs.items() if job["state"] != "Succeeded" or job["id"] != ids[name]]
    need(not other, "not as submitted: %s" % other[:3])


def forget(agent, ids):
    for name in ids:
        agent.do("delete", name)
    until(lambda: not agent.ask("jobs"), "the deletion of all jobs")


def measure(bench, options):
    many, burst = (200, 50) if options.quick else (1000, 200)
    agent = bench.agent()
    memory = [resident_kib(agent)]
    idle = Probe(agent)
    time.sleep(1)
    common.report("storm", "status while idle", "ms", idle.end())

    probe = Probe(agent)
    ids, times = in_a_row(bench, agent, "row", many)
    common.report("storm", "status during submits in a row", "ms", probe.end())
    common.report("storm", "dtrainctl submit, in a row", "ms", times)
    probe = Probe(agent)
    ids.update(at_once(bench, agent, "burst", burst))
    common.report("storm", "status during %d submits at once" % burst, "ms", probe.end())
    all_succeed(agent, ids)
    memory.append(resident_kib(agent))
    forget(agent, ids)
    # The kept events fill up meanwhile (common/base/limits.h, kKeptEvents): only the rounds after that can be flat.
    for number in range(2 if options.quick else 3):
        ids, _ = in_a_row(bench, agent, "round-%d" % number, many)
        all_succeed(agent, ids)
        memory.append(resident_kib(agent))
        forget(agent, ids)
    for when, value in zip(("before", "after the storm", *("after %d more" % (many * (n + 1)) for n in range(len(memory)))), memory):
        common.report("storm", "resident memory of the agent, " + when, "MiB", [value / 1024])
    grown = memory[-1] - memory[-3]
    need(options.quick or grown < FLAT_KIB, "the agent grew by %d KiB over the last %d submits" % (grown, 2 * many))


if __name__ == "__main__":
    sys.exit(common.run(measure, __doc__))
