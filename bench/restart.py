#!/usr/bin/python3
"""Worker killed with -9: from the kill to its successor's own first timestamp, ours beside runit's runsv.

Both supervise the same static program (bench/first_stamp.cpp) at the same time, in the same place; the pairs are
interleaved, with the order changing from pair to pair. Prints one JSON line.

    restart.py [--bin DIR] [--pairs N] [--driver | --agent]
      --driver   runner and shim alone (bench/runner_driver.cpp)
      --agent    the real dtraind, with a job whose back-off and thresholds are off (default when it is built)
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

START_BOUND_S = 30      # for a supervisor to come up
SUCCESSOR_BOUND_S = 10  # for a successor to be there: far beyond what any supervisor needs
RUNSV_PAUSE_S = 1.05    # runsv waits a second after a program that lived for less than one
WARM_UP_PAIRS = 10      # not counted: page cache, first-time paths


class Failed(Exception):
    pass


class Stamps:
    """The named pipe that the measured program writes its first act to."""

    def __init__(self, path):
        self.path = path
        os.mkfifo(path, 0o666)
        os.chmod(path, 0o666)
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)  # read-write: never at its end
        self.text = b""

    def next(self, bound_s):
        end = time.monotonic() + bound_s
        while b"\n" not in self.text:
            left = end - time.monotonic()
            if left <= 0:
                raise Failed(f"could not measure: nothing wrote to {self.path} within {bound_s} s")
            poll_readable(self.fd, left)
            try:
                self.text += os.read(self.fd, 4096)
            except BlockingIOError:
                pass
        line, self.text = self.text.split(b"\n", 1)
        stamp, pid = line.split()
        return int(stamp), int(pid)


def poll_readable(fd, seconds):
    import select
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    poller.poll(seconds * 1000)


class Supervised:
    """One supervisor with its program; kill_once() gives the nanoseconds to the successor's first act."""

    def __init__(self, directory):
        self.directory = directory
        os.makedirs(directory, exist_ok=True)
        self.stamps = Stamps(os.path.join(directory, "stamps"))
        self.process = None
        self.pid = 0

    def wait_first(self):
        _, self.pid = self.stamps.next(START_BOUND_S)

    def kill_once(self):
        before = time.monotonic_ns()
        os.kill(self.pid, signal.SIGKILL)
        stamp, pid = self.stamps.next(SUCCESSOR_BOUND_S)
        if pid == self.pid:
            raise Failed("could not measure: the successor has its predecessor's pid")
        self.pid = pid
        return stamp - before


class Runsv(Supervised):
    def start(self, program):
        service = os.path.join(self.directory, "service")
        os.makedirs(service)
        run = os.path.join(service, "run")
        with open(run, "w") as f:
            f.write(f"#!/bin/sh\nexec {program} {self.stamps.path}\n")
        os.chmod(run, 0o755)
        self.process = subprocess.Popen(["runsv", service], stdout=subprocess.DEVNULL)
        self.wait_first()

    def stop(self):
        if self.process:
            self.process.terminate()  # runsv ends its program and then itself
            self.process.wait(timeout=START_BOUND_S)


class Driver(Supervised):
    def start(self, program, binaries):
        work = os.path.join(self.directory, "work")
        os.makedirs(work)
        self.process = subprocess.Popen(
            [f"{binaries}/runner_driver", f"{binaries}/dtrain-shim", os.path.join(self.directory, "tasks"), work,
             program, self.stamps.path], stdin=subprocess.PIPE)
        self.wait_first()

    def stop(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait(timeout=START_BOUND_S)


class Agent(Supervised):
    """dtraind --dev and a job of one worker that may restart for ever, without pause."""

    def start(self, program, binaries):
        self.ctl = f"{binaries}/dtrainctl"
        self.socket = os.path.join(self.directory, "run", "control.sock")
        self.log = open(os.path.join(self.directory, "log"), "wb")
        self.process = subprocess.Popen(
            [f"{binaries}/dtraind", "--dev", "--data-dir", os.path.join(self.directory, "data"),
             "--run-dir", os.path.join(self.directory, "run")], stderr=self.log)
        end = time.monotonic() + START_BOUND_S
        while self.control("status").returncode != 0:
            if time.monotonic() > end or self.process.poll() is not None:
                raise Failed(f"could not start dtraind; see {self.log.name}")
            time.sleep(0.02)
        job = os.path.join(self.directory, "job.yaml")
        with open(job, "w") as f:
            json.dump({"apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": "restart"}, "spec": {
                "framework": "generic",
                "roles": {"worker": {"replicas": 1, "command": [program, self.stamps.path]}},
                "policy": {"restartBackoff": "0s", "failureThreshold": {"count": 0}}}}, f)
        submitted = self.control("submit", job)
        if submitted.returncode != 0:
            raise Failed("could not submit the job: " + submitted.stderr.decode())
        self.wait_first()

    def control(self, *arguments):
        return subprocess.run([self.ctl, "--agent", self.socket, *arguments], capture_output=True)

    def stop(self):
        if not self.process:
            return
        self.control("cancel", "restart")
        self.control("--timeout", f"{START_BOUND_S}s", "wait", "restart", "--for", "Finished")
        self.control("delete", "restart", "--force")
        self.process.terminate()
        self.process.wait(timeout=START_BOUND_S)
        self.log.close()


def need_runsv():
    if shutil.which("runsv"):
        return
    print("installing runit", file=sys.stderr)
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", "runit"], check=True, env=environment,
                   stdout=subprocess.DEVNULL)


def figures(samples_ns):
    ordered = sorted(samples_ns)
    return {"median": round(statistics.median(ordered) / 1e6, 3),
            "p95": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))] / 1e6, 3),
            "max": round(ordered[-1] / 1e6, 3)}


def measure(ours, peer, pairs):
    times = {ours: [], peer: []}
    for pair in range(WARM_UP_PAIRS + pairs):
        time.sleep(RUNSV_PAUSE_S)
        for side in ((ours, peer), (peer, ours))[pair % 2]:
            elapsed = side.kill_once()
            if pair >= WARM_UP_PAIRS:
                times[side].append(elapsed)
    return times[ours], times[peer]


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.environ.get("DTRAIN_BIN", os.path.join(here, "..", "build", "bin")))
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--driver", action="store_true")
    parser.add_argument("--agent", action="store_true")
    options = parser.parse_args()
    binaries = os.path.abspath(options.bin)
    need_runsv()
    driver = options.driver or not (options.agent or os.path.exists(f"{binaries}/dtraind"))
    directory = tempfile.mkdtemp(prefix="dtrain-restart-")
    os.chmod(directory, 0o755)
    program = f"{binaries}/first_stamp"
    ours = (Driver if driver else Agent)(os.path.join(directory, "ours"))
    peer = Runsv(os.path.join(directory, "peer"))
    try:
        ours.start(program, binaries)
        peer.start(program)
        mine, theirs = measure(ours, peer, options.pairs)
    except (Failed, OSError, subprocess.SubprocessError) as error:
        print(f"restart.py: {error}", file=sys.stderr)
        return 1
    finally:
        for side in (ours, peer):
            try:
                side.stop()
            except (OSError, subprocess.SubprocessError) as error:
                print(f"restart.py: could not stop a supervisor: {error}", file=sys.stderr)
        shutil.rmtree(directory, ignore_errors=True)
    result = {"bench": "restart", "what": "kill -9 to successor's first timestamp, " +
              ("runner and shim alone" if driver else "dtraind"), "unit": "ms", "n": len(mine), **figures(mine),
              "peer": {"name": "runsv", **figures(theirs)}}
    result["ratio"] = round(result["median"] / result["peer"]["median"], 3)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
