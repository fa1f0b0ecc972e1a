#!/usr/bin/python3
"""What warm standbys cost (docs/warm-standby.md): the memory of one beside a rank that has imported torch and nothing else, and the
steps a second of examples/ddp beside them and without them, alone on the machine.

Both sides are of one attempt, since two attempts of one script differ by more than a hundredth: first its standbys wait, then they are
killed as often as the agent replaces them. The same two stretches of an attempt that has no standbys say what time alone changes.
The steps are counted from checkpoint to checkpoint, whose files tell when each was written, once the standbys are ready, and so without
their imports. Those cost processor time, at the lowest priority, once for each attempt.
"""
import os
import signal
import sys
import time

import common
from common import harness, need, report, say, until

IMPORTS = "import torch, time\nprint('imported', flush=True)\ntime.sleep(1000000)\n"
RANKS = 2
TRAIN = os.path.join(common.SOURCE, "examples", "ddp", "train.py")
SAVE_EVERY = 50             # steps
BEGIN_SECONDS = 10          # from the first checkpoint until steps are counted
STANDBY_AFTER = 2           # seconds from the death of a standby until the next begins, as in common/task/standby_plan.h
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


def pythons(top):
    return [pid for pid in harness.processes_of(top) if harness.names_of([pid]) == ["python3"]]


def kill_standbys(top):
    """Until none comes any more."""
    seen = time.monotonic()
    while time.monotonic() < seen + 3 * STANDBY_AFTER:
        for pid in harness.standbys(top):
            os.kill(pid, signal.SIGKILL)
            seen = time.monotonic()
        time.sleep(0.1)


def steps_a_second(bench, agent, number, warm, seconds):
    """Of the first stretch of an attempt, and of the second, in which no standby waits."""
    name = "%s-%d" % (warm, number)
    directory, before = bench.path(name), ready(agent)
    submit(bench, agent, name, ["/usr/bin/python3", TRAIN, "--steps=1000000", "--save-every=%d" % SAVE_EVERY, "--checkpoints=" + directory],
           RANKS, warm)
    until(lambda: os.path.exists(directory) and os.listdir(directory), "a checkpoint", PATIENCE)
    if warm == "auto":
        until(lambda: ready(agent) > before, "the standbys", PATIENCE)
    time.sleep(BEGIN_SECONDS)
    rates, idle = [], 0
    for stretch in range(2):
        if stretch == 1:
            kill_standbys(bench.top)
        waiting = harness.standbys(bench.top)
        need(len(waiting) == (RANKS if warm == "auto" and stretch == 0 else 0), "standbys beside %s" % name)
        ranks = [pid for pid in pythons(bench.top) if pid not in waiting]
        (first, since), used, idle_before = newest(directory), used_seconds(ranks), used_seconds(waiting)
        time.sleep(seconds)
        (last, to), used = newest(directory), used_seconds(ranks) - used
        idle += used_seconds(waiting) - idle_before
        rates.append({"steps": (last - first) / (to - since), "steps per second used": (last - first) / used})
    common.remove(agent, name)
    until(lambda: not pythons(bench.top), "the end of %s" % name, PATIENCE)
    return rates, idle / seconds * 1000


def measure(bench, options):
    common.need_packages("python3-torch", "python3-sklearn")
    agent = bench.agent()
    for ranks in (1, RANKS):
        measure_memory(bench, agent, ranks)
    rates, idle = {"auto": [], "none": []}, []
    for number in range(options.rounds or (3 if options.quick else 8)):
        for warm in sorted(rates, reverse=number % 2 == 0):
            found, used = steps_a_second(bench, agent, number, warm, options.seconds)
            rates[warm].append(found)
            if warm == "auto":
                idle.append(used)
        say("%d: %s" % (number, {warm: found[-1] for warm, found in rates.items()}))
    what = {"auto": ("with standbys", "without them, later"), "none": ("no standbys", "no standbys, later")}
    for kind, unit in (("steps", "per second"), ("steps per second used", "per second of the ranks' processor time")):
        for warm, (now, later) in what.items():
            report("standby", "steps of examples/ddp, %d ranks, %s" % (RANKS, now), unit, [first[kind] for first, _ in rates[warm]],
                   later, [second[kind] for _, second in rates[warm]])
            quotients = [first[kind] / second[kind] for first, second in rates[warm]]
            report("standby", "%s, by those of the same attempt %s" % (now, later), "", quotients)
    report("standby", "processor time that %d standbys use while they wait" % RANKS, "ms per second", idle)


def more_options(parser):
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, default=12)


if __name__ == "__main__":
    sys.exit(common.run(measure, __doc__, more_options))
