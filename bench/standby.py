#!/usr/bin/python3
"""What warm standbys cost (docs/warm-standby.md): the memory of one beside a rank that has imported torch and nothing else, and the
steps a second of one rank, and of two with DistributedDataParallel over gloo, beside them and without them, alone on the machine.

Both sides of one quotient are neighbours in time: the last stretch before the standbys of an attempt are killed, and the first after it,
which ends before the next begin. Each attempt gives as many quotients as its standbys are replaced, and one more. The same pairs of
attempts that have no standbys say what the measure itself sees. The imports of a standby are in no stretch: they cost processor time, at
the lowest priority, once for each attempt.

The other guests of a virtual machine's host change its speed by tenths from second to second. So beside all steps the fast ones are
compared, the first of a hundred in the order of their durations: these were not disturbed. A standby can make steps slower in two ways. It
can slow the undisturbed ones (memory, caches), which these figures show. Or it can take processor time from the ranks, which the kernel
counts: that of the standbys, and that of the agent beside them and without them.
"""
import os
import signal
import struct
import sys
import time

import common
from common import harness, need, report, say, until

IMPORTS = "import torch, time\nprint('imported', flush=True)\ntime.sleep(1000000)\n"
RANKS = 2
# Writes the time of each step into a file that both sides map: what counts the steps must not disturb them.
STEPS = """
import mmap, os, struct, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
if dist.get_world_size() > 1: model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
images, labels = torch.randn(64, 64), torch.randint(10, (64,))
clock = None
if dist.get_rank() == 0:
    with open(sys.argv[1], "r+b") as file: clock = mmap.mmap(file.fileno(), 0)
step = 0
while True:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
    if clock:
        struct.pack_into("=d", clock, 8 * (step % (len(clock) // 8)), time.time())
        step += 1
"""
STEPS_KEPT = 1 << 16        # more than are made in two stretches
STRETCH = 1.6               # seconds; with the one below less than from the death of a standby until the next begins, kStandbyAfter = 2 s
FAST = 0.01                 # of the steps of a stretch are faster than the one that counts as undisturbed
DEATH = 0.3                 # seconds from the standbys' death until steps are counted again: what they leave is cleared away
PAIRS = 1 + 3               # of an attempt: kStandbyDeaths there, and one more
CALM = 0.5                  # seconds from the standbys' readiness, or an attempt's tenth step, until steps are counted
PATIENCE = 300


def used_seconds(pids):
    """Of processor time, of all threads."""
    used = 0
    for pid in pids:
        for thread in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/schedstat" % (pid, thread)) as file:
                used += int(file.read().split()[0])
    return used / 1e9


def memory_mib(pid):
    """{Rss, Pss, Private}: what it maps; the same, with each page shared among those that map it; what nobody else maps."""
    with open("/proc/%d/smaps_rollup" % pid) as file:
        kib = {words[0].rstrip(":"): int(words[1]) for words in map(str.split, list(file)[1:])}
    return {"Rss": kib["Rss"] / 1024, "Pss": kib["Pss"] / 1024, "Private": (kib["Private_Clean"] + kib["Private_Dirty"]) / 1024}


def ready(agent):
    return agent.log().count("event=task.standby_ready")


def submit(bench, agent, name, command, ranks, warm):
    agent.do("submit", bench.job_file(name, {"worker": {"nprocPerNode": ranks, "warm": warm, "command": command}}, framework="pytorch"))


def measure_memory(bench, agent, ranks):
    script = bench.write("imports.py", IMPORTS)
    before = ready(agent)
    submit(bench, agent, "imports", ["/usr/bin/python3", script], ranks, "auto")
    until(lambda: ready(agent) > before, "the standby", PATIENCE)
    waiting = harness.standbys(bench.top)
    need(len(waiting) == ranks, "%d standbys wait beside %d ranks" % (len(waiting), ranks))
    seen = [memory_mib(pid) for pid in waiting]
    for kind in ("Rss", "Pss", "Private"):
        report("standby", "%s of one, import torch, beside %d rank%s" % (kind, ranks, "s" * (ranks > 1)), "MiB", [s[kind] for s in seen])
    common.remove(agent, "imports")
    until(lambda: not harness.standbys(bench.top), "the end of the standbys", PATIENCE)


def pythons(top):
    return [pid for pid in harness.processes_of(top) if harness.names_of([pid]) == ["python3"]]


def rates(clock, since, to):
    """Steps a second of that time: of all, and of the fast ones."""
    with open(clock, "rb") as file:
        times = sorted(at for (at,) in struct.iter_unpack("=d", file.read()) if since <= at <= to)
    need(100 < len(times) < STEPS_KEPT, "%d steps were made in %.1f s" % (len(times), to - since))
    took = sorted(after - before for before, after in zip(times, times[1:]))
    return {"steps": len(took) / (times[-1] - times[0]), "undisturbed steps": 1 / took[int(len(took) * FAST)]}


class Stretch:
    """From now on for STRETCH seconds: the rates, and what the standbys and the agent used, in milliseconds a second."""

    def __init__(self, agent, waiting, clock):
        sides = {"standbys": waiting, "agent": [agent.process.pid]}
        since, before = time.time(), {side: used_seconds(pids) for side, pids in sides.items()}
        time.sleep(STRETCH)
        self.used = {side: (used_seconds(pids) - before[side]) / STRETCH * 1000 for side, pids in sides.items()}
        self.rates = rates(clock, since, since + STRETCH)


def pairs(bench, agent, number, ranks, warm):
    """[(stretch beside standbys, the next stretch without them)] of one attempt."""
    name = "%s-%d-%d" % (warm, ranks, number)
    clock, standbys = bench.path(name), ranks if warm == "auto" else 0
    with open(clock, "wb") as file:
        file.truncate(8 * STEPS_KEPT)
    came = ready(agent)
    submit(bench, agent, name, ["/usr/bin/python3", bench.write("steps.py", STEPS), clock], ranks, warm)
    with open(clock, "rb") as file:
        until(lambda: os.pread(file.fileno(), 8, 80) != bytes(8), "the tenth step", PATIENCE)
    found = []
    for pair in range(PAIRS):
        if standbys:
            until(lambda: ready(agent) > came + pair, "the standbys", PATIENCE)
        time.sleep(CALM)
        waiting = harness.standbys(bench.top)
        need(len(waiting) == standbys, "%d standbys wait beside %s" % (len(waiting), name))
        beside = Stretch(agent, waiting, clock)
        for pid in waiting:
            os.kill(pid, signal.SIGKILL)
        time.sleep(DEATH)
        found.append((beside, Stretch(agent, [], clock)))
        need(not harness.standbys(bench.top), "a standby began while none should wait")
    common.remove(agent, name)
    until(lambda: not pythons(bench.top), "the end of %s" % name, PATIENCE)
    return found


def median_within(samples):
    """The bounds of their median with 95 % confidence, whatever their distribution: a count of heads (normal approximation)."""
    ordered, half = sorted(samples), 0.98 * len(samples) ** 0.5
    return ordered[max(0, int(len(ordered) / 2 - half))], ordered[min(len(ordered) - 1, int(len(ordered) / 2 + half))]


def measure_steps(bench, agent, ranks, attempts):
    found = {"auto": [], "none": []}
    for number in range(attempts):
        for warm in sorted(found, reverse=number % 2 == 0):
            found[warm] += pairs(bench, agent, number, ranks, warm)
        say("%d ranks, attempt %d: %s" % (ranks, number, {
            warm: [round(a.rates["undisturbed steps"] / b.rates["undisturbed steps"], 3) for a, b in both[-PAIRS:]]
            for warm, both in found.items()}))
    gang = "%d rank%s, " % (ranks, "s" * (ranks > 1))
    for kind in ("steps", "undisturbed steps"):
        for warm, now, later in (("auto", "beside standbys", "just after their death"), ("none", "without any", "later")):
            what = "%s of %s%s" % (kind, gang, now)
            report("standby", what, "per second", [a.rates[kind] for a, _ in found[warm]], later, [b.rates[kind] for _, b in found[warm]])
            quotients = [a.rates[kind] / b.rates[kind] for a, b in found[warm]]
            report("standby", "%s, by those %s: each pair" % (what, later), "", quotients)
            low, high = median_within(quotients)
            say("%s: the median of all such pairs is between %.3f and %.3f" % (what, low, high))
    used = {side: [stretch.used[side] for stretch, _ in found["auto"]] for side in ("standbys", "agent")}
    report("standby", "processor time of %d standbys while they wait" % ranks, "ms per second", used["standbys"])
    report("standby", "processor time of the agent beside %d standbys" % ranks, "ms per second", used["agent"],
           "just after their death", [stretch.used["agent"] for _, stretch in found["auto"]])


def measure(bench, options):
    common.need_packages("python3-torch")
    agent = bench.agent()
    for ranks in (1, RANKS):
        measure_memory(bench, agent, ranks)
    for ranks in (1, RANKS):
        measure_steps(bench, agent, ranks, options.attempts or (3 if options.quick else 25))


def more_options(parser):
    parser.add_argument("--attempts", type=int)


if __name__ == "__main__":
    sys.exit(common.run(measure, __doc__, more_options))
