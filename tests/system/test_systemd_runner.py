"""Tasks launched through systemd, on a host that is booted with one: the suite that every launcher passes, and what only a unit does
(tests/conformance/systemd/).

Where no host can be had it says why and ends with the code for that (docs/testing.md).
"""
import glob
import os
import shutil
import subprocess
import unittest

import hosts_lab
from harness import BIN, main, until

AT_MOST = 500       # seconds, of all of it
SUITE = 450         # of the suite; every wait in it has a bound of its own
PLACE = "/opt/dtrain-test"


class SystemdRunner(unittest.TestCase):
    hosts = h1 = None

    def test_the_suite(self):
        for program in ("systemd_suite", "dtrain-shim", "dtrain-warm.py", *glob.glob("warm_*.py", root_dir=BIN)):
            os.makedirs(self.h1.path(PLACE), exist_ok=True)
            shutil.copy2(os.path.join(BIN, program), self.h1.path(PLACE, program))
        inside = ["nsenter", "--target", str(self.h1.leader), "--all", "--"]
        done = subprocess.run([*inside, PLACE + "/systemd_suite", "--gtest_brief=1"], capture_output=True,
                              text=True, errors="replace", timeout=SUITE)
        self.assertEqual(done.returncode, 0, done.stdout[-6000:] + done.stderr[-2000:])
        self.assertRegex(done.stdout, r"PASSED  \] \d\d+ tests")
        # Nothing of it stays behind, once systemd has seen the last one end: neither services nor groups of theirs.
        for left in (["systemctl", "list-units", "--all", "--plain", "--no-legend", "dtrain-*.service"],
                     ["find", "/sys/fs/cgroup", "-type", "d", "-name", "dtrain-*.service"]):
            until(lambda: self.h1.does(*left) == "", lambda: "nothing to be left: %s" % self.h1.does(*left))


if __name__ == "__main__":
    SystemdRunner.hosts = hosts_lab.Hosts(hosts_lab.enter(AT_MOST), 1).begin()
    SystemdRunner.h1, = SystemdRunner.hosts.hosts
    main()
