#!/usr/bin/python3
"""One rank of a PyTorch job is killed with -9: the time until every rank has made its first step afterwards.

Beside torchrun with the same script, in turns, each side alone on the machine while it is measured. The times are the ones that
the ranks write themselves. `bare` is the same with ranks that meet over TCP and import nothing: what is dtrain's own part of it. `warm` is
with standbys (docs/warm-standby.md), each ready before the kill; the other side of dtrain is without.
"""
import os
import signal
import subprocess
import sys
import time

import common
from common import need, report, say, until

# Writes "RANK INCARNATION PID TIME" to a file of its own at the first step, which all ranks make together, then goes on stepping.
DDP = """
import os, sys, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
def step(): model(torch.ones(4, 8)).sum().backward()
rank = dist.get_rank()
"""
BARE = """
import os, socket, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    door = socket.create_server(address, backlog=world)
    links = [door.accept()[0] for _ in range(world - 1)]
else:
    while True:
        try: links = [socket.create_connection(address)]; break
        except ConnectionRefusedError: time.sleep(0.002)
def step():
    if rank: links[0].send(b"s")
    for link in links:
        if not link.recv(1): sys.exit(1)
    if not rank:
        for link in links: link.send(b"s")
"""
LOOP = """
step()
with open(os.path.join(sys.argv[1], "rank%d" % rank), "a") as file: file.write("%d %.6f\\n" % (os.getpid(), time.time()))
while True:
    step()
    time.sleep(0.02)
"""
PAUSE_SECONDS = 1.0         # between the first step and the kill
PATIENCE = 120


class Side:
    """A running gang; `directory`: where its ranks write."""

    def __init__(self, bench, name, script):
        self.directory = bench.path(name)
        os.makedirs(self.directory)
        self.script = bench.write(name + ".py", script + LOOP)

    def steps(self):
        """Of each rank: (pid, time) of each incarnation's first step."""
        found = {}
        for name in os.listdir(self.directory):
            with open(os.path.join(self.directory, name)) as file:
                found[int(name[4:])] = [(int(pid), float(at)) for pid, at in map(str.split, file)]
        return found

    def wait(self, ranks, incarnations):
        until(lambda: len(s := self.steps()) == ranks and all(len(lines) >= incarnations for lines in s.values()),
              "first step %d of %d ranks of %s; seen %s" % (incarnations, ranks, self.script, self.steps()), PATIENCE)
        return self.steps()

    def wait_until_ready(self, number):
        """For the kill of that number."""

    def kill_once(self, ranks, number):
        """Milliseconds from the kill to the last first step; the ranks are killed in turns."""
        before = self.wait(ranks, number)
        time.sleep(PAUSE_SECONDS)
        self.wait_until_ready(number)
        killed = time.time()
        os.kill(before[number % ranks][-1][0], signal.SIGKILL)
        after = self.wait(ranks, number + 1)
        firsts = [lines[number][1] for lines in after.values()]
        need(min(firsts) > killed, "a rank went on without the others")
        return (max(firsts) - killed) * 1000


class Ours(Side):
    def __init__(self, bench, agent, name, script, ranks, warm="none"):
        super().__init__(bench, name, script)
        self.agent, self.name = agent, name
        role = {"nprocPerNode": ranks, "warm": warm, "command": ["/usr/bin/python3", self.script, self.directory]}
        agent.do("submit", bench.job_file(name, {"worker": role}, framework="pytorch",
                                          policy={"restartBackoff": "0s", "failureThreshold": 0}))

    def end(self, kills):
        job = common.job_of(self.agent, self.name)
        need(job["restarts"] == kills, "%d restarts were counted for %d kills" % (job["restarts"], kills))
        common.remove(self.agent, self.name)


class Warm(Ours):
    def __init__(self, *arguments):
        super().__init__(*arguments, warm="auto")

    def wait_until_ready(self, number):
        until(lambda: self.agent.log().count("event=task.standby_ready") >= number, "standby %d" % number, PATIENCE)


class Torchrun(Side):
    def __init__(self, bench, name, script, ranks):
        super().__init__(bench, name, script)
        # PyTorch 1.13 fails under Python 3.11 with every value of these two options, its default too, that names not 1, 2 or a mapping.
        outputs = ["--redirects", "0:1", "--tee", "0:1", "--log_dir", bench.path("torchrun-logs")]
        self.process = subprocess.Popen(
            ["/usr/bin/python3", "-m", "torch.distributed.run", "--nproc_per_node", str(ranks), "--max_restarts", "1000",
             "--monitor_interval", "0.1", "--master_port", "29511", *outputs, self.script, self.directory],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=bench.top, start_new_session=True)

    def end(self, kills):
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(PATIENCE)


def measure(bench, options):
    common.need_packages("python3-torch")
    rounds = options.rounds or (5 if options.quick else 20)
    agent = bench.agent()
    for what, script, with_peer in (("bare", BARE, False), ("ddp", DDP, True)):
        sides = {"dtrain": Ours(bench, agent, "ours-" + what, script, options.ranks)}
        sides["dtrain"].wait(options.ranks, 1)
        if with_peer:
            sides["warm"] = Warm(bench, agent, "warm-" + what, script, options.ranks)
            sides["warm"].wait(options.ranks, 1)
            sides["torchrun"] = Torchrun(bench, "peer-" + what, script, options.ranks)
            sides["torchrun"].wait(options.ranks, 1)
        times = {name: [] for name in sides}
        for number in range(1, rounds + 1):     # in turns; the other side goes on meanwhile, with fifty small steps a second
            for name, side in sides.items():
                times[name].append(side.kill_once(options.ranks, number))
            say("%s %d: %s" % (what, number, {name: round(t[-1]) for name, t in times.items()}))
        for side in sides.values():
            side.end(rounds)
        for name in times.keys() - {"torchrun"}:
            report("gang", "%s: rank killed to first step of all %d" % (name if name == "warm" else what, options.ranks), "ms", times[name],
                   *(("torchrun", times["torchrun"]) if with_peer else ()))


def more_options(parser):
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--ranks", type=int, default=2)


if __name__ == "__main__":
    sys.exit(common.run(measure, __doc__, more_options))
