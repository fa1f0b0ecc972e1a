"""tests/sim/scan_seeds.py counts every seed once, whatever becomes of it."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

from harness import BIN, SOURCE, main

SIM = os.path.join(BIN, "dtrain-sim")
SCAN = os.path.join(SOURCE, "tests", "sim", "scan_seeds.py")
# Holds all seeds but 70, which aborts as dtrain-sim does where a CHECK of the code under test fails, and 150, at which
# something kills it.
ABORTS = """#!/usr/bin/python3
import os, signal, sys
first, last = map(int, sys.argv[-1].split(".."))
if first <= 70 <= last:
    print("replay: dtrain-sim --world w --seeds 70..70 --faults all", file=sys.stderr)
    sys.exit(134)
if first <= 150 <= last: os.kill(os.getpid(), signal.SIGKILL)
print('{"virtual_seconds": 1, "cpu_seconds": 1}')
"""


class ScanSeeds(unittest.TestCase):
    def scan(self, *arguments, code):
        done = subprocess.run([sys.executable, SCAN, *arguments], capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_all_held(self):
        done = self.scan("--sim", SIM, "--seeds", "1..200", "--", "--world", "lease", code=0)
        self.assertRegex(done.stdout, r"^--world lease, seeds 1\.\.200: all 200 held; \d+ virtual seconds")

    def test_every_broken_seed_is_named(self):
        last = 100
        broken_rule = ["--world", "lease", "--break", "epoch-fence"]
        one_by_one = [seed for seed in range(1, last + 1)
                      if subprocess.run([SIM, *broken_rule, "--seeds", "%d..%d" % (seed, seed)], capture_output=True).returncode == 1]
        self.assertTrue(2 <= len(one_by_one) < 20, one_by_one)  # or another rule would show more here
        done = self.scan("--sim", SIM, "--seeds", "1..%d" % last, "--", *broken_rule, code=1)
        named = re.search("broken: ([0-9 ]+)", done.stdout).group(1)
        self.assertEqual(named, " ".join(map(str, one_by_one)))
        self.assertIn(": %d of %d held" % (last - len(one_by_one), last), done.stdout)
        self.assertEqual(done.stderr.count("replay: "), len(one_by_one))

    def test_a_run_that_was_aborted_or_killed(self):
        with tempfile.TemporaryDirectory() as top:
            fake = os.path.join(top, "fake-sim")
            with open(fake, "w") as file:
                file.write(ABORTS)
            os.chmod(fake, 0o755)
            done = self.scan("--sim", fake, "--seeds", "1..192", "--", "--world", "w", code=1)
        # The run of 129..192 ended without a word: none of its seeds is known to hold.
        self.assertIn(": 127 of 192 held, broken: 70 129;", done.stdout)
        self.assertIn("--seeds 70..70", done.stderr)
        self.assertIn("ended with -9", done.stderr)

    def test_what_cannot_be_run(self):
        self.assertIn("--list names them", self.scan("--sim", SIM, "--", "--world", "nowhere", code=2).stderr)
        missing = self.scan("--sim", "/nowhere/sim", "--", "--world", "lease", code=2)
        self.assertIn("could not run /nowhere/sim: No such file", missing.stderr)
        self.assertIn("'7..3' is no FIRST..LAST", self.scan("--seeds", "7..3", "--", "--world", "lease", code=2).stderr)


if __name__ == "__main__":
    main()
