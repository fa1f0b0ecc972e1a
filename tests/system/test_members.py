"""Several agents that know each other: who is there, who is gone, who returned, who is refused, asked from any of them."""
import json
import os
import shutil
import signal
import stat
import subprocess
import unittest

import harness
from harness import Member, Refused, SystemTest, until


class Members(SystemTest):
    """Starts no agent by itself; self.members holds those that a test starts, of the kind `member`."""
    member = Member

    def start(self):
        self.members = {}
        self.key = self.make_key("cluster.key")

    def make_key(self, name):
        return harness.make_key(self.path(name))

    def ip_of(self, number):
        return self.ip.rsplit(".", 1)[0] + "." + str((int(self.ip.rsplit(".", 1)[1]) + 40 * number) % 250 + 1)

    def make(self, name, number, joins=(), key=None, cluster="test", directory=None):
        member = self.member(self.top, directory or name, self.ip_of(number), self.key if key is None else key, joins, cluster)
        member.name = name
        self.addCleanup(lambda: member.process and member.process.poll() is None and member.end())
        self.members[directory or name] = member
        return member

    def cluster_of(self, count):
        first = self.make("a1", 1).start()
        others = [self.make("a%d" % i, i, [first.ip]).start() for i in range(2, count + 1)]
        self.wait_states({m.name: "alive" for m in [first, *others]})
        return [first, *others]

    def wait_states(self, wanted, of=None, seconds=harness.PATIENCE):
        """Until every agent that runs says exactly this of all nodes."""
        seen = {}

        def agreed():
            for name, member in self.members.items():
                if (of is None or member in of) and member.process and member.process.poll() is None:
                    seen[name] = member.states()
            return all(states == wanted for states in seen.values()) and seen
        until(agreed, lambda: "%s at all; seen: %s" % (wanted, seen), seconds)


class MembersTest(Members):
    # ---- who is there

    def test_all_know_all_and_answer_from_anywhere(self):
        a1, a2, a3 = self.cluster_of(3)
        for member in (a1, a2, a3):
            status = until(lambda: (s := member.ask("status")) and s["coordinator"] and s, "a coordinator at " + member.name)
            self.assertEqual(status["coordinator"]["node"], "a1")
            self.assertEqual(status["nodes"], {"alive": 3, "suspect": 0, "down": 0, "dead": 0, "left": 0})
            self.assertEqual(status["cluster"]["id"], a1.ask("status")["cluster"]["id"])
            until(lambda: member.ask("status")["ledger"], "a copy of the ledger at " + member.name)
            self.assertFalse(status["stale"])
            nodes = until(lambda: (n := member.nodes()) and all(x["cpus"]["total"] for x in n.values()) and
                          {n: x["role"] for n, x in n.items()} == {"a1": "coordinator", "a2": "voter", "a3": "voter"} and n,
                          lambda: "all facts at %s: %s" % (member.name, member.nodes()))
            self.assertEqual({x["address"] for x in nodes.values()}, {m.ip + ":7400" for m in (a1, a2, a3)})
            self.assertTrue(all(x["key_print"] and x["version"] for x in nodes.values()), nodes)
            self.assertEqual(member.ask("describe", "node", "a2")["id"], nodes["a2"]["id"])
            self.assertRegex(member.do("topology", "a2"), r"^machine: \d+ (core|thread)")  # threads where there is no /sys
            for known in ("a1", "a2", "a3"):
                self.assertEqual(member.saw("member.alive", known), 1, member.log())
            self.assertEqual({e["object"] for e in member.events() if e["type"] == "member.alive"}, {"a1", "a2", "a3"})
            self.assertEqual(member.ctl("describe", "node", "a9").returncode, 3)
            seqs = [e["seq"] for e in member.events()]
            self.assertEqual(seqs, sorted(seqs))
            self.assertEqual(member.ctl("jobs").returncode, 0)

    def test_events_are_followed(self):
        a1, a2 = self.cluster_of(2)
        follow = subprocess.Popen(a1.ctl_command("-o", "json", "events", "-f"), stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (follow.kill(), follow.communicate()))
        self.make("a3", 3, [a2.ip]).start()
        for line in follow.stdout:
            event = json.loads(line)
            if event["type"] == "member.alive" and event["object"] == "a3":
                break
        else:
            self.fail("the stream ended")

    # ---- death and return

    def test_a_killed_agent_is_down_and_returns(self):
        a1, a2, a3 = self.cluster_of(3)
        a3.end()
        self.wait_states({"a1": "alive", "a2": "alive", "a3": "down"}, seconds=10)
        self.assertEqual(a1.ask("status")["nodes"]["down"], 1)
        a3.start()
        self.wait_states({"a1": "alive", "a2": "alive", "a3": "alive"})
        for other in (a1, a2):
            until(lambda: other.saw("member.restarted", "a3"), "member.restarted at " + other.name)
            self.assertEqual(other.saw("member.down", "a3"), 1)
            self.assertEqual(other.saw("member.dead", "a3"), 0)

    def test_a_stopped_agent_says_so_and_all_return(self):
        a1, a2, a3 = self.cluster_of(3)
        self.assertEqual(a2.end(signal.SIGTERM), 0)
        self.wait_states({"a1": "alive", "a2": "down", "a3": "alive"}, seconds=10)
        until(lambda: a1.saw("member.down", "a2", reason="restarting"), "its own word for it")
        before = a1.ask("status")
        # All at once, the founder too: each finds the others by what it kept.
        for member in (a1, a3):
            member.end(signal.SIGTERM)
        for member in (a3, a2, a1):
            member.spawn()
        self.wait_states({"a1": "alive", "a2": "alive", "a3": "alive"})
        after = until(lambda: (s := a2.ask("status")) and s["coordinator"] and s, "the coordinator's return")
        self.assertEqual(after["cluster"]["id"], before["cluster"]["id"])
        self.assertGreater(after["coordinator"]["epoch"], before["coordinator"]["epoch"])

    def test_the_founder_dies_and_returns(self):
        a1, a2 = self.cluster_of(2)
        until(lambda: (s := a2.ask("status"))["coordinator"] and s["ledger"] and not s["stale"], "a copy of the ledger at a2")
        a1.end()
        until(lambda: a2.ask("status")["coordinator"] is None, "its loss", 10)
        status = a2.ask("status")
        self.assertTrue(status["stale"])
        self.assertEqual(status["nodes"]["down"], 1)
        self.assertEqual(a2.ctl("jobs").returncode, 0)              # what its copy says
        a1.start()
        until(lambda: a2.ask("status")["coordinator"], "the coordinator's return")

    def test_a_pause_is_no_death(self):
        a1, a2, a3 = self.cluster_of(3)
        a3.process.send_signal(signal.SIGSTOP)
        until(lambda: a1.saw("member.suspect", "a3") and a2.saw("member.suspect", "a3"), "its silence to be noticed", 10)
        a3.process.send_signal(signal.SIGCONT)
        self.wait_states({"a1": "alive", "a2": "alive", "a3": "alive"})
        for other in (a1, a2):
            self.assertEqual(other.saw("member.dead", "a3") + other.saw("member.down", "a3"), 0, other.log())

    def test_another_address_and_a_lost_disk(self):
        a1, a2, a3 = self.cluster_of(3)
        a3.end(signal.SIGTERM)
        a3.ip = self.ip_of(4)
        a3.start()
        until(lambda: all(m.nodes()["a3"]["address"] == a3.ip + ":7400" and m.nodes()["a3"]["state"] == "alive"
                          for m in (a1, a2)), "the new address")
        old = a1.nodes()["a3"]["id"]
        a3.end()
        shutil.rmtree(a3.data)
        a3.start()
        until(lambda: all(m.nodes()["a3"]["id"] != old and m.nodes()["a3"]["state"] == "alive" for m in (a1, a2)),
              lambda: "the new id at all: %s" % a1.ask("nodes"))

    # ---- leaving

    def test_leave_and_forget(self):
        a1, a2, a3 = self.cluster_of(3)
        self.assertEqual(a1.ctl("forget-node", "a2").returncode, 5)   # it lives
        self.assertEqual(a1.ctl("forget-node", "a9").returncode, 3)
        a3.do("leave")
        a3.do("leave")                                              # again: nothing else happens
        self.wait_states({"a1": "alive", "a2": "alive", "a3": "left"}, of=(a1, a2))
        self.assertIn("left", a3.ask("status")["waiting_for"])
        a3.end(signal.SIGTERM)
        a3.start()                                                  # with --join as before: it stays away
        self.assertIn("left", a3.ask("status")["waiting_for"])
        self.assertEqual(a1.states()["a3"], "left")
        until(lambda: a1.ask("status")["quorum"]["voters"] == ["a1"], "a council of one: two members are left")
        a2.end()
        until(lambda: a1.states()["a2"] == "down", "its death", 10)
        a1.do("forget-node", "a2")
        self.assertEqual(a1.states()["a2"], "left")
        self.assertEqual(a1.saw("member.left", "a2") + a1.saw("member.left", "a3"), 2)

    # ---- who is refused

    def test_a_wrong_key_is_refused_and_said(self):
        a1, a2 = self.cluster_of(2)
        stranger = self.make("x1", 5, [a1.ip], key=self.make_key("other.key")).start()
        until(lambda: "event=net.refused" in a1.log(), lambda: "the refusal in the log: " + a1.log()[-1500:])
        until(lambda: "x1" not in a1.states() and stranger.ask("status")["waiting_for"], "the stranger to wait")
        self.assertEqual(stranger.ctl("jobs").returncode, 4)

    def test_another_cluster_is_refused_and_said(self):
        a1, a2 = self.cluster_of(2)
        stranger = self.make("x1", 5, [a1.ip], cluster="other").start()
        until(lambda: "this is cluster test" in stranger.log(), lambda: "the refusal in the log: " + stranger.log()[-1500:])
        self.assertIn("this is cluster test", stranger.ask("status")["waiting_for"])
        self.assertEqual(a1.states(), {"a1": "alive", "a2": "alive"})

    def test_a_stolen_name_is_a_conflict(self):
        a1, a2 = self.cluster_of(2)
        known = a1.nodes()["a2"]["id"]
        thief = self.make("a2", 5, [a1.ip], directory="thief").start()
        until(lambda: a1.saw("member.conflict", "a2"), lambda: "the conflict in the log: " + a1.log()[-1500:])
        until(lambda: "event=member.refused" in thief.log(), lambda: "the refusal in its log: " + thief.log()[-1500:])
        self.assertEqual(a1.nodes()["a2"]["id"], known)
        self.assertEqual(a1.states(), {"a1": "alive", "a2": "alive"})

    def test_files_that_are_no_key(self):
        others = self.path("others.key")
        shutil.copy(self.key, others)
        os.chmod(others, 0o644)
        broken = self.write("broken.key", "not a key\n")
        os.chmod(broken, 0o600)
        keys = [(others, 77), (broken, 78), (self.path("none.key"), 66)]
        if os.geteuid() == 0:
            foreign = shutil.copy(self.key, self.path("foreign.key"))
            os.chmod(foreign, 0o600)
            os.chown(foreign, 65534, 0)
            keys.append((foreign, 77))
        for key, code in keys:
            member = self.make("k%d" % code, 6, key=key)
            member.spawn()
            self.assertEqual(member.process.wait(harness.PATIENCE), code, member.log())
            self.assertIn(key, member.log())

    # ---- while it runs

    def test_a_key_is_changed_without_a_restart(self):
        a1, a2 = self.cluster_of(2)
        first = a1.nodes()["a1"]["key_print"]
        subprocess.run([os.path.join(harness.BIN, "dtrainctl"), "keygen", "--add", self.key], check=True, capture_output=True)
        for member in (a1, a2):     # both accept both
            member.process.send_signal(signal.SIGHUP)
            until(lambda: "event=net.keys-replaced" in member.log(), "the keys to be read")
        with open(self.key) as file:
            lines = file.read().splitlines()
        comments, keys = [l for l in lines if l.startswith("#")], [l for l in lines if l and not l.startswith("#")]
        with open(self.key, "w") as file:
            file.write("\n".join(comments + keys[::-1]) + "\n")
        for member in (a1, a2):     # the new one serves
            member.process.send_signal(signal.SIGHUP)
        until(lambda: all(n["key_print"] != first and n["state"] == "alive" for m in (a1, a2) for n in m.nodes().values()),
              lambda: "the new key at all: %s" % a1.ask("nodes"))
        for member in (a1, a2):
            self.assertEqual(member.saw("member.dead", "a1") + member.saw("member.dead", "a2"), 0)

    def test_labels_are_changed_without_a_restart(self):
        a1, a2 = self.cluster_of(2)
        config = self.write("a2.yaml", "node: {labels: {zone: a}}\n")
        a2.end(signal.SIGTERM)
        a2.options = ["--config", config]
        a2.start()
        until(lambda: a1.nodes()["a2"]["labels"] == {"zone": "a"}, "the label")
        self.write("a2.yaml", "node: {labels: {zone: b}}\n")
        a2.process.send_signal(signal.SIGHUP)
        until(lambda: a1.nodes()["a2"]["labels"] == {"zone": "b"}, "the new label")


class AloneTest(Members):
    def test_without_a_key_each_has_one_of_its_own(self):
        a1 = self.make("a1", 1, key="").start()
        own = os.path.join(a1.data, "cluster.key")
        self.assertEqual(stat.S_IMODE(os.stat(own).st_mode), 0o600)
        self.assertIn("event=network.key-made file=" + own, a1.log())
        print_of_a1 = a1.nodes()["a1"]["key_print"]
        self.assertNotEqual(print_of_a1, "")
        a2 = self.make("a2", 2, [a1.ip], key="").start()
        until(lambda: "event=net.refused reason=handshake" in a1.log(), lambda: "the refusal in the log: " + a1.log()[-1500:])
        self.assertEqual(a1.states(), {"a1": "alive"})
        # Who is given that key is let in; and it stays the agent's over its lives.
        a2.end()
        a2.key = shutil.copy2(own, self.path("copied.key"))
        a2.start()
        self.wait_states({"a1": "alive", "a2": "alive"})
        a1.end()
        a1.start()
        self.wait_states({"a1": "alive", "a2": "alive"})
        self.assertEqual({node["key_print"] for node in a1.nodes().values()}, {print_of_a1})
        self.assertIn("event=network.own-key file=" + own, a1.log())

    def test_waiting_is_said(self):
        lonely = self.make("a1", 1, [self.ip_of(9)]).start()
        self.assertIn("--join", lonely.ask("status")["waiting_for"])
        self.assertIsNone(lonely.ask("status")["coordinator"])
        self.assertIn("event=agent.waiting", lonely.log())
        refused = lonely.ctl("jobs")
        self.assertEqual(refused.returncode, 4)
        self.assertIn("belongs to no cluster", refused.stderr)
        self.assertRaises(Refused, lonely.do, "leave")


if __name__ == "__main__":
    unittest.main(verbosity=2)
