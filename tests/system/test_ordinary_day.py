"""A day in the life of a small cluster: three agents and ten jobs, while operators and users do what they do every day. Hosts are stopped
in order and come back, agents are stopped and started anew, a disk is filled and freed, ports are taken, jobs are suspended, scaled,
deleted and submitted again under the same names. Nothing of that is a fault of any job: each has backoffLimit 0, and none may fail. It
runs in a mount namespace of its own, where each agent has a small disk.

At the end every job runs, no budget was spent, no line of a log is missing or there twice, and whatever `describe` said of a job when
the cluster was calm was true.

DTRAIN_DAY_SECONDS: how long (default 60; tests/run.sh --soak: 1800). DTRAIN_SEED: the seed of an earlier run, which prints it.
"""
import collections
import itertools
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

import harness
import test_hosts
from harness import alive, processes_of, until

DAY_S = int(os.environ.get("DTRAIN_DAY_SECONDS", "60"))
SEED = int(os.environ.get("DTRAIN_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
CALM_S = 20                     # after a disturbance, what is said of jobs may be on its way for so long
PATIENCE = 120
INSIDE = "DTRAIN_DAY_INSIDE"    # set in the mount namespace
DISK, LEFT = "128m", 8 << 20    # what each agent has for its data, and what is left of that when it is filled: below MIN_FREE
MIN_FREE = "16Mi"
TAKEN_PORTS = 100               # behind the last one that is in use

# Prints numbered lines, each noted in a file once it is in the pipe. A task that leaves since its peer is gone ends with 1, as trainers do.
TRAIN = r'''
import os, socket, sys, threading, time
said = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
role, peer = os.environ["DTRAIN_TASK"].rsplit("-", 1)[0], sys.argv[2] if len(sys.argv) > 2 else ""
def serve():
    host, port = os.environ["MY_ADDRESS"].rsplit(":", 1)
    listener = socket.socket(); listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, int(port))); listener.listen(64)
    kept = []
    while True:
        kept.append(listener.accept()[0])
def watch():
    for _ in range(200):
        try:
            host, port = peer.rsplit(":", 1)
            connection = socket.create_connection((host, int(port)), 1)
            connection.settimeout(None)
            break
        except OSError:
            time.sleep(0.05)
    else:
        os._exit(1)
    try:
        connection.recv(1)
    except OSError:
        pass
    os._exit(1)
if role == "ps":
    threading.Thread(target=serve, daemon=True).start()
elif peer:
    threading.Thread(target=watch, daemon=True).start()
number = 0
while True:
    line = "%s %d %d\n" % (os.environ["DTRAIN_TASK"], os.getpid(), number)
    os.write(1, line.encode()); os.write(said, line.encode())
    number += 1
    time.sleep(0.1)
'''


class OrdinaryDay(test_hosts.Hosts):
    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)
        print("DTRAIN_SEED=%d" % SEED, flush=True)
        self.train = self.write("train.py", TRAIN)
        script = "#!/bin/bash\nexport OMP_NUM_THREADS=1\npython3 %s \"$@\"\necho ended with $?\nexit 1\n"
        self.wrapper = self.write("run.sh", script % self.train)
        os.chmod(self.wrapper, 0o755)
        self.disturbed = time.monotonic()
        self.untrue, self.sampled, self.over = [], collections.Counter(), threading.Event()
        self.deletions = collections.Counter()
        self.desired = {}       # (job, role): replicas
        self.suspended = set()
        self.lost_hosts = 0     # jobs that ended for it

    def make(self, *arguments, **options):
        agent = super().make(*arguments, **options)
        os.makedirs(agent.data)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=" + DISK, "disk", agent.data], check=True)
        self.addCleanup(subprocess.run, ["umount", "--lazy", agent.data], check=True)
        agent.options += ["--set", "storage.minFree=" + MIN_FREE]
        return agent

    def command(self, name, *more):
        program = self.wrapper if name.endswith("wrapped") else None
        return [*([program] if program else ["python3", self.train]), self.path("said-" + name), *more]

    def day_job(self, name):
        policy = {"backoffLimit": 0, "placement": "spread", "stopGracePeriod": "5s"}
        if name.startswith("ps"):
            peer = ["{host:ps:0}"]
            env = {"MY_ADDRESS": "{task.address}"}
            roles = {"ps": {"replicas": 1, "command": self.command(name), "env": env},
                     "chief": {"command": self.command(name, *peer), "env": env},
                     "worker": {"replicas": 2, "command": self.command(name, *peer), "env": env}}
            return self.job_file(name, roles, framework="tensorflow", policy=policy)
        self.desired.setdefault((name, "worker"), 3)
        return self.job_file(name, {"worker": {"replicas": self.desired[name, "worker"], "command": self.command(name)}}, policy=policy)

    # ---- what people do

    def disturb(self):
        self.disturbed = time.monotonic()

    def any_agent(self):
        return self.random.choice([a for a in self.agents if a.process.poll() is None])

    def stop_host_in_order(self):
        """As a host's shutdown does: the shims hear of it, then their tasks; then the agent is stopped. It is back in some seconds."""
        agent = self.random.choice(self.agents)
        shims = [pid for pid in processes_of(agent.directory) if harness.names_of([pid]) == ["dtrain-shim"]]
        for pid in shims:
            os.kill(pid, signal.SIGTERM)
        all_tasks = [t for name in self.names for t in self.tasks_at(self.any_agent(), name).values()]
        for pid in [t["pid"] for t in all_tasks if t["node"] == agent.name and t["pid"]]:
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
        agent.end(signal.SIGTERM)
        time.sleep(self.random.uniform(0.2, 1.5))      # who is away for longer is lost, and that is a restart: not on a slow machine, too
        agent.start()

    def upgrade_agent(self):
        agent = self.random.choice(self.agents)
        agent.end(signal.SIGTERM)
        time.sleep(self.random.uniform(0.1, 5))
        agent.start()

    def suspend_and_resume(self):
        name = self.random.choice(self.names)
        self.any_agent().do("suspend", name)
        self.suspended.add(name)
        until(lambda: self.job_at(self.any_agent(), name)["state"] == "Suspended", name + " to be suspended", PATIENCE)
        self.disturb()
        self.any_agent().do("resume", name)
        self.suspended.discard(name)

    def scale(self):
        name = self.random.choice([n for n in self.names if not n.startswith("ps")])
        self.desired[name, "worker"] = self.random.choice([2, 3, 4])
        self.any_agent().do("scale", name, "worker=%d" % self.desired[name, "worker"])

    def delete_and_submit_again(self):
        name = self.random.choice([n for n in self.names if n not in self.kept])
        self.any_agent().do("delete", name, "--force")
        self.deletions[name] += 1
        self.any_agent().do("submit", self.day_job(name))

    def node_at(self, name):
        return next(node for node in self.any_agent().ask("nodes") if node["name"] == name)

    def fill_a_disk(self):
        """Meanwhile a job is begun anew; then there is room again."""
        agent = self.random.choice(self.agents)
        room = os.statvfs(agent.data)
        fill = os.path.join(agent.data, "fill")
        with open(fill, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize - LEFT)
        until(lambda: not self.node_at(agent.name)["schedulable"], agent.name + " to take nothing more", PATIENCE)
        name = self.random.choice(self.names)
        self.any_agent().do("restart", name)
        until(lambda: all(t["node"] != agent.name for t in self.tasks_at(self.any_agent(), name).values()),
              name + " to leave " + agent.name, PATIENCE)
        self.all_run()
        os.remove(fill)
        until(lambda: self.node_at(agent.name)["schedulable"], agent.name + " to take tasks again", PATIENCE)

    def take_ports(self):
        """Those that the host would give next; a job that is begun anew has others. Tasks of the ps jobs alone have ports."""
        agent = self.random.choice(self.agents)
        used = [int(t["address"].rsplit(":", 1)[1]) for name in self.names for t in self.tasks_at(self.any_agent(), name).values()
                if t["node"] == agent.name and ":" in t["address"]]
        held = []
        for port in range(max(used, default=20000) + 1, max(used, default=20000) + 1 + TAKEN_PORTS):
            held.append(socket.socket())
            try:
                held[-1].bind((agent.ip, port))
                held[-1].listen()
            except OSError:
                pass            # it is in use
        try:
            self.any_agent().do("restart", self.random.choice([n for n in self.names if n.startswith("ps")]))
            self.disturb()
            self.all_run()
        finally:
            for each in held:
                each.close()

    # ---- what is said of jobs

    def sample(self):
        for name in itertools.cycle(self.names):
            if self.over.wait(0.3):
                return
            began = time.monotonic()
            if began - self.disturbed < CALM_S:
                continue
            try:
                said = self.agents[0].ask("describe", "job", name)
            except (harness.Refused, ValueError):
                continue
            if self.disturbed > began - CALM_S:
                continue
            self.sampled[name] += 1
            job, dead = said, [t["task"] for t in said["tasks"] if t["state"] == "Running" and not alive(t["pid"])]
            if job["state"] != "Running" or not job["progressing"]["value"]:
                self.untrue.append("%s is said to be %s, %s, and nothing was done to it for %d s" %
                                   (name, job["state"], job["progressing"], CALM_S))
            if dead and self.disturbed < began - CALM_S:
                self.untrue.append("%s of %s are said to run and do not" % (dead, name))

    # ---- the day

    def test_nothing_is_lost_and_nobody_pays_for_others(self):
        self.agents = self.three()
        self.kept = {"ps-0", "plain-0", "gang-0-wrapped"}    # never deleted: their logs are compared, however long the day is
        self.names = ["ps-%d" % i for i in range(3)] + ["plain-%d" % i for i in range(4)] + ["gang-%d-wrapped" % i for i in range(3)]
        for name in self.names:
            self.any_agent().do("submit", self.day_job(name))
        self.all_run()
        sampler = threading.Thread(target=self.sample)
        sampler.start()
        self.addCleanup(lambda: (self.over.set(), sampler.join()))
        deeds = [self.stop_host_in_order, self.upgrade_agent, self.suspend_and_resume, self.scale, self.delete_and_submit_again,
                 self.fill_a_disk, self.take_ports]
        end, done = time.monotonic() + DAY_S, collections.Counter()
        order = itertools.chain(deeds, iter(lambda: self.random.choice(deeds), None))       # each once, then as it comes
        while time.monotonic() < end or len(done) < len(deeds):
            deed = next(order)
            self.disturb()
            deed()
            done[deed.__name__] += 1
            self.disturb()
            self.all_run()
            for name in self.names:
                job = self.job_at(self.agents[0], name)
                self.assertTrue(self.is_of_a_lost_host(job) or job["state"] not in harness.FINAL, job["reason"])
            if self.random.random() < 0.2:
                time.sleep(CALM_S + 3)      # long enough for some samples
        time.sleep(CALM_S + 5)
        self.over.set()
        sampler.join()
        print("did %s; %d descriptions judged" % (dict(done), sum(self.sampled.values())), flush=True)
        self.assertEqual(self.untrue, [])
        self.assertGreater(sum(self.sampled.values()), 5)
        self.no_line_is_lost()

    def is_of_a_lost_host(self, job):
        """A machine without CPU for its agents lets one be taken for dead. That costs a restart, as every loss of a host does, and these
        jobs have none: such a job is submitted again, and how often that may be is bounded."""
        if job["state"] != "Failed" or job["name"] not in self.names or "does not answer" not in job["reason"]:
            return False
        agent = self.agents[0]
        seen = [line for line in agent.do("events").splitlines() if " member." in line or " host." in line]
        print("%s, after %s: %s" % (job["name"], job["reason"], "\n".join(["", *seen[-12:]])), flush=True)
        self.lost_hosts += 1
        self.assertLessEqual(self.lost_hosts, 3 + DAY_S // 300, "hosts were taken for dead again and again")
        agent.do("delete", job["name"], "--force")
        self.deletions[job["name"]] += 1
        agent.do("submit", self.day_job(job["name"]))
        self.disturb()
        return True

    def all_run(self):
        def seen():
            jobs = {job["name"]: job for job in self.agents[0].ask("jobs")}
            for job in jobs.values():
                if self.is_of_a_lost_host(job):
                    return False
                if job["state"] in harness.FINAL and job["name"] in self.names:
                    raise AssertionError("%s is %s: %s" % (job["name"], job["state"], job["reason"]))
            return all(jobs[name]["state"] == "Running" and jobs[name]["progressing"]["value"] for name in self.names)
        until(seen, lambda: "all jobs to run: %s" % [(j["name"], j["state"], j["progressing"], j["reason"])
                                                      for j in self.agents[0].ask("jobs") if j["state"] != "Running"], PATIENCE)

    def no_line_is_lost(self):
        """Of the jobs that were never deleted: what their tasks wrote is in their logs, once each."""
        judged = 0
        for name in self.names:
            if self.deletions[name]:
                continue
            self.agents[0].do("cancel", name)
            until(lambda: all(t["state"] in ("Succeeded", "Failed") for t in self.tasks_at(self.agents[0], name).values()),
                  "the end of " + name)
            logs = collections.Counter(re.findall(r"\S+ \d+ \d+", self.agents[0].do("logs", name, "--attempt", "all")))
            said = [line for line in self.lines("said-" + name) if re.fullmatch(r"\S+ \d+ \d+", line)]
            lost = [line for line in said if not logs[line]]
            # A task that was killed between its two writes has a line in its log alone.
            twice = [line for line, count in logs.items() if count > 1]
            self.assertEqual((lost[:3], len(lost), twice[:3]), ([], 0, []), name)
            judged += len(said)
        self.assertGreater(judged, 100)


if __name__ == "__main__":
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        become_root = [] if os.geteuid() == 0 else ["--map-root-user"]
        os.execvp("unshare", ["unshare", "--mount", *become_root, sys.executable, *sys.argv])
    unittest.main()
