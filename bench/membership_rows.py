"""What membership.py does to a cluster and takes down of it: one function per row of its table, the same for every program.

Each returns a list of (what, unit, samples, missed): the samples of the repeats that came to their end, and how many did not within the
row's limit. A time is that of the last observer's log line, from the fault's own moment.
"""
import random
import statistics
import time

import agents_lab

LIMIT = 90                      # seconds that a repeat of a row may take
CALM = (1.0, 3.0)               # seconds between two faults, at random: every phase of the protocols' timers is met
AFTER = 8                       # seconds in which late false alarms are still counted
SETTLE = 10                     # seconds before the costs are taken


class Surroundings:
    """What the rows share. `few`: to see that they work."""

    def __init__(self, lab, seed, few):
        self.lab, self.few, self.random = lab, few, random.Random(seed)

    def repeats(self, many):
        return max(1, many // 5) if self.few else many

    def seconds(self, many):
        return many / 4 if self.few else many

    def calm(self):
        self.lab.await_whole(LIMIT)
        self.lab.pump(self.random.uniform(*CALM))

    def victim(self):
        return self.random.choice(self.lab.members[1:])


class Samples:
    """Of one figure; a None is a repeat that did not come to its end."""

    def __init__(self, what, unit="s"):
        self.what, self.unit, self.values, self.missed = what, unit, [], 0

    def add(self, value):
        if value is None:
            self.missed += 1
        else:
            self.values.append(value)

    def figure(self):
        return self.what, self.unit, self.values, self.missed


def last(lab, members, mark, kind, subject, start, limit=LIMIT):
    """Seconds from `start` until each of the members has said so; None: not within the limit."""
    if not lab.pump(limit, lambda: lab.known_to(members, mark, kind, subject)):
        return None
    times = lab.first(mark, kind, subject)
    return max(times[member.name] for member in members) - start


def false_alarms(lab, mark, faulty=()):
    """How often a member that had nothing was called failed by one that had nothing either."""
    names = {member.name for member in faulty}
    return len([note for note in lab.since(mark, "failed") if note.subject not in names and note.observer not in names])


# ---- rows

def join(around):
    """The cluster forms: the first agent alone, then all others at once."""
    lab = around.lab
    from_first, from_last = Samples("join: all see all, from the first joiner's start"), Samples("join: all see all, from the last start")
    for _ in range(around.repeats(5)):
        lab.renew()
        lab.members[0].start()
        lab.need(lambda: lab.members[0].alive, "the first agent runs")
        begin = time.monotonic()
        for member in lab.members[1:]:
            member.start()
        spawned = time.monotonic()
        whole = lab.pump(2 * LIMIT, lab.all_see_all)
        done = max(member.complete_at for member in lab.members) if whole else None
        from_first.add(done and done - begin)
        from_last.add(done and max(0.0, done - spawned))
    return [from_first.figure(), from_last.figure()]


def cost(around):
    around.lab.await_whole(LIMIT)
    around.lab.pump(around.seconds(SETTLE))
    found = around.lab.cost(around.seconds(60))
    figures = [("steady: " + what, unit, [found[key]], 0) for what, unit, key in (
        ("sent by an agent", "B/s", "bytes"), ("packets of an agent", "1/s", "packets"), ("CPU of an agent", "%", "cpu"),
        ("memory of an agent", "MiB", "memory"), ("descriptors of an agent", "", "descriptors"))]
    # Heartbeats of the council, which serf has none of, are counted apart. The median one: some have a copy of the ledger.
    coordinator, voters = around.lab.program.voters(around.lab.members[0])
    for what, names in (("an agent that does not vote", set(found["of"]) - set(voters)), ("a voter", set(voters) - {coordinator}),
                        ("the coordinator", {coordinator} & set(found["of"]))):
        if voters and names:
            figures.append(("steady, no link headers: sent by " + what, "B/s", [statistics.median(found["of"][name] for name in names)], 0))
    return figures


def kill(around):
    """kill -9; when all know, the agent is started again where it was."""
    lab = around.lab
    known, median = Samples("kill -9: all others know"), Samples("kill -9: half of the others know")
    visible, restarted = Samples("restart: visible to all"), Samples("restart: said to be one by all")
    alarms = 0
    for _ in range(around.repeats(10)):
        around.calm()
        victim, mark = around.victim(), len(lab.notes)
        others, start = lab.others(victim), time.monotonic()
        victim.kill()
        known.add(last(lab, others, mark, "failed", victim.name, start))
        times = sorted(lab.first(mark, "failed", victim.name).values())
        median.add(times[len(times) // 2] - start if len(times) == len(others) else None)
        alarms += false_alarms(lab, mark, [victim])
        lab.pump(around.random.uniform(*CALM))
        mark, start = len(lab.notes), time.monotonic()
        victim.start()
        visible.add(last(lab, others, mark, "alive", victim.name, start))
        if "restarted" in lab.patterns:
            restarted.add(last(lab, others, mark, "restarted", victim.name, start, 5))
    figures = [known, median, visible] + ([restarted] if "restarted" in lab.patterns else [])
    return [figure.figure() for figure in figures] + [("kill -9: false alarms", "", [alarms], 0)]


def unreachable(around, name, many, fault):
    """A member that neither answers nor closes its connections, until all call it failed; then it is back."""
    lab = around.lab
    suspected = Samples(name + ": suspected by the first of the others")
    suspected_all = Samples(name + ": suspected by all others")
    failed, back = Samples(name + ": failed at all others"), Samples(name + ": all see all, from its return")
    alarms = 0
    for _ in range(around.repeats(many)):
        around.calm()
        victim, mark = around.victim(), len(lab.notes)
        others, start = lab.others(victim), time.monotonic()
        with fault(victim):
            failed.add(last(lab, others, mark, "failed", victim.name, start))
        returned = time.monotonic()
        whole = lab.pump(LIMIT, lab.all_see_all)
        back.add(max(returned, *(member.complete_at for member in lab.members)) - returned if whole else None)
        alarms += false_alarms(lab, mark, [victim])
        times = {who: at for who, at in lab.first(mark, "suspect", victim.name).items() if who != victim.name}
        suspected.add(min(times.values()) - start if times else None)
        suspected_all.add(max(times.values()) - start if len(times) == len(others) else None)
    # A program that does not say that it heard of a suspicion has no figure for it.
    shown = [suspected, *([suspected_all] if lab.program.tells_suspicions else []), failed, back]
    return [figure.figure() for figure in shown] + [(name + ": false alarms", "", [alarms], 0)]


def frozen(around):
    return unreachable(around, "frozen", 5, lambda victim: agents_lab.stopped([victim]))


def cut_off(around):
    return unreachable(around, "cut off", 3, lambda victim: agents_lab.cut([victim], around.lab.others(victim)))


def stop(around):
    """SIGSTOP for a while, as a machine under memory pressure does to an agent."""
    lab, figures = around.lab, []
    for seconds in (5, 10, 20):
        marked, healthy = Samples("SIGSTOP %d s: observers that called it failed" % seconds, ""), 0
        for _ in range(around.repeats(3)):
            around.calm()
            victim, mark = around.victim(), len(lab.notes)
            with agents_lab.stopped([victim]):
                lab.pump(seconds)
            lab.pump(AFTER)
            marked.add(len([note for note in lab.since(mark, "failed", victim.name) if note.observer != victim.name]))
            healthy += false_alarms(lab, mark, [victim])
        figures += [marked.figure(), ("SIGSTOP %d s: false alarms about others" % seconds, "", [healthy], 0)]
    return figures


def stalls(around):
    """A quarter of the agents stops for 16.4 s, runs for 64 ms, and so on for 100 s (Lifeguard's hardest case)."""
    lab = around.lab
    around.calm()
    faulty = around.random.sample(lab.members[1:], max(1, len(lab.members) // 4))
    mark, end = len(lab.notes), time.monotonic() + around.seconds(100)
    while time.monotonic() < end:
        with agents_lab.stopped(faulty):
            lab.pump(16.4)
        lab.pump(0.064)
    whole = whole_again(lab, "stalls")
    lab.pump(AFTER)
    names = {member.name for member in faulty}
    about = {note.subject for note in lab.since(mark, "failed") if note.subject not in names}
    return [("stalls: false alarms about healthy members at healthy members", "", [false_alarms(lab, mark, faulty)], 0),
            ("stalls: healthy members called failed by anyone", "", [len(about)], 0),
            whole]


def lossy(around):
    """Packets are lost on the way, of every protocol."""
    figures = []
    for percent in (25, 40):
        around.calm()
        mark = len(around.lab.notes)
        with agents_lab.loss(percent):
            around.lab.pump(around.seconds(60))
        figures += [("loss of %d %%: false alarms" % percent, "", [false_alarms(around.lab, mark)], 0),
                    ("loss of %d %%: suspicions" % percent, "", [len(around.lab.since(mark, "suspect"))], 0)]
    return figures


def split(around):
    """Half cannot reach half for two minutes."""
    lab = around.lab
    around.calm()
    shuffled = around.random.sample(lab.members, len(lab.members))
    one, other = shuffled[:len(shuffled) // 2], shuffled[len(shuffled) // 2:]
    mark = len(lab.notes)
    with agents_lab.cut(one, other) as dropped:
        lab.pump(around.seconds(120))
        packets = dropped()
    side = {member.name: index for index, group in enumerate((one, other)) for member in group}
    same = [note for note in lab.since(mark, "failed") if side[note.observer] == side[note.subject]]
    apart = sum(len({m.name for m in group} & member.alive) for group, rest in ((one, other), (other, one)) for member in rest)
    return [("cut in halves: packets dropped", "", [packets], 0),
            ("cut in halves: members of the other side still called alive, summed over observers", "", [apart], 0),
            ("cut in halves: false alarms on the same side", "", [len(same)], 0),
            whole_again(lab, "cut in halves")]


def moved(around):
    """An agent is killed and started again with another address before anybody can have cleared its name."""
    lab, found = around.lab, Samples("restart with another address: visible to all")
    for _ in range(around.repeats(3)):
        around.calm()
        victim = around.victim()
        others, mark = lab.others(victim), len(lab.notes)
        victim.kill()
        known = lab.pump(LIMIT, lambda: lab.known_to(others, mark, "failed", victim.name))
        victim.move()
        mark, start = len(lab.notes), time.monotonic()
        victim.start()
        seen = last(lab, others, mark, "alive", victim.name, start, 40)
        found.add(seen if known else None)
        if seen is None:        # it stays a stranger: put things back as they were
            victim.kill()
            victim.move(back=True)
            victim.start()
    return [found.figure()]


def whole_again(lab, name):
    """Seconds until all see all, from now."""
    start, samples = time.monotonic(), Samples(name + ": all see all, from its end")
    whole = lab.pump(3 * LIMIT, lab.all_see_all)
    samples.add(max(start, *(member.complete_at for member in lab.members)) - start if whole else None)
    return samples.figure()


# In the order in which they are done: join begins, moved leaves strangers behind if it goes wrong.
ROWS = {"join": join, "cost": cost, "kill": kill, "frozen": frozen, "cut_off": cut_off, "stop": stop, "lossy": lossy,
        "stalls": stalls, "split": split, "moved": moved}
