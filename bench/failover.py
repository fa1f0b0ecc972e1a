"""The coordinator of three agents is killed or stopped: until the next submit is acknowledged, beside three etcd members.

Interleaved pairs, with the order changing from pair to pair. A client that is not answered tries again at once, under
another name: a try without an answer may have been committed. etcd is not encrypted (its default), ours is.

    failover.py [--quick] [--pauses SECONDS]
      --pauses   how long random members are stopped for up to 0.8 s, in both clusters alike: how many elections that
                 costs (default 60)

What must hold: no acknowledged submit is lost, no task is touched.
"""
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

import common
from common import harness, until

MEMBERS = 3
GIVE_UP_S = 30
PLAIN = "http:" + "//"      # etcd speaks HTTP, without encryption by default
PEER_TRY_S = 0.3            # etcdctl waits for an answer: longer than an answer takes, far shorter than its own 5 s
LONGEST_PAUSE_S = 0.8
BETWEEN_PAUSES_S = 0.4
SETTLED_S = 2               # a voter that starts again may not vote for up to a second (docs/consensus.md, Lives); nothing shows it
SLOW_MS = 400               # the goal's median: of what takes longer is told how it came about
PHASES = re.compile(r"time=\S+T(\S+)Z .*?(event=(?:member\.(?:suspect|down|dead)|raft-|council\.).*)")


def ip_of(number):
    pid = os.getpid() % 64000
    return "127.%d.%d.%d" % (90 + number, pid // 250, 1 + pid % 250)


def next_taken(attempt):
    """Milliseconds until an attempt succeeds."""
    since = time.monotonic()
    while not attempt():
        common.need(time.monotonic() - since < GIVE_UP_S, "nothing was acknowledged for %d s" % GIVE_UP_S)
    return (time.monotonic() - since) * 1000


class Ours:
    def __init__(self, bench):
        self.bench, self.tries, self.acknowledged, self.changed = bench, 0, [], time.monotonic()
        key = harness.make_key(bench.path("cluster.key"))
        self.members = []
        for number in range(MEMBERS):
            joins = [ip_of(0)] if number else []
            self.members.append(bench.keep(harness.Member(bench.top, "a%d" % (number + 1), ip_of(number), key, joins)).start())
        until(lambda: all(len(self.status(m)["quorum"]["voters"]) == MEMBERS for m in self.members), "three voters")
        self.members[0].do("submit", bench.job_file("long", {"worker": {"replicas": 3, "command": harness.SLEEP}}))
        self.tasks = until(lambda: (t := self.pids()) and len(t) == 3 and all(t.values()) and t, "three tasks")

    def status(self, member):
        return member.ask("status")

    def pids(self):
        return {name: task["pid"] for name, task in common.tasks_of(self.members[0], "long").items() if task["state"] == "Running"}

    def leader(self):
        """All name the same, and all are there."""
        def agreed():
            seen = [self.status(m) for m in self.members]
            named = {(s["coordinator"]["node"], s["coordinator"]["epoch"]) for s in seen}
            everybody = all(s["nodes"]["alive"] == MEMBERS for s in seen)
            return everybody and len(named) == 1 and named.pop()
        name, self.epoch = until(agreed, lambda: "a coordinator of all: %s" % [self.status(m) for m in self.members])
        return next(m for m in self.members if m.name == name)

    def attempt(self, member):
        self.tries += 1
        name = "t%d" % self.tries
        done = member.ctl("submit", self.bench.job_file(name, {"worker": {"replicas": 1, "command": ["true"]}}, suspend=True))
        if done.returncode == 0:
            self.acknowledged.append(name)
        return done.returncode == 0

    def check(self):
        names = {job["name"] for job in self.members[1].ask("jobs")}
        common.need(set(self.acknowledged) <= names, "acknowledged and lost: %s" % sorted(set(self.acknowledged) - names))
        common.need(self.pids() == self.tasks, "tasks were touched: %s, now %s" % (self.tasks, self.pids()))

    def elections(self):
        self.leader()
        return int(self.epoch)


class EtcdMember:
    def __init__(self, bench, number):
        self.bench, self.name, self.ip = bench, "e%d" % (number + 1), ip_of(10 + number)
        self.log_path = bench.path(self.name + ".log")

    def start(self):
        peers = ",".join("e%d=%s%s:2380" % (n + 1, PLAIN, ip_of(10 + n)) for n in range(MEMBERS))
        client, peer = PLAIN + self.ip + ":2379", PLAIN + self.ip + ":2380"
        with open(self.log_path, "a") as log:
            self.process = subprocess.Popen(
                ["etcd", "--name", self.name, "--data-dir", self.bench.path(self.name), "--listen-client-urls", client,
                 "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                 "--initial-cluster", peers, "--initial-cluster-state", "new", "--initial-cluster-token", self.bench.top],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def end(self):
        self.process.kill()
        self.process.wait(harness.PATIENCE)

    def ctl(self, *words, patience=5.0):
        return subprocess.run(["etcdctl", "--endpoints", PLAIN + self.ip + ":2379", "--command-timeout", "%.1fs" % patience,
                               "--dial-timeout", "1s", *words], capture_output=True, text=True,
                              env=dict(os.environ, ETCDCTL_API="3"))


class Etcd:
    def __init__(self, bench):
        self.tries, self.changed = 0, time.monotonic()
        self.members = [EtcdMember(bench, number).start() for number in range(MEMBERS)]
        self.leader()

    def status(self, member):
        return json.loads(member.ctl("endpoint", "status", "-w", "json").stdout)[0]["Status"]

    def leader(self):
        def agreed():
            seen = {m: self.status(m) for m in self.members}
            named = {s["leader"] for s in seen.values()}
            self.term = max(s["raftTerm"] for s in seen.values())
            return len(named) == 1 and next((m for m, s in seen.items() if s["header"]["member_id"] in named), None)
        return until(agreed, "a leader of all etcd members")

    def attempt(self, member):
        self.tries += 1
        return member.ctl("put", "k%d" % self.tries, "v", patience=PEER_TRY_S).returncode == 0

    def elections(self):
        self.leader()
        return self.term

    def stop(self):
        for member in self.members:
            member.end()


def tell_phases(asked, victim, taken, logs, at):
    """For people: what each survivor saw of the fault, and when."""
    text = "%s is gone at %s; %s was asked and took %.0f ms" % (victim.name, time.strftime("%T", time.gmtime(at)) + ("%.3f" % (at % 1))[1:],
                                                                asked.name, taken)
    for member, seen in logs.items():
        text += "".join("\n  %s %s %s" % (member.name, *found) for found in PHASES.findall(member.log()[seen:]))
    common.say(text)


def settle(side):
    """All were started so long ago that they vote: one failure at a time."""
    side.leader()
    time.sleep(max(0, side.changed + SETTLED_S - time.monotonic()))


def restart_another(side):
    victim = side.leader()
    other = next(m for m in side.members if m is not victim)
    other.end()
    other.start()


def fault(side, kill):
    """One coordinator is killed or stopped, and there again afterwards."""
    victim = side.leader()
    other = next(m for m in side.members if m is not victim)
    logs = {m: len(m.log()) for m in side.members if m is not victim} if isinstance(side, Ours) else {}
    at = time.time()
    if kill:
        victim.end()
    else:
        victim.process.send_signal(signal.SIGSTOP)
    taken = next_taken(lambda: side.attempt(other))
    if kill and logs and taken > SLOW_MS:
        tell_phases(other, victim, taken, logs, at)
    if kill:
        victim.start()
    else:
        victim.process.send_signal(signal.SIGCONT)
    side.leader()
    side.changed = time.monotonic()
    return taken


def pause_members(sides, seconds):
    """Elections of each side while the same places are stopped for the same random times."""
    before = [side.elections() for side in sides]
    draw, end = random.Random(4), time.monotonic() + seconds
    while time.monotonic() < end:
        index, pause = draw.randrange(MEMBERS), draw.uniform(0, LONGEST_PAUSE_S)
        stopped = [side.members[index].process for side in sides]
        for process in stopped:
            process.send_signal(signal.SIGSTOP)
        time.sleep(pause)
        for process in stopped:
            process.send_signal(signal.SIGCONT)
        time.sleep(draw.uniform(0, BETWEEN_PAUSES_S))
    return [side.elections() - since for side, since in zip(sides, before)]


def measure(bench, options):
    common.need_packages("etcd-server", "etcd-client")
    ours, peer = Ours(bench), Etcd(bench)
    for what, kill, before, pairs in (
            ("coordinator killed to the next acknowledged submit", True, settle, 30),
            ("coordinator stopped to the next acknowledged submit", False, settle, 20),
            ("coordinator killed as soon as another voter is back, likewise", True, restart_another, 10)):
        times = {ours: [], peer: []}
        for pair in range(3 if options.quick else pairs):
            for side in ((ours, peer), (peer, ours))[pair % 2]:
                before(side)
                times[side].append(fault(side, kill))
        common.report("failover", what, "ms", times[ours], "etcd, leader, etcdctl put", times[peer])
    seconds = 5 if options.quick else options.pauses
    mine, theirs = pause_members((ours, peer), seconds)
    common.report("failover", "elections in %g s of pauses of up to 0.8 s" % seconds, "elections", [mine], "etcd", [theirs])
    ours.check()
    peer.stop()


def more_options(parser):
    parser.add_argument("--pauses", type=float, default=60, metavar="SECONDS", help="of random pauses (default 60)")


if __name__ == "__main__":
    sys.exit(common.run(measure, __doc__, more_options))
