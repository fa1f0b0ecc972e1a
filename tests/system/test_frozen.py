"""Frozen means frozen: a tree of 50 processes with connections among them, while its lease is over.

No process of it does or writes anything; granted again it goes on as it was, processes and connections; superseded it is killed without
one more write. Launched by the agent itself here, by systemd in test_frozen_systemd.py.

DTRAIN_FROZEN_SECONDS: how long it stands still (default 5; tests/run.sh --soak: a minute).
"""
import json
import os
import signal
import time
import unittest

import test_hosts
from harness import until

FROZEN = int(os.environ.get("DTRAIN_FROZEN_SECONDS", "5"))
PROCESSES = 50
PATIENCE = 60                   # seconds for a lease to end, a death to be called one, and a successor, on a loaded machine
# Each process counts, has each count answered by its parent over a connection, and writes it down: all that it is is in the line.
TREE = """
import os, socket, sys, threading, time
PROCESSES, BRANCHES = int(sys.argv[2]), 3
def answer(connection):
    while said := connection.recv(64): connection.sendall(said)
def grow(number, up):
    server = socket.create_server(("127.0.0.1", 0))
    below = range(number * BRANCHES + 1, min(number * BRANCHES + BRANCHES + 1, PROCESSES))
    for child in below:
        if os.fork() == 0: return grow(child, socket.create_connection(server.getsockname()))
    for _ in below: threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()
    out = os.open("%s.%s.%d" % (sys.argv[1], os.environ["DTRAIN_NODE"], number), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    port, count = up.getsockname()[1] if up else 0, 0
    while True:
        count += 1
        if up:
            up.sendall(b"%d" % count)
            if int(up.recv(64)) != count: sys.exit("a wrong answer")
        now = time.monotonic()
        time.sleep(0.05)            # so half of them are frozen between the two
        os.write(out, b"%d %d %d %.6f\\n" % (os.getpid(), port, count, now))
        time.sleep(0.05)
grow(0, None)
"""


class Tree:
    """What the processes of one attempt have written. `proc`: where the /proc is in which they have these numbers."""

    def __init__(self, prefix, proc):
        self.paths = ["%s.%d" % (prefix, number) for number in range(PROCESSES)]
        self.proc = proc

    def sizes(self):
        return [os.stat(path).st_size for path in self.paths]

    def lines(self):
        """Per process its whole lines: (pid, port, count, when)."""
        found = []
        for path in self.paths:
            with open(path) as file:
                lines = [line.split() for line in file if line.endswith("\n")]
            found.append([(int(pid), int(port), int(count), float(at)) for pid, port, count, at in lines])
        return found

    def grown(self):
        return all(os.path.exists(path) for path in self.paths) and all(self.sizes()) and self

    def pids(self):
        return [lines[-1][0] for lines in self.lines()]

    def field(self, pid, number):
        with open("%s/%d/stat" % (self.proc, pid)) as file:
            return file.read().rsplit(")", 1)[1].split()[number - 3]

    def alive(self, pids):
        count = 0
        for pid in pids:
            try:
                count += self.field(pid, 3) not in "ZX"
            except OSError:
                pass
        return count

    def used(self, pids):
        """Processor time of each, in ticks."""
        return [(self.field(pid, 14), self.field(pid, 15)) for pid in pids]

    def still(self, pids):
        """Whether the kernel says that none of them runs."""
        with open("%s/%d/cgroup" % (self.proc, pids[0])) as file:
            group = next((line.rstrip("\n")[3:] for line in file if line.startswith("0::")), "/")
        for hierarchy in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup"):
            try:
                with open(hierarchy + group + "/cgroup.events") as file:
                    if "frozen 1\n" in file.read():
                        return True
            except OSError:
                pass            # no such hierarchy
        return all(self.field(pid, 3) == "T" for pid in pids)       # where no group could be had

    def waited(self, pid):
        """How often the process gave its processor away: grows with each time that it woke up."""
        with open("%s/%d/status" % (self.proc, pid)) as file:
            return next(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches:"))


class Frozen(test_hosts.Hosts):
    proc = "/proc"

    def make(self, *arguments, **options):
        member = super().make(*arguments, **options)
        # An agent that is gone is waited for; a host that says nothing is not.
        member.options = ["--set", "timing.lease=3s", "--set", "timing.downGrace=1s", "--set", "timing.agentGrace=30m"]
        return member

    def send(self, agent, number):
        agent.process.send_signal(number)

    def keeper(self, agent):
        return self.tasks_at(agent, "tree")["keeper-0"]

    def stands_still(self, tree, pids):
        """Until it does. From then on each look must find it so: a function that looks."""
        until(lambda: tree.still(pids), "the tree to stand still", PATIENCE)
        sizes, used = tree.sizes(), tree.used(pids)

        def look():
            self.assertEqual(tree.sizes(), sizes, "something was written")
            self.assertEqual(tree.used(pids), used, "something ran")
            self.assertEqual(tree.alive(pids), PROCESSES, "something ended")
            return True
        return look

    def test_frozen_means_frozen(self):
        agents = self.three()
        agents[0].do("submit", self.write("tree.json", json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": "tree"},
            "spec": {"framework": "generic", "roles": {"keeper": {
                "replicas": 1, "exclusive": True, "command": ["/usr/bin/python3", "-c", TREE, self.path("count"), str(PROCESSES)]}}}})))
        before = self.running(agents[0], "tree", 1)["keeper-0"]
        host = next(agent for agent in agents if agent.name == before["node"])
        other = next(agent for agent in agents if agent is not host)
        tree = Tree(self.path("count." + host.name), self.proc)
        until(tree.grown, "a line of each process", PATIENCE)
        pids = tree.pids()
        self.assertEqual((len(set(pids)), tree.alive(pids), pids[0]), (PROCESSES, PROCESSES, before["pid"]))
        self.launched(tree, pids)

        # Its agent is gone: the shim alone keeps the deadline, and its clock runs on.
        shim = int(tree.field(pids[0], 4))
        self.send(host, signal.SIGKILL)
        host.process.wait()
        look = self.stands_still(tree, pids)
        since, woke = time.monotonic(), tree.waited(shim)
        until(lambda: look() and time.monotonic() - since > FROZEN, "the end of that time", FROZEN + PATIENCE)
        self.assertTrue(tree.still(pids))
        self.assertGreater(tree.waited(shim), woke, "the shim was frozen with it")
        frozen = [lines[-1] for lines in tree.lines()]

        # It returns: still theirs, and all go on where they were. The first line of one may be of before: it was frozen about to write it.
        thawed = time.monotonic()
        host.start()
        until(lambda: all(lines[-1][2] >= last[2] + 3 for lines, last in zip(tree.lines(), frozen)), "each process to go on", PATIENCE)
        for lines, last in zip(tree.lines(), frozen):
            self.assertEqual({(pid, port) for pid, port, _, _ in lines}, {last[:2]}, "another process or connection")
            self.assertEqual([count for _, _, count, _ in lines], list(range(1, len(lines) + 1)))
            self.assertFalse([line for line in lines if since < line[3] < thawed], "it ran")
        until(lambda: self.keeper(host)["state"] == "Running", lambda: "it to be shown running: %s" % self.keeper(host))
        after = self.keeper(host)
        self.assertEqual((after["pid"], after["attempt"], after["node"]), (before["pid"], 1, host.name))
        self.assertEqual(self.job_at(other, "tree")["restarts"], 0)

        # It is silent, as cut off: frozen, superseded, killed as it is.
        until(lambda: all(agent.states() == {a.name: "alive" for a in agents} for agent in agents), "one cluster again", PATIENCE)
        self.send(host, signal.SIGSTOP)
        self.addCleanup(lambda: host.process.poll() is None and self.send(host, signal.SIGCONT))
        look = self.stands_still(tree, pids)
        until(lambda: look() and self.keeper(other)["node"] != host.name and self.keeper(other)["state"] == "Running",
              lambda: "a successor: %s" % self.keeper(other), PATIENCE)
        successor = Tree(self.path("count." + self.keeper(other)["node"]), self.proc)
        until(lambda: look() and successor.grown(), "a line of each process of the successor", PATIENCE)
        last = tree.lines()
        first = min(lines[0][3] for lines in successor.lines())
        self.assertGreater(first, max(lines[-1][3] for lines in last), "both ran")
        sizes = tree.sizes()
        self.send(host, signal.SIGCONT)
        until(lambda: tree.alive(pids) == 0, "the end of what was superseded", PATIENCE)
        self.assertEqual(tree.sizes(), sizes, "it wrote once more")
        gaps = [max(after[3] - before[3] for before, after in zip(lines, lines[1:])) for lines in last]
        print("%d processes: frozen %.2f s and gone on; superseded %.2f s after their last line, and killed without another" %
              (PROCESSES, min(gaps), first - max(lines[-1][3] for lines in last)))

    def launched(self, tree, pids):
        """Whether it was launched the way that is tested."""


if __name__ == "__main__":
    unittest.main(verbosity=2)
