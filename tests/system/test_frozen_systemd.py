"""Frozen means frozen, of a task that systemd launched: test_frozen.py on a host that is booted with one, on which three agents run.

Where no host can be had it says why and ends with the code for that (docs/testing.md).
"""
import os
import shutil
import signal
import tempfile
import unittest

import agents_lab
import harness
import hosts_lab
import test_frozen
from harness import BIN

AT_MOST = 300 + 2 * test_frozen.FROZEN      # seconds, of all of it
SHARED = "/mnt"                 # the host has it under the same path; in memory, and this test's alone


class Inside(harness.Member):
    """An agent on the host. What is asked of it is asked from outside: its socket has the same path there."""
    leader = None

    def command(self):
        command = super().command()
        at = command.index("--launch")
        return ["nsenter", "--target", str(self.leader), "--all", "--", *command[:at], "--launch", "systemd", *command[at + 2:]]

    def send(self, number):
        """To the agent, the only child of nsenter, which stops with it."""
        with open("/proc/%d/task/%d/children" % (self.process.pid, self.process.pid)) as file:
            for pid in file.read().split():
                os.kill(int(pid), number)
        if number == signal.SIGCONT:
            self.process.send_signal(number)

    def end(self, number=signal.SIGKILL):
        self.send(number)
        return self.process.wait(harness.PATIENCE)


class FrozenBySystemd(test_frozen.Frozen):
    member, h1 = Inside, None

    def setUp(self):
        Inside.leader, self.proc = self.h1.leader, "/proc/%d/root/proc" % self.h1.leader
        super().setUp()

    def send(self, agent, number):
        agent.send(number)

    def launched(self, tree, pids):
        groups = set()
        for pid in pids:
            with open("%s/%d/cgroup" % (tree.proc, pid)) as file:
                groups.add(next(line for line in file if line.startswith("0::")).strip())
        self.assertEqual(len(groups), 1)
        self.assertRegex(groups.pop(), r"/dtrain\.slice/dtrain-[^/]*\.service/task$")
        with open("%s/%s/cgroup" % (tree.proc, tree.field(pids[0], 4))) as file:
            self.assertRegex(file.read(), r"0::.*/dtrain\.slice/dtrain-[^/]*\.service\n")


if __name__ == "__main__":
    directory = hosts_lab.enter(AT_MOST)
    agents_lab.run("mount", "-t", "tmpfs", "-o", "mode=755", "shared", SHARED)
    harness.BIN = os.path.join(SHARED, "bin")
    os.mkdir(harness.BIN)
    for program in ("dtraind", "dtrainctl", "dtrain-shim", "dtrain-discover", "dtrain-rsh"):
        shutil.copy2(os.path.join(BIN, program), harness.BIN)
    tempfile.tempdir = os.environ["TMPDIR"] = SHARED
    FrozenBySystemd.h1, = hosts_lab.Hosts(directory, 1, [SHARED]).begin().hosts
    unittest.main(verbosity=2)
