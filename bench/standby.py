#!/usr/bin/python3
"""What warm standbys cost (docs/warm-standby.md): the memory of one beside a rank that has imported torch and nothing else, and the
steps a second of examples/ddp with and without, in turns, each side alone on the machine.

The steps are counted from checkpoint to checkpoint, whose files tell when each was written: from the first quarter of a run on, by when
its standbys must be ready, and so without their imports. Those cost processor time, at the lowest priority, once for each attempt.
"""
import os
import sys

import common
from common import need, report, say, until

IMPORTS = "import torch, time\nprint('imported', flush=True)\ntime.sleep(1000000)\n"
RANKS = 2
TRAIN = os.path.join(common.SOURCE, "examples", "ddp", "train.py")
PATIENCE = 300


def standbys(top):
    """Pids of the standbys of the agent whose files are in that directory."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as file:
                words = file.read().split(b"\0")
            with open("/proc/%s/oom_score_adj" % pid) as file:
                waits = int(file.read()) == 1000
            with open("/proc/%s/environ" % pid, "rb") as file:
                mine = top.encode() in file.read()
        except OSError:
            continue
        if waits and mine and any(word.endswith(b"/dtrain-warm.py") for word in words):
            found.append(int(pid))
    return found


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
    waiting = standbys(bench.top)
    need(len(waiting) == ranks, "%d standbys wait beside %d ranks" % (len(waiting), ranks))
    seen = [memory_mib(pid) for pid in waiting]
    for kind in ("Rss", "Pss", "Private"):
        report("standby", "%s of one, import torch, beside %d rank%s" % (kind, ranks, "s" * (ranks > 1)), "MiB", [s[kind] for s in seen])
    common.remove(agent, "imports")
    until(lambda: not standbys(bench.top), "the end of the standbys", PATIENCE)


def steps_a_second(bench, agent, number, warm, steps):
    name = "%s-%d" % (warm, number)
    directory, quarter, before = bench.path(name), steps // 4, ready(agent)
    submit(bench, agent, name, ["/usr/bin/python3", TRAIN, "--steps=%d" % steps, "--save-every=%d" % quarter, "--checkpoints=" + directory],
           RANKS, warm)
    if warm == "auto":
        until(lambda: ready(agent) > before, "the standby", PATIENCE)
        need(not os.path.exists(os.path.join(directory, "step_%06d.pt" % quarter)), "the standbys were ready too late: take more --steps")
    common.wait_for(agent, name, "Succeeded", PATIENCE)
    first, last = (os.stat(os.path.join(directory, "step_%06d.pt" % step)).st_mtime_ns for step in (quarter, steps))
    agent.do("delete", name)
    until(lambda: not standbys(bench.top), "the end of the standbys", PATIENCE)
    return (steps - quarter) / ((last - first) / 1e9)


def measure(bench, options):
    common.need_packages("python3-torch", "python3-sklearn")
    agent = bench.agent()
    for ranks in (1, RANKS):
        measure_memory(bench, agent, ranks)
    rates = {"auto": [], "none": []}
    for number in range(options.rounds or (3 if options.quick else 10)):
        for warm in sorted(rates, reverse=number % 2 == 0):
            rates[warm].append(steps_a_second(bench, agent, number, warm, options.steps))
        say("%d: %s" % (number, {warm: round(found[-1], 1) for warm, found in rates.items()}))
    report("standby", "steps of examples/ddp, %d ranks, with standbys" % RANKS, "per second", rates["auto"], "without", rates["none"])


def more_options(parser):
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--steps", type=int, default=10000)


if __name__ == "__main__":
    sys.exit(common.run(measure, __doc__, more_options))
