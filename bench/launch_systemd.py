"""What launching a task through systemd costs more than launching it directly: on a host that is booted for it (hosts_lab), from the
order to the task's own first stamp (first_stamp.cpp), by the runners alone (launch_pairs.cpp). Interleaved pairs, with the order changing
from pair to pair.
"""
import os
import shutil
import subprocess
import sys

import common
from common import harness
import hosts_lab

AT_MOST = 600       # seconds, of all of it
PLACE = "/opt/dtrain-bench"
PROGRAMS = ("launch_pairs", "dtrain-shim", "first_stamp")


def measure(lab, options):
    host, = hosts_lab.Hosts(lab, 1).begin().hosts
    os.makedirs(host.path(PLACE, "work"))
    for program in PROGRAMS:
        shutil.copy2(os.path.join(harness.BIN, program), host.path(PLACE, program))
    inside = ["nsenter", "--target", str(host.leader), "--all", "--"]
    # As a service, which has groups of its own to put tasks into directly, as the agent's has.
    done = subprocess.run([*inside, "systemd-run", "--quiet", "--wait", "--pipe", "--property=Delegate=yes", PLACE + "/launch_pairs",
                           PLACE + "/dtrain-shim", PLACE + "/work", PLACE + "/first_stamp", "5" if options.quick else "40"],
                          capture_output=True, text=True, timeout=AT_MOST)
    common.need(done.returncode == 0, done.stderr.strip())
    pairs = [tuple(map(float, line.split())) for line in done.stdout.splitlines()]
    common.report("launch", "order to a task's first act, through systemd", "ms", [pair[1] for pair in pairs],
                  "launched directly", [pair[0] for pair in pairs])
    common.report("launch", "through systemd, more than directly, of each pair", "ms", [pair[1] - pair[0] for pair in pairs])


if __name__ == "__main__":
    LAB = hosts_lab.enter(AT_MOST)
    sys.exit(common.run(lambda _, options: measure(LAB, options), __doc__))
