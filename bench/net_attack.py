"""An agent under a thousand bad connections a second: do pongs still come within 500 ms, does its memory stay flat?

    bench/net_attack.py [--quick]

Four agents in namespaces of their own; a fifth member (pong_probe) asks the first for a pong every 50 ms, before and during
the attack on it. A quarter each: connections that are closed at once; halves of a handshake, held; CURVE clients with a key
that the cluster does not know; the recorded bytes of a good handshake, sent again. *No member is called failed meanwhile, and
afterwards a new one can join.*
"""
import argparse
import collections
import multiprocessing
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time

import common
from common import need, need_packages, report, say

import agents_lab
from agents_lab import PORT

MEMBERS = 4
RATE = 250                      # a second, of each kind
PERIOD_MS = 50                  # between two pings of the probe
HOLD = 2                        # seconds that half a handshake is held
GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x01" + b"CURVE".ljust(20, b"\0") + b"\0" + bytes(31)    # ZMTP 3.1, client
AT_MOST = 600
SECONDS, SECONDS_QUICK = 120, 10
FLAT_MIB = 2                    # what memory may grow by in the second half of the attack: by then all that it takes is taken


def connect(victim):
    connection = socket.socket()
    connection.settimeout(0.5)
    try:
        connection.connect(victim)
        return connection
    except OSError:
        connection.close()
        return None


# ---- kinds of attack: each makes one bad connection per call; None keeps nothing open

def touch(victim, _):
    connection = connect(victim)
    return connection and connection.close()


def half_handshake(victim, _):
    connection = connect(victim)
    if connection:
        connection.send(GREETING[:random.choice((1, 10, 40, 64))])
    return connection


def wrong_key(victim, keys):
    import zmq
    client = zmq.Context.instance().socket(zmq.DEALER)
    client.linger, client.reconnect_ivl = 0, 10_000
    client.curve_publickey, client.curve_secretkey = zmq.curve_keypair()
    client.curve_serverkey = keys["public"] if random.random() < 0.5 else zmq.curve_keypair()[0]
    client.connect("tcp://%s:%d" % victim)
    return client


def replay(victim, keys):
    connection = connect(victim)
    if connection:
        connection.send(keys["recorded"])
    return connection


KINDS = (touch, half_handshake, wrong_key, replay)


def attack(kind, victim, keys, made):
    """Runs as its own process, at a steady rate, until it is ended."""
    held, due = collections.deque(), time.monotonic()
    while True:
        connection = kind(victim, keys)
        made.value += 1
        now = time.monotonic()
        if connection is not None:
            held.append((now + HOLD, connection))
        while held and held[0][0] <= now:
            held.popleft()[1].close()
        due = max(due + 1 / RATE, now - 0.1)        # what could not be done in time is left out
        time.sleep(max(0.0, due - now))


def record_handshake(victim, keys):
    """The bytes of a client that holds the cluster's key, through a listener in between."""
    import zmq
    recorded, listener = bytearray(), socket.create_server(("127.0.0.1", 0))

    def forward(source, target, keep):
        try:
            while data := source.recv(agents_lab.READ):
                if keep:
                    recorded.extend(data)
                target.sendall(data)
        except OSError:
            pass

    def serve():
        client, server = listener.accept()[0], socket.create_connection(victim)
        threading.Thread(target=forward, args=(server, client, False), daemon=True).start()
        forward(client, server, True)
        server.close()
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    context = zmq.Context()
    client = context.socket(zmq.DEALER)
    monitor, client.linger = client.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED), 0
    client.curve_publickey, client.curve_secretkey, client.curve_serverkey = keys["public"], keys["secret"], keys["public"]
    client.connect("tcp://127.0.0.1:%d" % listener.getsockname()[1])
    need(monitor.poll(10_000), "a client with the cluster's key gets through the handshake")
    client.disable_monitor()
    context.destroy(0)
    thread.join(5)
    listener.close()
    return bytes(recorded)


class PongProbe:
    """The latencies that bench/pong_probe.cpp prints, in seconds; what did not come within its limit is counted."""

    def __init__(self, lab, key, seed):
        self.samples, self.lost = [], 0
        self.process = subprocess.Popen([os.path.join(common.harness.BIN, "pong_probe"), key, "lab", "127.0.9.1", seed, str(PERIOD_MS)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, daemon=True).start()
        lab.need(lambda: self.samples, "a pong for the probe")

    def _read(self):
        for line in self.process.stdout:
            if line.strip() == "lost":
                self.lost += 1
            else:
                self.samples.append(int(line) / 1e6)

    def during(self, work):
        """Runs work(); returns the latencies of that time and how many were lost."""
        first, lost = len(self.samples), self.lost
        work()
        return self.samples[first:], self.lost - lost

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def measure(lab, options):
    lab.start()
    lab.await_whole()
    with open(lab.program.key) as file:
        public, secret = re.search(r"^dtrain-key-v1 ([0-9a-f]{64}) ([0-9a-f]{64})", file.read(), re.M).groups()
    keys = {"public": bytes.fromhex(public), "secret": bytes.fromhex(secret)}
    victim = lab.members[0]
    target = (victim.ip, PORT)
    keys["recorded"] = record_handshake(target, keys)
    probe = PongProbe(lab, lab.program.key, victim.ip)
    calm, calm_lost = probe.during(lambda: lab.pump(3 if options.quick else 10))
    memory, mark, seconds = [victim.memory_kib() / 1024], len(lab.notes), SECONDS_QUICK if options.quick else SECONDS
    counters = [multiprocessing.Value("q", 0, lock=False) for _ in KINDS]
    attackers = [multiprocessing.Process(target=attack, args=(kind, target, keys, made), daemon=True)
                 for kind, made in zip(KINDS, counters)]
    cpu = victim.cpu_seconds()
    begin = time.monotonic()
    for attacker in attackers:
        attacker.start()

    def watch():
        for _ in range(seconds):
            lab.pump(1)
            memory.append(victim.memory_kib() / 1024)
    under, lost = probe.during(watch)
    span = time.monotonic() - begin
    for attacker in attackers:
        attacker.kill()
        attacker.join()
    cpu = victim.cpu_seconds() - cpu
    need(under, "pongs come under attack at all")
    report("net_attack", "pong, in calm", "ms", [1000 * sample for sample in calm])
    report("net_attack", "pong, under attack", "ms", [1000 * sample for sample in under])
    report("net_attack", "pongs later than 500 ms or lost, under attack", "", [lost + len([s for s in under if s > 0.5])])
    report("net_attack", "pongs later than 500 ms or lost, in calm", "", [calm_lost + len([s for s in calm if s > 0.5])])
    for kind, made in zip(KINDS, counters):
        report("net_attack", "bad connections: " + kind.__name__, "1/s", [made.value / span])
    report("net_attack", "bad connections: all", "1/s", [sum(made.value for made in counters) / span])
    half = len(memory) // 2
    report("net_attack", "memory of the attacked agent, before", "MiB", memory[:1])
    report("net_attack", "memory of the attacked agent, half-way", "MiB", memory[half:half + 1])
    report("net_attack", "memory of the attacked agent, at the end", "MiB", memory[-1:])
    report("net_attack", "CPU of the attacked agent", "%", [100 * cpu / span])
    need(victim.running(), "the attacked agent lives")
    need(not lab.since(mark, "failed"), "nobody is called failed: %s" % lab.since(mark, "failed"))
    late = lab.members[-1]      # one leaves and comes again: the door still opens
    mark = len(lab.notes)
    late.kill()
    late.start()
    lab.need(lambda: lab.known_to(lab.others(late), mark, "restarted", late.name), "a member joins after the attack")
    probe.end()
    if not options.quick:       # too short to tell
        need(memory[-1] - memory[half] <= FLAT_MIB, "memory stays flat: %s MiB" % [round(value, 1) for value in memory])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a short attack, to see that it works")
    options = parser.parse_args()
    if agents_lab.INSIDE not in os.environ:
        need_packages("iproute2", "nftables", "python3-zmq")
    lab = agents_lab.Lab(agents_lab.enter(AT_MOST), agents_lab.Dtraind(), MEMBERS)
    try:
        measure(lab, options)
    except common.Violation as error:
        say("net_attack: violated: %s" % error)
        return 1
    except (AssertionError, OSError) as error:
        say("net_attack: could not measure: %s" % error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
