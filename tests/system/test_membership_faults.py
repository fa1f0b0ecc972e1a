"""Twelve agents, encrypted, in namespaces of their own: what happens to machines and networks happens to them.

One cluster goes through all tests; each begins when all see all again. Bounds are generous: how fast it goes is bench/'s.
"""
import json
import os
import re
import resource
import socket
import subprocess
import time
import unittest

import agents_lab
from agents_lab import PORT, Dtraind, Lab, cut, loopback, stopped

COUNT = 12
AT_MOST = 400                   # seconds for all tests
FROZEN = int(os.environ.get("DTRAIN_FROZEN_SECONDS", "12"))    # how long the whole machine is; tests/run.sh --soak: a minute
LATE = 4                        # seconds in which a false alarm after a fault would still come
HOUR = 3600
FAKETIME = "/usr/lib/%s-linux-gnu/faketime/libfaketime.so.1" % os.uname().machine
LAB = None


class MembershipFaults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = Lab(LAB, Dtraind(), COUNT)

    @classmethod
    def tearDownClass(cls):
        cls.lab.renew()

    def setUp(self):
        if not all(member.running() for member in self.lab.members):
            self.lab.renew()    # the first test, or one before has left it broken
            self.lab.start()
        self.lab.await_whole()
        self.mark = len(self.lab.notes)

    # -- helpers

    def ask(self, member, *arguments):
        done = subprocess.run([os.path.join(self.lab.program.bin, "dtrainctl"), "--agent",
                               os.path.join(member.directory, "run", "control.sock"), "-o", "json", *arguments],
                              capture_output=True, text=True, timeout=30)
        self.assertEqual(done.returncode, 0, "dtrainctl %s at %s: %s" % (" ".join(arguments), member.name, done.stderr))
        return json.loads(done.stdout)

    def all_say(self, kind, subject, members=None):
        members = members or self.lab.others(subject)
        self.lab.need(lambda: self.lab.known_to(members, self.mark, kind, subject.name),
                      lambda: "%s of %s by all; by %s" % (kind, subject.name, sorted(self.lab.first(self.mark, kind, subject.name))))

    def nobody_failed(self):
        self.assertEqual(self.lab.since(self.mark, "failed"), [])

    def says(self, member, what):
        self.lab.need(lambda: any(what in line for line in member.tail), "%s in the log of %s" % (what, member.name))

    def a_death_is_noticed(self, victim):
        """The cluster works: everybody hears of a death and of the return."""
        self.mark = len(self.lab.notes)
        victim.kill()
        self.all_say("failed", victim)
        self.mark = len(self.lab.notes)
        victim.start()
        self.all_say("alive", victim)
        self.lab.await_whole()

    # -- processes

    def test_kill_and_restart(self):
        victim = self.lab.members[5]
        victim.kill()
        self.all_say("failed", victim)
        self.mark = len(self.lab.notes)
        victim.start()
        self.all_say("alive", victim)
        self.all_say("restarted", victim)
        self.lab.await_whole()

    def test_restart_at_once(self):
        """Nobody needs to have noticed the death to hear that it is another life."""
        victim = self.lab.members[4]
        victim.kill()
        victim.start()
        self.all_say("restarted", victim)
        self.lab.await_whole()

    def test_restart_with_another_address(self):
        victim = self.lab.members[6]
        victim.kill()
        self.all_say("failed", victim)
        victim.move()
        self.addCleanup(victim.move, back=True)
        self.mark = len(self.lab.notes)
        victim.start()
        self.all_say("alive", victim)
        self.lab.await_whole()
        for member in (self.lab.members[0], self.lab.members[7]):
            known = {node["name"]: node for node in self.ask(member, "nodes")}
            self.assertEqual(len(known), COUNT)
            self.assertIn(victim.ip, known[victim.name]["address"])

    def test_stopped_for_five_seconds(self):
        with stopped([self.lab.members[3]]):
            self.lab.pump(5)
        self.lab.pump(LATE)
        self.nobody_failed()

    def test_frozen_until_all_call_it_dead(self):
        victim = self.lab.members[2]
        with stopped([victim]):
            self.all_say("suspect", victim)
            self.all_say("failed", victim)
        self.lab.await_whole()
        self.assertEqual([note for note in self.lab.since(self.mark, "failed") if note.subject != victim.name], [])

    def test_all_frozen_at_once(self):
        """A suspended machine: nobody was there to answer, so nobody is accused."""
        with stopped(self.lab.members):
            time.sleep(FROZEN)
        self.lab.pump(LATE)
        self.nobody_failed()
        for member in self.lab.members[:3]:
            self.says(member, b"stalled")
        self.a_death_is_noticed(self.lab.members[1])

    # -- networks

    def test_cut_in_halves(self):
        """Neither half is a majority: each waits for the other, and both find together again."""
        one, other = self.lab.members[::2], self.lab.members[1::2]
        names = [{member.name for member in half} for half in (one, other)]
        def not_missed():
            seen = {member.name: member.alive & names[1] for member in one} | {member.name: member.alive & names[0] for member in other}
            return {name: sorted(still) for name, still in seen.items() if still}
        with cut(one, other):
            self.lab.need(lambda: not not_missed(), lambda: "each half misses the other, but for %s" % not_missed())
            self.lab.pump(8)    # longer than a suspicion lasts
        self.lab.await_whole()
        for half in names:
            self.assertEqual([note for note in self.lab.since(self.mark, "failed") if {note.observer, note.subject} <= half], [])

    def test_minority_cut_off(self):
        """The majority calls the others failed; the few that see a majority vanish call nobody so."""
        few, many = self.lab.members[8:], self.lab.members[:8]
        with cut(few, many):
            for member in few:
                self.all_say("failed", member, many)
            self.lab.pump(LATE)
        names = {member.name for member in few}
        self.assertEqual([note for note in self.lab.since(self.mark, "failed") if note.observer in names], [])
        self.lab.await_whole()
        self.a_death_is_noticed(self.lab.members[9])

    def test_interface_down_and_up(self):
        loopback(False)
        self.addCleanup(loopback, True)
        # An agent that nobody answers doubts itself and asks ever more slowly: the last ones are suspected late.
        self.lab.need(lambda: all(len(member.alive) <= COUNT // 2 for member in self.lab.members), "each misses half of the others")
        loopback(True)
        self.lab.await_whole()
        self.a_death_is_noticed(self.lab.members[8])

    # -- resources and clocks

    def test_descriptors_run_out(self):
        """It says so, does not spin, and goes on when there are some again."""
        victim = self.lab.members[9]
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

        def limit(count):
            # As its own user: root may lack the capability to do it to others.
            subprocess.run(["prlimit", "--pid", str(victim.process.pid), "--nofile=%d:%d" % (count, most)], check=True,
                           user=victim.uid, group=victim.uid, extra_groups=[])
        limit(victim.descriptors() + 8)
        connections = [socket.create_connection((victim.ip, PORT), 10) for _ in range(40)]
        self.says(victim, b"descriptors-exhausted")
        before = victim.cpu_seconds()
        self.lab.pump(3)
        self.assertLess(victim.cpu_seconds() - before, 1.5, "it spins while it waits for descriptors")
        for connection in connections:
            connection.close()
        limit(most)
        self.lab.await_whole()
        lived = victim.process.pid
        self.a_death_is_noticed(self.lab.members[10])
        self.assertTrue(victim.running() and victim.process.pid == lived)

    def test_clock_jumps_by_hours(self):
        """The wall clock decides nothing."""
        jumper, offset = self.lab.members[11], self.lab.path("offset")

        def set_clock(hours):
            with open(offset + ".new", "w") as file:
                file.write("%+d\n" % (hours * HOUR))
            os.rename(offset + ".new", offset)
        set_clock(0)
        jumper.kill()
        jumper.environment = {"LD_PRELOAD": FAKETIME, "FAKETIME_TIMESTAMP_FILE": offset, "FAKETIME_NO_CACHE": "1",
                              "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        self.addCleanup(jumper.environment.clear)
        jumper.start()
        self.all_say("restarted", jumper)
        self.lab.await_whole()
        self.mark = len(self.lab.notes)
        for hours in (7, -30):
            set_clock(hours)
            self.lab.pump(LATE)
        self.nobody_failed()
        self.a_death_is_noticed(self.lab.members[7])
        stamps = re.findall(rb"time=(\d+-\d+-\d+T\d+)", b"\n".join(jumper.tail))
        self.assertIn(time.strftime("%Y-%m-%dT%H", time.gmtime(time.time() - 30 * HOUR)).encode(), stamps, "its clock has not jumped")


if __name__ == "__main__":
    LAB = agents_lab.enter(AT_MOST)
    unittest.main(verbosity=2)
