"""How long a Python task takes to begin again, cold (a start of the interpreter) and warm (docs/warm-standby.md), in turns.

    bench/warm_standby.py [ROUNDS]      needs an interpreter with torch
Prints, in milliseconds: until the first line of a script that imports torch; and, of two ranks over gloo on this machine, from the kill of
one until both have done their first step again. Both have waiting processes, as their supervisor would keep them."""
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "warm"))
import warm_lab

FIRST_LINE = "import torch\nprint('begun', flush=True)\n"
TRAIN = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    optimizer.zero_grad()
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
    print("step", flush=True)
"""
BASE = dict(warm_lab.ENVIRONMENT, OMP_NUM_THREADS="1", MASTER_ADDR="127.0.0.1", WORLD_SIZE="2")


class Task:
    """One attempt, and the pipe with its output."""

    def __init__(self, place, environment, standby=None):
        self.output, write = os.pipe()
        if standby:
            answer = standby.order(["script.py"], environment, stdout=write, stderr=write)
            if answer != "go":
                raise SystemExit("the standby answered: " + answer)
            self.process = standby.process
        else:
            self.process = subprocess.Popen([warm_lab.PYTHON, "script.py"], cwd=place, env=environment, stdin=subprocess.DEVNULL,
                                            stdout=write, stderr=write)
        os.close(write)

    def first_line(self):
        if not os.read(self.output, 1):
            raise SystemExit("a task ended before its first line")

    def end(self):
        self.process.kill()
        self.process.wait()
        os.close(self.output)


def waiting(place, environment):
    standby = warm_lab.Standby(["script.py"], environment=environment, cwd=place)
    line = standby.line()
    if not line.startswith("ready torch"):
        raise SystemExit("the standby answered: " + line)
    return standby


def first_line(place, warm):
    standby = waiting(place, BASE) if warm else None
    begin = time.monotonic()
    task = Task(place, BASE, standby)
    task.first_line()
    taken = time.monotonic() - begin
    task.end()
    return taken


def ranks(place, standbys):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return [Task(place, dict(BASE, RANK=str(rank), MASTER_PORT=str(port)), standby) for rank, standby in enumerate(standbys)]


def restart(place, warm):
    running = ranks(place, [None, None])
    for task in running:
        task.first_line()
    standbys = [waiting(place, BASE) if warm else None for _ in running]
    begin = time.monotonic()
    os.kill(running[1].process.pid, signal.SIGKILL)
    for task in reversed(running):      # the one that was killed is noticed first, then the other is ended
        if task is running[1]:
            task.process.wait()
        task.end()
    again = ranks(place, standbys)
    for task in again:
        task.first_line()
    taken = time.monotonic() - begin
    for task in again:
        task.end()
    return taken


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as place:
        for name, script, measure in (("import torch, to the first line", FIRST_LINE, first_line),
                                      ("two ranks, kill to the first step", TRAIN, restart)):
            with open(os.path.join(place, "script.py"), "w") as file:
                file.write(script)
            found = {False: [], True: []}
            for _ in range(rounds):
                for warm in (False, True):
                    found[warm].append(measure(place, warm) * 1000)
            for warm, label in ((False, "cold"), (True, "warm")):
                print("%-34s %s  median %8.1f  least %8.1f  most %8.1f  (%d)" % (
                    name, label, statistics.median(found[warm]), min(found[warm]), max(found[warm]), rounds), flush=True)


if __name__ == "__main__":
    main()
