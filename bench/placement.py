"""CPU time of placing one job on 10,000 hosts while 1,000 jobs run, of one decision of the queue, and memory (placement_cost.cpp)."""
import os
import subprocess
import sys

import common

# (placement_cost's name, what it is)
ROWS = (("ps-worker-10", "placing 10 workers, 1 ps and a chief"), ("ps-worker-1000", "placing 1,000 workers, 51 ps and a chief"),
        ("ranks-10", "placing a collective job of 10"), ("ranks-1000", "placing a collective job of 1,000"),
        ("refused", "finding that and why a job does not fit"),
        ("decision-first", "a decision of the queue over 1,000 waiting jobs, the first with a new reservation"),
        ("decision-next", "the next decision"))


def measure(bench, options):
    rounds = 3 if options.quick else 20
    program = os.path.join(common.harness.BIN, "placement_cost")
    done = subprocess.run([program, "10000", "1000", str(rounds)], capture_output=True, text=True, check=True)
    samples = {}
    for line in done.stdout.splitlines():
        name, value = line.split()
        samples.setdefault(name, []).append(float(value))
    common.need("did not fit" not in done.stderr, "a job did not fit: " + done.stderr)
    for name, what in ROWS:
        common.report("placement", what, "ms CPU", [us / 1000 for us in samples[name]])
    common.report("placement", "memory of 10,000 hosts and 1,000 jobs", "MiB", [samples["memory"][0] / 2**20])


if __name__ == "__main__":
    sys.exit(common.run(measure, __doc__))
