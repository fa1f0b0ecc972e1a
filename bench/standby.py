#!/usr/bin/python3
"""What warm standbys cost (docs/warm-standby.md): the memory of one beside a rank that has imported torch and nothing else, and the
steps a second of examples/ddp with and without, in turns, each side alone on the machine.

The steps are counted from checkpoint to checkpoint, whose files tell when each was written, for the same time on each side, once the
standbys are ready, and so without their imports. Those cost processor time, at the lowest priority, once for each attempt.
"""
import os
import sys
import time

import common
from common import harness, need, report, say, until

IMPORTS = "import torch, time\nprint('imported', flush=True)\ntime.sleep(1000000)\n"
RANKS = 2
TRAIN = os.path.join(common.SOURCE, "examples", "ddp", "train.py")
SAVE_EVERY = 50             # steps
BEGIN_SECONDS = 10          # without standbys: from the start of the job until steps are counted
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


def newest(directory):
    """(step, time) of the newest checkpoint."""
    name = max(name for name in os.listdir(directory) if name.endswith(".pt"))
    return int(name[5:-3]), os.stat(os.path.join(directory, name)).st_mtime_ns / 1e9


def steps_a_second(bench, agent, number, warm, seconds):
    name = "%s-%d" % (warm, number)
    directory, before = bench.path(name), ready(agent)
    submit(bench, agent, name, ["/usr/bin/python3", TRAIN, "--steps=1000000", "--save-every=%d" % SAVE_EVERY, "--checkpoints=" + directory],
           RANKS, warm)
    if warm == "auto":
        until(lambda: ready(agent) > before, "the standby", PATIENCE)
    else:
        time.sleep(BEGIN_SECONDS)
    until(lambda: os.path.exists(directory) and os.listdir(directory), "a checkpoint", PATIENCE)
    waiting = harness.standbys(bench.top)
    need(len(waiting) == (RANKS if warm == "auto" else 0), "standbys beside %s" % name)
    ranks = [pid for pid in harness.processes_of(bench.top) if pid not in waiting and harness.names_of([pid]) == ["python3"]]
    (first, since), used, idle = newest(directory), used_seconds(ranks), used_seconds(waiting)
    time.sleep(seconds)
    (last, to), used, idle = newest(directory), used_seconds(ranks) - used, used_seconds(waiting) - idle
    common.remove(agent, name)
    until(lambda: not harness.standbys(bench.top), "the end of the standbys", PATIENCE)
    steps = last - first
    return {"steps": steps / (to - since), "steps per second used": steps / used, "used": idle / seconds * 1000}


def measure(bench, options):
    common.need_packages("python3-torch", "python3-sklearn")
    agent = bench.agent()
    for ranks in (1, RANKS):
        measure_memory(bench, agent, ranks)
    rates = {"auto": [], "none": []}
    for number in range(options.rounds or (3 if options.quick else 10)):
        for warm in sorted(rates, reverse=number % 2 == 0):
            rates[warm].append(steps_a_second(bench, agent, number, warm, options.seconds))
        say("%d: %s" % (number, {warm: found[-1] for warm, found in rates.items()}))
    for kind, unit in (("steps", "per second"), ("steps per second used", "per second of the ranks' processor time")):
        report("standby", "steps of examples/ddp, %d ranks, with standbys" % RANKS, unit, [rate[kind] for rate in rates["auto"]],
               "without", [rate[kind] for rate in rates["none"]])
    report("standby", "processor time that %d standbys use while they wait" % RANKS, "ms per second",
           [rate["used"] for rate in rates["auto"]])


def more_options(parser):
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, default=20)


if __name__ == "__main__":
    sys.exit(common.run(measure, __doc__, more_options))
