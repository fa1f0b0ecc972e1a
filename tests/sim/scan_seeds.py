#!/usr/bin/python3
"""Runs many seeds of one simulated world on all cores, and names every broken one (dtrain-sim stops at the first).

    scan_seeds.py [--sim PROGRAM] [--at-once N] [--seeds FIRST..LAST] -- ARGUMENT...

ARGUMENTs are dtrain-sim's: scan_seeds.py --seeds 1..100000 -- --world council
Broken seeds go to stderr as they are found, with the command that runs each again; so does how far it is, each minute. Last, on
stdout: how many held, and by which program. Exit 0: all held; 1: some did not; 2: could not run.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time

RUN_OF_SEEDS = 64            # of a process: short, so that all cores are busy until the end
TOLD_EVERY = 60              # seconds
MOST_BROKEN = 20             # then a rule is broken, not a seed: no more runs begin
REPLAY = re.compile(r"^replay: .* --seeds (\d+)\.\.\1 ", re.MULTILINE)


class Scan:
    def __init__(self, sim, arguments, seeds):
        self.command = [sim, "--json", *arguments]
        self.seeds = seeds
        self.lock = threading.Lock()
        self.held = 0
        self.virtual_seconds = self.cpu_seconds = 0.0
        self.broken = []
        self.unusable = None  # why dtrain-sim takes none of these arguments
        self.told = self.begun = time.monotonic()

    def over(self):
        return self.unusable is not None or len(self.broken) >= MOST_BROKEN

    def run(self, seeds):
        """All of these seeds, those behind a broken one too."""
        first, last = seeds
        while first <= last and not self.over():
            done = subprocess.run([*self.command, "--seeds", "%d..%d" % (first, last)], capture_output=True, text=True)
            replay = REPLAY.search(done.stderr)
            with self.lock:
                if done.returncode == 2:
                    self.unusable = done.stderr.strip()
                    return
                if done.returncode in (0, 1):  # else the code under test aborted it, before it could tell its figures
                    self.add(json.loads(done.stdout))
                if done.returncode == 0:
                    self.held += last - first + 1
                    self.tell_progress()
                    return
                # It names no seed only if something killed it: then any of these may be the one.
                seed = int(replay.group(1)) if replay else first
                self.held += seed - first
                self.broken.append(seed)
                print(done.stderr.strip() or "%s ended with %d" % (" ".join(done.args), done.returncode), file=sys.stderr, flush=True)
                if not replay:
                    return
                first = seed + 1

    def add(self, figures):
        self.virtual_seconds += figures["virtual_seconds"]
        self.cpu_seconds += figures["cpu_seconds"]

    def tell_progress(self):
        if time.monotonic() - self.told < TOLD_EVERY:
            return
        self.told = time.monotonic()
        print("%d of %d seeds held, %d broke, %d s" % (self.held, self.wanted(), len(self.broken), self.told - self.begun),
              file=sys.stderr, flush=True)

    def wanted(self):
        return self.seeds[1] - self.seeds[0] + 1

    def summary(self):
        with open(self.command[0], "rb") as program:
            print_of_it = hashlib.sha256(program.read()).hexdigest()[:16]
        text = "%s, seeds %d..%d: " % (" ".join(self.command[2:]), *self.seeds)
        text += "all %d held" % self.held if self.held == self.wanted() else "%d of %d held" % (self.held, self.wanted())
        if self.broken:
            text += ", broken: %s" % " ".join(map(str, sorted(self.broken)))
        return text + "; %.0f virtual seconds, %.0f per CPU second; %.0f s, dtrain-sim %s" % (
            self.virtual_seconds, self.virtual_seconds / max(self.cpu_seconds, 1e-9), time.monotonic() - self.begun, print_of_it)


def seed_range(text):
    match = re.fullmatch(r"(\d+)\.\.(\d+)", text)
    if not match or int(match.group(1)) > int(match.group(2)):
        raise argparse.ArgumentTypeError("'%s' is no FIRST..LAST" % text)
    return int(match.group(1)), int(match.group(2))


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("--sim", default="build/bin/dtrain-sim", metavar="PROGRAM")
    parser.add_argument("--at-once", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--seeds", type=seed_range, default=(1, 100), metavar="FIRST..LAST")
    parser.add_argument("arguments", nargs="+", metavar="ARGUMENT")
    options = parser.parse_args()
    first, last = options.seeds
    scan = Scan(options.sim, options.arguments, options.seeds)
    runs = [(at, min(at + RUN_OF_SEEDS - 1, last)) for at in range(first, last + 1, RUN_OF_SEEDS)]
    try:
        with concurrent.futures.ThreadPoolExecutor(max(options.at_once, 1)) as workers:
            list(workers.map(scan.run, runs))  # to be told of what they threw
    except OSError as error:
        print("could not run %s: %s; build it (ninja -C build dtrain-sim) or name another with --sim" % (options.sim, error.strerror),
              file=sys.stderr)
        return 2
    if scan.unusable is not None:
        print(scan.unusable, file=sys.stderr)
        return 2
    print(scan.summary())
    return 0 if scan.held == scan.wanted() else 1


if __name__ == "__main__":
    sys.exit(main())
