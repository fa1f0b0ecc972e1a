"""The harness itself: whatever happens to a test, none of its processes or files stays behind."""
import os
import signal
import subprocess
import sys
import tempfile
import unittest

from harness import PATIENCE, alive, cgroup_name, main, processes_of, remove_cgroups_of, until

# A test process that starts two stubborn processes in its directory, says so, and hangs.
HANGS = """
import subprocess, sys, tempfile, time
sys.path.insert(0, %r)
import harness
class Hanging(harness.SystemTest):
    def start(self):
        for extra in ({}, {"start_new_session": True}):
            subprocess.Popen(["sh", "-c", "trap '' TERM INT HUP; cd %%s; while :; do sleep 0.05; done" %% self.top], **extra)
        harness.until(lambda: len(harness.processes_of(self.top)) >= 2, "both")
        print(self.top, flush=True)
    def test(self):
        time.sleep(1e6)
harness.unittest.main(module="__main__")
"""


class Harness(unittest.TestCase):
    def hanging(self):
        script = HANGS % os.path.dirname(os.path.abspath(__file__))
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        top = process.stdout.readline().strip()
        self.assertGreaterEqual(len(processes_of(top)), 2)
        return process, top

    def test_clean_up_after_every_kind_of_end(self):
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            with self.subTest(number):
                process, top = self.hanging()
                process.send_signal(number)
                process.wait(PATIENCE)
                until(lambda: not processes_of(top) and not os.path.exists(top), lambda: "nothing left: %s" % processes_of(top))

    def test_cgroups_of_killed_agents_go(self):
        with tempfile.TemporaryDirectory() as top, tempfile.TemporaryDirectory() as hierarchy:
            tasks = os.path.join(top, "a", "data", "tasks")
            os.makedirs(tasks)
            os.makedirs(os.path.join(hierarchy, cgroup_name(tasks), "1.1.worker-0", "task"))
            os.makedirs(os.path.join(hierarchy, cgroup_name(tasks) + "0"))
            remove_cgroups_of(top, hierarchy)
            self.assertEqual(os.listdir(hierarchy), [cgroup_name(tasks) + "0"])

    def test_until(self):
        self.assertEqual(until(iter([0, "", "yes"]).__next__, "a value"), "yes")
        with self.assertRaisesRegex(AssertionError, "the moon; OSError: away"):
            def fails():
                raise OSError("away")
            until(fails, "the moon", seconds=0.1)

    def test_a_zombie_is_not_alive(self):
        process = subprocess.Popen(["true"])
        until(lambda: not alive(process.pid), "the end")
        process.wait()


if __name__ == "__main__":
    main()
