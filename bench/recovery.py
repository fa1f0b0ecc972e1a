"""A parameter server of examples/digits is killed: the time until every worker has made its first step afterwards.

Beside naive_supervisor.py, in interleaved pairs, each side alone on the machine while it is measured. The times are the ones
that the workers print themselves. Then once more with the newest checkpoint cut short before the kill: the one before must be
restored, and the training must still end well.
"""
import calendar
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import common
from common import need, until

DIGITS = os.path.join(common.SOURCE, "examples", "digits")
WORKERS = ("worker-0", "worker-1")
STEP = re.compile(r"^(\S+)\.(\d{3})Z step=(\d+) ", re.M)
ACCURACY = re.compile(r"^accuracy=([\d.]+)", re.M)
RATE = 100                  # updates a second of a worker: little enough that computing does not hide the recovery
EVERY = 100                 # updates between checkpoints
ENDLESS = 10_000_000
LOOK_SECONDS = 0.25         # between looks at the logs: looking costs CPU that the recovery needs
FIRST_PORT = 19500          # of the naive supervisor's tasks: outside what the agent gives to its own


def roles(steps, rate, every):
    command = ["/usr/bin/python3", "train.py"]
    return {"ps": {"replicas": 2, "command": command},
            "chief": {"replicas": 1, "command": [*command, "--steps=%d" % steps, "--checkpoint-every=%d" % every]},
            "worker": {"replicas": 2, "command": [*command, "--steps=%d" % steps, "--max-rate=%d" % rate]}}


def copy_of_digits(bench, name):
    """Of each side its own, without compiled files that somebody left there."""
    return shutil.copytree(DIGITS, bench.path(name), ignore=shutil.ignore_patterns("__pycache__"))


def first_step(text):
    """When (seconds since the epoch) the first step was made, according to a worker's output."""
    found = STEP.search(text)
    if not found:
        return None
    return calendar.timegm(time.strptime(found.group(1), "%Y-%m-%dT%H:%M:%S")) + int(found.group(2)) / 1000


def complete(directory):
    """Finished checkpoints, oldest first."""
    try:
        names = [name for name in os.listdir(directory) if re.fullmatch(r"ckpt-\d+", name)]
    except FileNotFoundError:
        return []
    return [os.path.join(directory, name) for name in sorted(names, key=lambda name: int(name[5:]))]


def wait_first_steps(output, since):
    """output(worker): what the worker's new process has printed, or "". Returns ms from `since` to the last first step."""
    end = time.monotonic() + common.harness.PATIENCE
    while time.monotonic() < end:
        time.sleep(LOOK_SECONDS)
        times = [first_step(output(worker)) for worker in WORKERS]
        if all(times):
            need(min(times) > since, "a worker of the new generation made its first step before the kill")
            return (max(times) - since) * 1000
    raise AssertionError("not every worker made a step within %d s" % common.harness.PATIENCE)


class Ours:
    def __init__(self, bench, code):
        self.bench, self.code, self.agent, self.number = bench, code, bench.agent(), 0

    def start(self, steps=ENDLESS, rate=RATE, every=EVERY):
        self.number += 1
        self.name, self.checkpoints = "digits-%d" % self.number, self.bench.path("ours-%d" % self.number)
        self.agent.do("submit", self.bench.job_file(
            self.name, roles(steps, rate, every), framework="tensorflow", package=self.code,
            checkpoint={"dir": self.checkpoints, "format": "manifest"}))
        until(lambda: len(complete(self.checkpoints)) >= 2, "two checkpoints of " + self.name)

    def ps(self):
        return common.tasks_of(self.agent, self.name)["ps-1"]["pid"]

    def output(self, worker):
        if common.job_of(self.agent, self.name)["generation"] != 2:
            return ""
        task = common.tasks_of(self.agent, self.name)[worker]       # of the current generation
        done = self.agent.ctl("logs", self.name, worker, "--attempt", str(task["attempt"]))
        return done.stdout if task["state"] == "Running" and done.returncode == 0 else ""

    def stop(self):
        common.remove(self.agent, self.name)


class Naive:
    def __init__(self, bench, code):
        self.bench, self.code, self.number = bench, code, 0

    def start(self):
        self.number += 1
        self.directory, self.checkpoints = self.bench.path("naive-%d" % self.number), self.bench.path("naive-%d" % self.number, "ckpt")
        os.makedirs(self.checkpoints)
        with open(os.path.join(self.directory, "config.json"), "w") as file:
            json.dump({"directory": self.code, "checkpoints": self.checkpoints, "logs": self.directory, "tasks": self.tasks()}, file)
        self.process = subprocess.Popen([sys.executable, os.path.join(common.HERE, "naive_supervisor.py"), file.name])
        until(lambda: len(complete(self.checkpoints)) >= 2, "two checkpoints of the naive supervisor's training")

    def tasks(self):
        tasks, port, cluster = {}, FIRST_PORT, {}
        wanted = roles(ENDLESS, RATE, EVERY)
        for role, spec in wanted.items():
            cluster[role] = ["127.0.0.1:%d" % (port + index) for index in range(spec["replicas"])]
            port += spec["replicas"]
        for role, spec in wanted.items():
            for index in range(spec["replicas"]):
                config = json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})
                tasks["%s-%d" % (role, index)] = {"command": spec["command"], "environment": {
                    "TF_CONFIG": config, "DTRAIN_CHECKPOINT_DIR": self.checkpoints, "PYTHONUNBUFFERED": "1"}}
        return tasks

    def ps(self):
        with open("/proc/%d/task/%d/children" % (self.process.pid, self.process.pid)) as file:
            return int(file.read().split()[1])              # in the order in which they were started: ps-0, ps-1, ...

    def output(self, worker):
        try:
            with open(os.path.join(self.directory, worker + ".2")) as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def stop(self):
        self.process.terminate()
        self.process.wait(common.harness.PATIENCE)


def once(side):
    side.start()
    pid = side.ps()
    since = time.time()
    os.kill(pid, signal.SIGKILL)
    elapsed = wait_first_steps(side.output, since)
    side.stop()
    return elapsed


def damaged(ours):
    """Returns ms from the kill to the last first step, with the newest checkpoint cut short."""
    ours.start(steps=12000, rate=500, every=1000)
    known = len(complete(ours.checkpoints))
    pid = ours.ps()
    until(lambda: len(complete(ours.checkpoints)) > known, "one more checkpoint")
    *_, before, newest = complete(ours.checkpoints)
    shard = next(name for name in sorted(os.listdir(newest)) if name.startswith("parameters-"))
    os.truncate(os.path.join(newest, shard), os.path.getsize(os.path.join(newest, shard)) // 2)
    since = time.time()
    os.kill(pid, signal.SIGKILL)
    elapsed = wait_first_steps(ours.output, since)
    restored = ours.agent.ask("describe", "job", ours.name)["restored"]
    need(restored and restored["path"] == before, "restored is %s, not %s" % (restored, before))
    events = ours.agent.ctl("-o", "json", "events", ours.name).stdout
    need("checkpoint.damaged" in events, "no event checkpoint.damaged")
    common.wait_for(ours.agent, ours.name, "Succeeded", 120)
    accuracy = float(ACCURACY.search(ours.agent.do("logs", ours.name, "chief-0")).group(1))
    need(accuracy > 0.9, "accuracy is %s after a recovery from the checkpoint before the newest" % accuracy)
    return elapsed


def measure(bench, options):
    common.need_packages("python3-numpy", "python3-sklearn")
    ours, naive = (side(bench, copy_of_digits(bench, name)) for side, name in ((Ours, "code"), (Naive, "naive-code")))
    times = {ours: [], naive: []}
    for pair in range(3 if options.quick else 10):
        for side in ((ours, naive), (naive, ours))[pair % 2]:
            times[side].append(once(side))
    common.report("recovery", "kill -9 of a ps to the last worker's first step", "ms", times[ours], "naive supervisor", times[naive])
    common.report("recovery", "the same, newest checkpoint cut short", "ms", [damaged(ours)])


if __name__ == "__main__":
    sys.exit(common.run(measure, __doc__))
