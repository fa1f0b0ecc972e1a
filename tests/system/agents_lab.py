"""A cluster of agents on one machine, in network, process and mount namespaces of its own, and the faults to do to it.

enter() starts the calling script again inside; from then on 127/8 belongs to the agents alone: what the loopback interface
counts is their traffic, and packet filters hit nobody else. Every agent has an address, a group id (packet filters tell senders
apart by it) and a directory in memory: hundreds of agents would else wait for one disk, which no cluster has in common.
The namespaces end with the script in whatever way that ends, and take every process in them along.

What agents know is read from their log lines as they arrive: a Note per line that a program's patterns match, stamped with
the monotonic clock. tests/system/ and bench/ both build on this.
"""
import collections
import contextlib
import functools
import itertools
import json
import os
import re
import resource
import selectors
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import typing

import harness
from harness import BIN

INSIDE = "DTRAIN_LAB_INSIDE"    # set for the script inside: the directory on which it mounts its memory
FIRST_UID = 20000               # the first agent's, its group's too; nobody else has such ids
ADDRESSES = 200                 # agents per 127.0.x.0/24
TAIL = 60                       # newest log lines kept per agent, for people
READ = 1 << 16
PORT = 7400
LOOK = 0.02                     # seconds between two looks at a condition
PATIENCE = 60                   # seconds a condition may take on a loaded machine


# ---- namespaces

def outside(arguments, seconds, **options):
    """The script of `arguments` inside namespaces of its own, as a process. It ends when its stdin is closed."""
    directory = tempfile.mkdtemp(prefix="dtrain-lab-")
    os.chmod(directory, 0o755)
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n", "--preserve-env"]
    # The shell is the first process of its namespace, which inherits whatever lost its parent, and reaps it.
    process = subprocess.Popen([*as_root, "timeout", "--signal=KILL", str(seconds), "unshare", "--net", "--pid", "--mount", "--fork",
                                "--kill-child=SIGKILL", "--mount-proc", "sh", "-c", '"$@"; exit $?', "init", sys.executable, *arguments],
                               stdin=subprocess.PIPE, env=dict(os.environ, **{INSIDE: directory}), **options)
    process.directory = directory
    return process


def enter(seconds, afterwards=None):
    """Returns inside. Outside it runs the script again inside, for at most `seconds`, and ends with its code; before that it calls
    `afterwards` with the directory that was the lab's, for what no namespace holds."""
    if INSIDE not in os.environ:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
        with outside(sys.argv, seconds) as inner:
            try:
                sys.exit(inner.wait())
            finally:
                inner.stdin.close()
                try:
                    os.rmdir(inner.directory)       # empty: what was in it was mounted inside
                finally:
                    if afterwards:
                        afterwards(inner.directory)
    directory = os.environ.pop(INSIDE)

    def end_with_the_outside():
        while os.read(0, READ):
            pass
        os._exit(1)             # then the first process of its namespace ends, and all others with it
    threading.Thread(target=end_with_the_outside, daemon=True).start()
    run("mount", "-t", "tmpfs", "-o", "mode=755", "lab", directory)
    os.environ["TMPDIR"] = tempfile.tempdir = directory
    loopback(True)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return directory


def run(*command, given=None):
    done = subprocess.run(command, input=given, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError("%s: exit %d: %s" % (" ".join(command), done.returncode, done.stderr.strip()))
    return done.stdout


# ---- programs

class Program:
    """How a kind of agent is started and what its log lines mean. A pattern's first group is the member it speaks of."""
    name = ""
    tells_suspicions = False    # says of every member that it suspects it, whoever found out, and when that is over
    patterns = {}               # kind of note -> bytes pattern; kinds: alive failed left suspect restarted refute conflict

    def prepare(self, lab):
        """Once, before the first agent starts."""

    def command(self, member, seed):
        """Argument list; `seed` is None for the first agent, which joins nobody."""
        raise NotImplementedError

    def voters(self, member):
        """Names, as that agent says: of who coordinates, and of all who vote on who does. None, and none: they have no such."""
        return None, []


class Dtraind(Program):
    """Our agent, encrypted as it is across hosts."""
    name = "dtrain"
    tells_suspicions = True
    patterns = {
        "alive": rb"event=member\.alive .*?node=(\S+)",
        "failed": rb"event=member\.(?:dead|down) .*?node=(\S+)",
        "left": rb"event=member\.left .*?node=(\S+)",
        "suspect": rb"event=member\.suspect .*?node=(\S+)",
        "restarted": rb"event=member\.restarted .*?node=(\S+)",
        "refute": rb"event=member\.refute .*?node=(\S+)",
        "conflict": rb"event=member\.conflict .*?node=(\S+)",
    }

    def __init__(self, *options):
        self.options = options
        self.key = self.bin = ""

    def prepare(self, lab):
        # Copies: the users of the agents may not see the build directory, and a build under way changes nothing.
        self.bin = lab.path("bin")
        os.makedirs(self.bin)
        for program in ("dtraind", "dtrainctl", "dtrain-shim", "dtrain-discover", "dtrain-rsh"):
            shutil.copy(os.path.join(BIN, program), self.bin)
        self.key = lab.path("cluster.key")
        run(os.path.join(self.bin, "dtrainctl"), "keygen", self.key)

    def command(self, member, seed):
        key = os.path.join(member.directory, "cluster.key")
        if not os.path.exists(key):
            shutil.copyfile(self.key, key)
            os.chown(key, member.uid, member.uid)
            os.chmod(key, 0o600)
        return [*member.prefix, os.path.join(self.bin, "dtraind"), "--name", member.name, "--cluster", "lab",
                "--data-dir", os.path.join(member.directory, "data"), "--run-dir", os.path.join(member.directory, "run"),
                "--listen", "%s:%d" % (member.ip, PORT), "--advertise", member.ip, "--launch", "direct", "--key-file", key,
                *(["--join", "%s:%d" % (seed.ip, PORT)] if seed else ["--found"]), *self.options]

    def voters(self, member):
        status = json.loads(run(os.path.join(self.bin, "dtrainctl"), "--agent", os.path.join(member.directory, "run", "control.sock"),
                                "-o", "json", "status"))
        return (status["coordinator"] or {}).get("node"), status["quorum"]["voters"]


# ---- agents

class Note(typing.NamedTuple):
    """One agent said something of a member."""
    at: float                   # time.monotonic() when the line arrived
    observer: str
    kind: str
    subject: str


class Member:
    """One agent: its process and what it has said of others since it was started."""

    def __init__(self, lab, index):
        self.lab, self.index, self.name, self.uid = lab, index, "n%d" % index, FIRST_UID + index
        self.move(back=True)
        self.directory = lab.path(self.name)
        self.prefix, self.environment, self.process, self.rest = [], {}, None, b""
        self.alive, self.tail = set(), collections.deque(maxlen=TAIL)
        self.complete_at = None     # when it came to see all as alive, and none as suspect
        os.makedirs(self.directory)
        os.chown(self.directory, self.uid, self.uid)

    def move(self, back=False):
        """From its next start on it has another address."""
        self.ip = "127.0.%d.%d" % ((1 if back else 101) + self.index // ADDRESSES, 1 + self.index % ADDRESSES)

    def start(self):
        self.close()
        self.alive, self.rest, self.complete_at = set(), b"", None
        command = self.lab.program.command(self, None if self.index == 0 else self.lab.members[0])
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        cwd=self.directory, user=self.uid, group=self.uid, extra_groups=[],
                                        env=dict(os.environ, **self.environment))
        os.set_blocking(self.process.stdout.fileno(), False)
        self.lab.selector.register(self.process.stdout, selectors.EVENT_READ, self)
        return self

    def running(self):
        return self.process is not None and self.process.poll() is None

    def signal(self, number):
        os.kill(self.process.pid, number)

    def kill(self):
        """kill -9; returns when it is gone. Connections are closed by the kernel then."""
        self.process.kill()
        self.process.wait()
        while self.read():
            pass
        self.close()

    def close(self):
        """Forgets the pipe of its last process."""
        if self.process is not None and not self.process.stdout.closed:
            self.lab.selector.unregister(self.process.stdout)
            self.process.stdout.close()

    def read(self):
        """Some of what its pipe holds; whether it may hold more."""
        try:
            data = os.read(self.process.stdout.fileno(), READ)
        except BlockingIOError:
            return False
        at = time.monotonic()
        if not data:
            self.close()
            return False
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self.tail.append(line)
            for kind, pattern in self.lab.patterns.items():
                found = pattern.search(line)
                if found:
                    self._note(Note(at, self.name, kind, found.group(1).decode(errors="replace")))
        return True

    def _note(self, note):
        self.lab.notes.append(note)
        if note.kind == "alive":
            self.alive.add(note.subject)
            if len(self.alive) == len(self.lab.members):
                self.complete_at = note.at
        elif note.kind in ("failed", "left") or note.kind == "suspect" and self.lab.program.tells_suspicions:
            self.alive.discard(note.subject)

    # -- what it costs

    def cpu_seconds(self):
        with open("/proc/%d/stat" % self.process.pid) as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_kib(self):
        with open("/proc/%d/status" % self.process.pid) as file:
            return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))

    def descriptors(self):
        return len(os.listdir("/proc/%d/fd" % self.process.pid))


class Island(harness.Member):
    """An agent that packet filters tell from others by its group, `uid`: it is root like them, so that all run the same users' tasks."""
    uid = None

    def spawn(self):
        with open(self.log_path, "a") as log:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, group=self.uid,
                                            extra_groups=[])
        return self

    def signal(self, number):
        self.process.send_signal(number)


class Lab:
    """`count` agents of one program, none started yet. The first is everybody's seed and is never a victim."""

    def __init__(self, directory, program, count):
        self.directory, self.program = directory, program
        self.patterns = {kind: re.compile(pattern) for kind, pattern in program.patterns.items()}
        self.selector, self.notes = selectors.DefaultSelector(), []
        self.count, self.members = count, []
        program.prepare(self)
        self.renew()

    def path(self, *parts):
        return os.path.join(self.directory, *parts)

    def renew(self):
        """Ends every agent and forgets all that it knew and said."""
        for member in self.members:
            if member.running():
                member.kill()
            member.close()
            shutil.rmtree(member.directory)
        self.notes.clear()
        self.members = [Member(self, index) for index in range(self.count)]
        self.by_name = {member.name: member for member in self.members}

    def start(self):
        """The first agent alone, then all others at once."""
        self.members[0].start()
        self.need(lambda: self.members[0].alive, "the first agent runs")
        for member in self.members[1:]:
            member.start()

    # -- time

    def pump(self, seconds, condition=None):
        """Reads log lines for that long, or until the condition holds; returns whether it does.

        The condition is looked at every LOOK seconds only: when something happened is what the notes say.
        """
        end = time.monotonic() + seconds
        while True:
            if condition is not None and condition():
                return True
            now = time.monotonic()
            if now >= end:
                return False
            turn = min(end, now + LOOK)
            while now < turn:
                for key, _ in self.selector.select(turn - now):
                    key.data.read()
                now = time.monotonic()

    def need(self, condition, what, seconds=PATIENCE):
        if not self.pump(seconds, condition):
            raise AssertionError("not within %d s: %s; %s" % (seconds, what() if callable(what) else what, self.state()))

    # -- what is known

    def others(self, *members):
        return [member for member in self.members if member not in members]

    def all_see_all(self, members=None):
        if members is None:
            return all(len(member.alive) >= len(self.members) for member in self.members)
        names = {member.name for member in members}
        return all(names <= member.alive for member in members)

    def await_whole(self, seconds=PATIENCE):
        self.need(self.all_see_all, "all see all", seconds)

    def since(self, mark, kind=None, subject=None):
        """Notes from number `mark` on (len(lab.notes) at some time), of a kind, of a member."""
        return [note for note in self.notes[mark:]
                if (kind is None or note.kind == kind) and (subject is None or note.subject == subject)]

    def first(self, mark, kind, subject):
        """{observer: when it first said so} since."""
        times = {}
        for note in self.since(mark, kind, subject):
            times.setdefault(note.observer, note.at)
        return times

    def known_to(self, members, mark, kind, subject):
        """Whether each of the members has said so since."""
        return {member.name for member in members} <= self.first(mark, kind, subject).keys()

    def state(self):
        """For people: who misses whom, and the last words of one of them."""
        lacking = {member.name: sorted({other.name for other in self.members} - member.alive) for member in self.members}
        lacking = {name: missed for name, missed in lacking.items() if missed}
        ended = [member.name for member in self.members if member.process is not None and member.process.poll() is not None]
        text = "%d of %d agents miss somebody: %s; ended: %s" % (len(lacking), len(self.members), dict(list(lacking.items())[:4]), ended)
        for name in (ended or list(lacking))[:1]:
            text += "\nlog of %s ends:\n%s" % (name, b"\n".join(self.by_name[name].tail).decode(errors="replace"))
        return text

    # -- what it costs

    def cost(self, seconds):
        """Per agent over that time: bytes and packets sent a second, share of one CPU; memory at the end (median). "of": bytes a
        second of each, without link headers."""
        with senders() as sent:
            before, cpu, start = loopback_sent(), sum(member.cpu_seconds() for member in self.members), time.monotonic()
            early = sent()
            self.pump(seconds)
            elapsed, after, late = time.monotonic() - start, loopback_sent(), sent()
        span = elapsed * len(self.members)
        cpu = sum(member.cpu_seconds() for member in self.members) - cpu
        return {"of": {member.name: (late.get(member.uid, 0) - early.get(member.uid, 0)) / elapsed for member in self.members},
                "bytes": (after[0] - before[0]) / span, "packets": (after[1] - before[1]) / span, "cpu": 100 * cpu / span,
                "memory": statistics.median(member.memory_kib() for member in self.members) / 1024,
                "descriptors": statistics.median(member.descriptors() for member in self.members)}


# ---- faults

TABLES, MARKS = itertools.count(), itertools.count(0x77)    # a connection keeps the mark of a cut that is over


def loopback(up):
    run("ip", "link", "set", "lo", "up" if up else "down")


def loopback_sent():
    with open("/proc/net/dev") as file:
        fields = next(line for line in file if line.strip().startswith("lo:")).split(":")[1].split()
    return int(fields[8]), int(fields[9])       # bytes, packets


@contextlib.contextmanager
def senders():
    """Counts what each user sends while the block runs: yields a function that gives bytes by user id."""
    table = "lab%d" % next(TABLES)

    def sent():
        listed = json.loads(run("nft", "-j", "list", "set", "inet", table, "sent"))["nftables"]
        elements = next(entry["set"] for entry in listed if "set" in entry).get("elem", [])
        return {entry["elem"]["val"]: entry["elem"]["counter"]["bytes"] for entry in elements}
    run("nft", "-f", "-", given="table inet %s {\nset sent { typeof meta skuid; flags dynamic; size 65535; }\n"
        "chain leaving { type filter hook output priority 0; update @sent { meta skuid counter }; }\n}\n" % table)
    try:
        yield sent
    finally:
        run("nft", "delete", "table", "inet", table)


@functools.cache
def track_connections():
    """From now on, without an end.

    The kernel tracks connections only while a filter asks about them. One that lives on from one cut to the next has left the window
    in which it was last seen: its packets would count as no connection's, have no mark, and pass the second cut.
    """
    run("nft", "-f", "-", given="table inet tracking { chain leaving { type filter hook output priority 0; ct state new; }\n}\n")


@contextlib.contextmanager
def filtered(*chains):
    """A packet filter while the block runs, beside others; yields a function that counts the packets it has dropped."""
    table = "lab%d" % next(TABLES)

    def dropped():
        return sum(int(count) for count in re.findall(r"counter packets (\d+)", run("nft", "list", "table", "inet", table)))
    run("nft", "-f", "-", given="table inet %s {\n%s\n}\n" % (table, "\n".join(chains)))
    try:
        yield dropped
    finally:
        run("nft", "delete", "table", "inet", table)


def loss(percent):
    """Of all packets, whatever the protocol."""
    return filtered("chain arriving { type filter hook input priority 0; numgen random mod 100 < %d counter drop; }" % percent)


def _from_to(senders, receivers, what):
    return "meta skgid { %s } ip daddr { %s } %s" % (
        ", ".join(str(member.uid) for member in senders), ", ".join(member.ip for member in receivers), what)


def cut(one, other, more=""):
    """No packet passes between the two groups; inside each all do.

    A client's address on loopback is 127.0.0.1, whoever it is: a connection is known by the group that sends to the other
    side's address, and marked, so that its answers are dropped too. Dropped on arrival: at the sender it would be an error.
    """
    track_connections()
    mark = "ct mark set %d" % next(MARKS)
    return filtered("chain leaving { type filter hook output priority 0; %s; %s; }" %
                    (_from_to(one, other, mark), _from_to(other, one, mark)),
                    "chain arriving { type filter hook input priority 0; %s counter drop; %s }" % (mark.replace(" set", ""), more))


def isolated(members, others):
    """As cut() from all others, and for those whose process dies then: not even the ends of its connections pass. cut() knows a
    connection once its client has sent; what a server's address sends is dropped here, whoever the client is."""
    return cut(members, others, "ip saddr { %s } counter drop;" % ", ".join(member.ip for member in members))


def cut_one_way(senders, receivers):
    """No packet of the senders arrives at the receivers; theirs do arrive."""
    track_connections()
    known, lost = next(MARKS), next(MARKS)
    return filtered("chain leaving { type filter hook output priority 0; %s; %s; meta skgid { %s } ct mark %d meta mark set %d; }" %
                    (_from_to(receivers, senders, "ct mark set %d" % known), _from_to(senders, receivers, "meta mark set %d" % lost),
                     ", ".join(str(member.uid) for member in senders), known, lost),
                    "chain arriving { type filter hook input priority 0; meta mark %d counter drop; }" % lost)


@contextlib.contextmanager
def stopped(members):
    """SIGSTOP, and SIGCONT when the block ends."""
    for member in members:
        member.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for member in members:
            member.signal(signal.SIGCONT)
