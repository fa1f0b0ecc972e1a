"""Real agents for tests: started in a temporary directory, spoken to through dtrainctl, and gone afterwards.

Whatever happens to the test (failure, ^C, a kill by ctest), nothing stays behind: a janitor process waits for the test's
end and kills every process that belongs to the directory: agents and shims by their arguments, tasks by NOTIFY_SOCKET in
their environment, daemonised children by what they inherited.
"""
import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = os.environ.get("DTRAIN_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("DTRAIN_BIN") or os.path.join(SOURCE, "build", "bin")
PATIENCE = 30               # seconds a condition may take on a loaded machine before the test fails
FINAL = ("Succeeded", "Failed", "Cancelled")


class Refused(Exception):
    """dtrainctl ended with another code than the test expects."""


# ---- clean-up

def processes_of(directory):
    """Processes that name the directory in arguments or environment, or stand in it; never this one."""
    mark, found = directory.encode(), []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open("/proc/%s/cmdline" % name, "rb") as arguments, open("/proc/%s/environ" % name, "rb") as environment:
                texts = arguments.read(), environment.read(), os.readlink("/proc/%s/cwd" % name).encode()
        except OSError:
            continue        # gone meanwhile, or not ours to look at
        if b"--janitor" not in texts[0] and any(mark in text for text in texts):
            found.append(int(name))
    return found


def names_of(pids):
    """Sorted, of those that are still there."""
    names = []
    for pid in pids:
        with contextlib.suppress(OSError), open("/proc/%d/comm" % pid) as file:
            names.append(file.read().strip())
    return sorted(names)


def standbys(directory):
    """Processes that wait to become an attempt, of the agent whose files are there. What has become one dies no sooner than others."""
    found = []
    for pid in processes_of(directory):
        with contextlib.suppress(OSError), open("/proc/%d/cmdline" % pid, "rb") as arguments, open("/proc/%d/oom_score_adj" % pid) as dies:
            if int(dies.read()) == 1000 and any(word.endswith(b"/dtrain-warm.py") for word in arguments.read().split(b"\0")):
                found.append(pid)
    return found


def only_agents_left(directory, agents=1):
    """Each with the process that forks for it (agent/proc/fork_server.h) and the workers that stage (staging.h); no task, shim or tar."""
    names = [name for name in names_of(processes_of(directory)) if name != "dtraind-stage"]
    return names == agents * ["dtraind"] + agents * ["dtraind-forks"]


def end_processes_of(directory):
    for _ in range(100):    # again and again: a shim may start something between the look and the kill
        found = processes_of(directory)
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(0.05)
    raise RuntimeError("processes of %s do not die: %s" % (directory, processes_of(directory)))


def cgroup_name(tasks):
    """What an agent calls its cgroup: after its tasks directory (agent/proc/shim_runner.cpp)."""
    info = os.stat(tasks)
    return "dtrain-%d-%d" % (info.st_dev, info.st_ino)


def remove_cgroups_of(directory, hierarchy="/sys/fs/cgroup"):
    """What agents that were killed left."""
    names = set()
    for path, below, _ in os.walk(directory):
        if "tasks" in below:
            name = cgroup_name(os.path.join(path, "tasks"))
            names.update((name, name + ".hooks"))
    for path, _, _ in os.walk(hierarchy, topdown=False):
        if names.intersection(path.split("/")):
            try:
                os.rmdir(path)
            except OSError:
                pass        # in use after all, or gone meanwhile


def janitor(directory):
    """Runs as its own process in its own session: waits until the test has ended in whatever way, then cleans up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.read()
    end_processes_of(directory)
    remove_cgroups_of(directory)
    shutil.rmtree(directory, ignore_errors=True)


# ---- conditions

def until(condition, what, seconds=PATIENCE):
    """Polls until the condition gives something true and returns that. Errors on the way are retried."""
    end, why = time.monotonic() + seconds, ""
    while time.monotonic() < end:
        try:
            value = condition()
            if value:
                return value
        except (Refused, OSError, ValueError, KeyError, IndexError, TypeError, StopIteration, subprocess.TimeoutExpired) as error:
            why = "%s: %s" % (type(error).__name__, error)
        time.sleep(0.03)
    raise AssertionError("not within %d s: %s%s" % (seconds, what() if callable(what) else what, why and "; " + why))


def alive(pid):
    """Whether the process lives; a zombie does not."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


# ---- the programs

PORTS_EACH = 500


@functools.cache
def task_ports():
    """The range of ports for the tasks of this process's agents. No test that runs beside it has them: an address of its own is
    not enough, since some programs listen at all addresses (torch's store)."""
    for first in range(20000, 30000, PORTS_EACH):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind("\0dtrain-test-ports-%d" % first)
            claim.detach()          # the process keeps it until it ends
            return "%d-%d" % (first, first + PORTS_EACH - 1)
        except OSError:
            claim.close()
    raise AssertionError("every range of ports is in use by another test")


class Agent:
    """One dtraind with a data directory of its own. `prefix` goes in front of its command."""

    def __init__(self, top, name, ip, *options, prefix=()):
        self.name, self.ip, self.top = name, ip, top
        self.directory = os.path.join(top, name)
        self.data, self.run = os.path.join(self.directory, "data"), os.path.join(self.directory, "run")
        self.socket = os.path.join(self.run, "control.sock")
        self.log_path = os.path.join(self.directory, "agent.log")
        self.options, self.prefix, self.process = list(options), list(prefix), None
        os.makedirs(self.directory, exist_ok=True)

    def command(self):
        root = ["--set", "tasks.allowRoot=true"] if os.geteuid() == 0 else []
        return [*self.prefix, os.path.join(BIN, "dtraind"), "--name", self.name, "--cluster", "test", "--data-dir", self.data,
                "--run-dir", self.run, "--listen", self.ip + ":7400", "--advertise", self.ip, "--launch", "direct", "--found",
                "--set", "network.taskPorts=" + task_ports(), *root, *self.options]

    def spawn(self):
        with open(self.log_path, "a") as log:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def start(self):
        """Starts it and waits until it answers."""
        self.spawn()
        until(self.answers, lambda: "an answer of the agent; its log ends:\n" + self.log()[-2000:])
        return self

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError("the agent ended with %d; its log ends:\n%s" % (self.process.returncode, self.log()[-2000:]))
        return self.ctl("status", timeout=10).returncode == 0

    def end(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def log(self):
        try:
            with open(self.log_path, errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def ctl(self, *arguments, timeout=60, text=True, stdin=None):
        """dtrainctl as a person calls it; the test judges the result."""
        return subprocess.run(self.ctl_command(*arguments), capture_output=True, text=text, timeout=timeout, input=stdin or
                              ("" if text else b""), errors="replace" if text else None)

    def ctl_command(self, *arguments):
        return [os.path.join(BIN, "dtrainctl"), "--agent", self.socket, *arguments]

    def ask(self, *arguments):
        """The JSON answer of a call that must succeed."""
        done = self.ctl("-o", "json", *arguments)
        if done.returncode != 0:
            raise Refused("dtrainctl %s: exit %d: %s" % (" ".join(arguments), done.returncode, done.stderr.strip()))
        return json.loads(done.stdout)

    def do(self, *arguments):
        """The text output of a call that must succeed."""
        done = self.ctl(*arguments)
        if done.returncode != 0:
            raise Refused("dtrainctl %s: exit %d: %s" % (" ".join(arguments), done.returncode, done.stderr.strip()))
        return done.stdout


class Member(Agent):
    """One of several agents with a key, made by make_key(). `joins`: the addresses of --join; none: it founds the cluster."""

    def __init__(self, top, name, ip, key, joins=(), cluster="test"):
        super().__init__(top, name, ip)
        self.key, self.joins, self.cluster = key, list(joins), cluster

    def command(self):
        found = ["--join", ",".join(self.joins)] if self.joins else ["--found"]
        key = ["--key-file", self.key] if self.key else []
        return [os.path.join(BIN, "dtraind"), "--name", self.name, "--cluster", self.cluster, "--data-dir", self.data,
                "--run-dir", self.run, "--listen", self.ip + ":7400", "--advertise", self.ip, "--launch", "direct",
                "--set", "tasks.allowRoot=true", "--set", "network.taskPorts=" + task_ports(), *key, *found, *self.options]

    def nodes(self):
        return {node["name"]: node for node in self.ask("nodes")}

    def states(self):
        return {name: node["state"] for name, node in self.nodes().items()}

    def events(self):
        return [json.loads(line) for line in self.do("-o", "json", "events").splitlines()]

    def saw(self, type, node, **more):
        """How often an event of this type and node stands in the agent's log."""
        lines = [line for line in self.log().splitlines() if " event=%s node=%s " % (type, node) in line + " "]
        return sum(all(" %s=%s" % item in line for item in more.items()) for line in lines)


def make_key(path):
    subprocess.run([os.path.join(BIN, "dtrainctl"), "keygen", path], check=True, capture_output=True)
    return path


class SystemTest(unittest.TestCase):
    """One agent per test, already answering; `agent_options` are added to its command."""
    agent_options = ()

    @classmethod
    def setUpClass(cls):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))     # so that clean-ups run

    def setUp(self):
        self.top = tempfile.mkdtemp(prefix="dtrain-test-")
        cleaner = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--janitor", self.top], stdin=subprocess.PIPE,
                                   start_new_session=True)
        self.addCleanup(lambda: (cleaner.stdin.close(), cleaner.wait()))
        # Own loopback address per test process: several run at once, and the ports are the same.
        number = os.getpid() * 7 % 64000
        self.ip = "127.%d.%d.%d" % (20 + (os.getpid() // 9000) % 200, number // 250, 1 + number % 250)
        self.agent = Agent(self.top, "n1", self.ip, *self.agent_options)
        self.addCleanup(self._end_agent)
        self.start()

    def start(self):
        self.agent.start()

    def _end_agent(self):
        if self.agent.process is not None and self.agent.process.poll() is None:
            self.agent.end()
        result = self._outcome.result
        if any(test.id().startswith(self.id()) for test, _ in result.failures + result.errors):
            print("---- %s: the agent's log ends:\n%s" % (self.id(), self.agent.log()[-3000:]), file=sys.stderr)

    # -- files

    def path(self, *parts):
        return os.path.join(self.top, *parts)

    def write(self, name, text):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        return path

    def lines(self, name):
        """Lines that tasks have appended to a file so far."""
        try:
            with open(self.path(name)) as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []

    # -- jobs

    def job_file(self, name, roles, **spec):
        """A job file (JSON is YAML). Roles: {name: {replicas, command, ...}}."""
        document = {"apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": name},
                    "spec": {"framework": spec.pop("framework", "generic"), "roles": roles, **spec}}
        return self.write("jobs/%s.yaml" % name, json.dumps(document, indent=1))

    def submit(self, name, roles, **spec):
        return self.agent.ask("submit", self.job_file(name, roles, **spec))

    def job(self, name):
        return next(job for job in self.agent.ask("jobs") if job["name"] == name)

    def tasks(self, name):
        return {task["task"]: task for task in self.agent.ask("tasks", name)}

    def events(self, *arguments):
        done = self.agent.ctl("-o", "json", "events", *arguments)
        if done.returncode != 0:
            raise Refused(done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def event_types(self, name):
        return [event["type"] for event in self.events(name)]

    def wait_job(self, name, state, seconds=PATIENCE):
        """Until the job is in the state. Another final state fails at once."""
        def reached():
            job = self.job(name)
            if job["state"] in FINAL and job["state"] != state:
                raise AssertionError("job %s is %s, not %s: %s" % (name, job["state"], state, job["reason"]))
            return job["state"] == state and job
        return until(reached, lambda: "job %s %s; it is %s" % (name, state, self.job(name)), seconds)

    def wait_task(self, name, task, seconds=PATIENCE, **values):
        """Until the task's JSON has these values, as in wait_task("j", "ps-0", state="Running", attempt=2)."""
        def reached():
            found = self.tasks(name)[task]
            return all(found[key] == value for key, value in values.items()) and found
        return until(reached, lambda: "%s of %s with %s; it is %s" % (task, name, values, self.tasks(name).get(task)), seconds)

    def kill_task(self, name, task):
        """kill -9 of the task's own process; returns what `tasks` said of it before."""
        found = self.wait_task(name, task, state="Running")
        os.kill(found["pid"], signal.SIGKILL)
        return found


def sh(script):
    return ["sh", "-c", script]


def python(script):
    return ["/usr/bin/python3", "-u", "-c", script]


SLEEP = ["sleep", "1000000"]


def main():
    unittest.main(module="__main__", verbosity=2)


if __name__ == "__main__" and sys.argv[1:2] == ["--janitor"]:
    janitor(sys.argv[2])
