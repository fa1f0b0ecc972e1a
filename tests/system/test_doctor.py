"""`dtrainctl doctor`: a cluster that is well, one ill at a time and its cure, and a host without an agent.

In namespaces of its own: disks are filled, clocks are wrong, ports are taken and links are cut here.
"""
import json
import os
import re
import signal
import subprocess
import sys

import agents_lab
import harness
import test_members
from harness import BIN, task_ports, until

AT_MOST = 500                   # seconds for all tests
FAKETIME = "/usr/lib/%s-linux-gnu/faketime/libfaketime.so.1" % os.uname().machine
RANGE, RESERVED = ("/proc/sys/net/ipv4/ip_local_" + name for name in ("port_range", "reserved_ports"))


class Patient(harness.Member):
    """Its command can have something in front of it."""

    def command(self):
        return [*self.prefix, *super().command()]


def examine(agent, *arguments):
    """Exit code and findings."""
    done = agent.ctl("-o", "json", "doctor", *arguments)
    if done.returncode not in (0, 1, 4):
        raise harness.Refused("doctor: exit %d: %s" % (done.returncode, done.stderr))
    return done.returncode, json.loads(done.stdout)


def of(findings, check, level, node=None):
    return [f for f in findings if (f["check"], f["level"]) == (check, level) and node in (None, f["node"])]


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


class DoctorTest(test_members.Members):
    member = Patient

    def one(self, findings, check, level, node):
        """The only one of these, and it has a cure."""
        found = of(findings, check, level, node)
        self.assertEqual(len(found), 1, (check, level, node, json.dumps(findings, indent=1)))
        self.assertTrue(found[0]["cure"])
        return found[0]

    def found(self, agent, check, level, node, seconds=harness.PATIENCE):
        """Until the agent says so: what it knows of others may come late."""
        return until(lambda: of(examine(agent)[1], check, level, node), lambda: "%s %s of %s: %s" % (
            level, check, node, json.dumps(examine(agent)[1], indent=1)), seconds)[0]

    def gone(self, agent, check, level, node):
        until(lambda: not of(examine(agent)[1], check, level, node), lambda: "no %s %s of %s: %s" % (
            level, check, node, json.dumps(examine(agent)[1], indent=1)))

    def pair(self):
        """Three agents; the two that tests look at."""
        a1, a2, _ = self.cluster_of(3)
        for agent in (a1, a2):
            until(lambda: agent.ask("status")["coordinator"] and len(agent.ask("status")["quorum"]["voters"]) == 3, "three voters")
        return a1, a2

    def stranger(self, ip, port):
        """A program that is no task and listens there."""
        code = "import socket, sys, time\ns = socket.create_server((%r, %d))\nprint('up', flush=True)\ntime.sleep(1e6)" % (ip, port)
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (process.kill(), process.wait(), process.stdout.close()))
        self.assertEqual(process.stdout.readline(), "up\n")
        return process

    # ---- with agents

    def test_a_cluster_that_is_well(self):
        agents = self.cluster_of(3)
        for agent in agents:
            until(lambda: agent.ask("status")["coordinator"] and agent.ask("status")["ledger"], "a coordinator")
            code, findings = examine(agent)
            self.assertEqual((code, [f for f in findings if f["level"] == "bad"]), (0, []), findings)
            for finding in findings:
                self.assertEqual(list(finding), ["check", "node", "level", "finding", "cure"])
                self.assertIn(finding["level"], ("ok", "warn"))
                self.assertTrue(finding["finding"])
                self.assertEqual(bool(finding["cure"]), finding["level"] != "ok", finding)
            self.assertLessEqual({"ports", "task-ports", "names", "addresses", "clock", "limits", "cgroups", "gpus", "disk", "cluster",
                                  "reach"}, {f["check"] for f in findings})
            for other in agents:
                self.assertEqual(len(of(findings, "reach", "ok", other.name)), 0 if other is agent else 1, findings)
            self.assertEqual(len([f for f in of(findings, "clock", "ok") if "of 2 others" in f["finding"]]), 1, findings)
            text = agent.do("doctor")
            self.assertRegex(text, r"\n0 bad, \d+ warn, \d+ ok\n$")
            self.assertRegex(text, r"(?m)^ok +reach +a\d +both ports of ")
        # Looking does not disturb: nobody is suspected or refused for the connections that were tried.
        for agent in agents:
            for event in ("member.suspect", "member.down", "net."):
                self.assertNotIn(" event=" + event, agent.log(), agent.log())

    def test_a_disk_that_is_full(self):
        a1, a2 = self.pair()
        a3 = self.members["a3"]
        a3.end(signal.SIGTERM)
        small = self.path("small")
        os.mkdir(small)
        agents_lab.run("mount", "-t", "tmpfs", "-o", "size=64m", "small", small)
        self.addCleanup(lambda: (a3.end(), agents_lab.run("umount", small)))
        agents_lab.run("cp", "-a", a3.data, small)
        a3.data = os.path.join(small, "data")
        a3.start()
        until(lambda: a1.states()["a3"] == "alive", "its return")
        self.gone(a1, "disk", "bad", "a3")
        with open(os.path.join(small, "filler"), "wb") as file:
            room = os.statvfs(small)
            file.write(bytes(room.f_bavail * room.f_frsize - (room.f_blocks * room.f_frsize // 50)))     # 2 % are left
        for agent in (a3, a1):      # by itself, and by another
            found = self.found(agent, "disk", "bad", "a3")
            self.assertIn("less than storage.minFree", found["finding"])
            self.assertIn(small, found["finding"])
            self.assertIn("lower storage.minFree", found["cure"])
            self.assertEqual(examine(agent)[0], 1)
        self.assertIn("\n      cure: remove what is not needed", a1.ctl("doctor").stdout)
        os.remove(os.path.join(small, "filler"))
        self.gone(a1, "disk", "bad", "a3")

    def test_a_clock_that_is_wrong(self):
        a1, a2 = self.pair()
        if not os.path.exists(FAKETIME):
            raise AssertionError("libfaketime is missing: apt install faketime")
        a3 = self.members["a3"]
        a3.end(signal.SIGTERM)
        a3.prefix = ["env", "LD_PRELOAD=" + FAKETIME, "FAKETIME=-3600", "FAKETIME_DONT_FAKE_MONOTONIC=1"]
        a3.start()
        until(lambda: a1.states()["a3"] == "alive", "its return")
        for agent in (a1, a2, a3):      # its own, too: two of three agree
            found = self.found(agent, "clock", "bad", "a3")
            self.assertRegex(found["finding"], r"the clock of a3 is (3600|3599)\.\d s behind those of most members")
            self.assertIn("timesyncd", found["cure"])
            self.assertEqual(of(examine(agent)[1], "clock", "bad", "a1"), [])

    def test_ports_that_are_taken_or_overlap(self):
        a1, a2 = self.pair()
        taken = int(task_ports().split("-")[0]) + 17
        stranger = self.stranger(a2.ip, taken)
        found = self.one(examine(a1)[1], "task-ports", "warn", "a1")
        self.assertIn("%d by python3 (pid " % taken, found["finding"])
        self.assertIn("network.taskPorts", found["cure"])
        # A task's own is no stranger to its agent.
        listens = ("import socket, sys, time\nhost, port = sys.argv[1].split(':')\ns = socket.create_server((host, int(port)))\n"
                   "print('up', flush=True)\ntime.sleep(1e6)")
        worker = {"replicas": 1, "command": ["/usr/bin/python3", "-c", listens, "{task.address}"]}
        a1.do("submit", self.job_file("listens", {"worker": worker}))
        until(lambda: "up" in a1.do("logs", "listens", "worker-0"), "a task that listens")
        task = a1.ask("tasks", "listens")[0]
        words = self.one(examine(self.members[task["node"]])[1], "task-ports", "warn", task["node"])["finding"]
        self.assertIn("%d by " % taken, words)
        self.assertNotIn(task["address"].split(":")[1], words)
        stranger.kill()
        a1.do("cancel", "listens")
        self.gone(a1, "task-ports", "warn", "a1")
        with open(RANGE) as file:
            before = file.read()
        self.addCleanup(lambda: (write(RANGE, before), write(RESERVED, "\n")))
        write(RANGE, "15000 60999\n")
        found = self.one(examine(a1)[1], "task-ports", "warn", "a1")
        self.assertIn(task_ports() + " overlap 15000-60999", found["finding"])
        # The cure cures.
        setting = found["cure"].split("sysctl -w ")[1]
        self.assertEqual(setting, "net.ipv4.ip_local_reserved_ports=" + task_ports())
        write(RESERVED, setting.split("=")[1] + "\n")
        self.assertEqual(of(examine(a1)[1], "task-ports", "warn", "a1"), [])

    def test_a_member_with_another_key(self):
        a1, _ = self.pair()
        a3 = self.members["a3"]
        a3.end(signal.SIGTERM)
        a3.key = harness.make_key(os.path.join(a3.directory, "other.key"))
        a3.start()

        def named(agent):
            return [f for f in examine(agent)[1] if f["level"] == "bad" and "key" in f["finding"] + f["cure"]]
        found = until(lambda: named(a1), lambda: "the cause of it: %s" % examine(a1)[1])[0]
        self.assertEqual((found["check"], found["node"]), ("reach", "a3"))
        self.assertIn("sha256sum", found["cure"])
        self.assertNotIn("systemctl start", found["cure"])
        until(lambda: named(a3), lambda: "the cause of it: %s" % examine(a3)[1])
        for agent in (a1, a3):
            self.assertNotIn("descriptors-exhausted", agent.log())

    def test_a_member_that_does_not_answer(self):
        a1, a2 = self.pair()
        a3 = self.members["a3"]
        a3.process.send_signal(signal.SIGSTOP)
        self.addCleanup(lambda: a3.process.send_signal(signal.SIGCONT))
        found = self.one(examine(a1)[1], "reach", "bad", "a3")      # at once, while it still counts as alive
        self.assertRegex(found["finding"], "does not answer a1|no sign of life")
        until(lambda: a1.states()["a3"] == "dead", "its death")
        found = self.one(examine(a1)[1], "reach", "bad", "a3")
        self.assertIn("no sign of life at %s:7400" % a3.ip, found["finding"])
        self.assertIn("dtrainctl forget-node a3", found["cure"])
        a3.process.send_signal(signal.SIGCONT)
        self.gone(a1, "reach", "bad", "a3")
        a3.end()
        found = self.found(a1, "reach", "bad", "a3")
        until(lambda: a1.states()["a3"] == "down", "its agent is gone")
        self.assertIn("its agent is down, and its host is up", self.one(examine(a1)[1], "reach", "bad", "a3")["finding"])
        self.assertEqual(examine(a1)[0], 1)

    def test_a_port_that_a_firewall_closes(self):
        a1, a2 = self.pair()
        closed = "ip daddr %s tcp dport 7401 tcp flags & (syn | ack) == syn counter drop" % a2.ip
        with agents_lab.filtered("chain leaving { type filter hook output priority 0; %s; }" % closed):
            found = self.found(a1, "reach", "bad", "a2")
            self.assertIn("a1 cannot connect to %s:7401 (bulk): there is no answer" % a2.ip, found["finding"])
            self.assertIn("let TCP ports 7400 and 7401 through to a2", found["cure"])
            # The one behind it hears it from those that can still tell it, and misses the answers of those that cannot.
            findings = [f for f in examine(a2)[1] if (f["check"], f["level"]) == ("reach", "bad")]
            self.assertEqual(len(findings), 2, findings)
            for found in findings:
                self.assertRegex(found["finding"],
                                 r"a\d cannot connect to %s:7401 \(bulk\)|its agent does not answer a2" % re.escape(a2.ip))
                self.assertIn("let TCP ports 7400 and 7401 through to a2", found["cure"])
        self.gone(a1, "reach", "bad", "a2")

    def test_a_lost_majority_and_a_host_without_a_cluster(self):
        a1, a2 = self.pair()
        for name in ("a2", "a3"):
            self.members[name].end()
        found = self.found(a1, "cluster", "bad", "a1")
        self.assertIn("no coordinator is known", found["finding"])
        lonely = self.make("a4", 4, [self.ip_of(5)]).start()
        found = self.one(examine(lonely)[1], "cluster", "bad", "a4")
        self.assertIn("this host belongs to no cluster: it waits for", found["finding"])
        self.assertIn("network.join", found["cure"])

    # ---- without one

    def test_a_host_without_an_agent(self):
        data = self.path("data")
        config = self.write("dtraind.yaml", json.dumps({
            "network": {"listen": self.ip + ":7400", "keyFile": self.key, "taskPorts": "20000-29999", "join": ["no-such-host.invalid"]},
            "node": {"name": "n9"}, "paths": {"data": data, "run": self.path("run")}, "storage": {"minFree": "1Mi"}}))

        def look(file=config):
            done = subprocess.run([os.path.join(BIN, "dtrainctl"), "--agent", self.path("no.sock"), "-o", "json", "doctor",
                                   "--config", file], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 4, done)
            self.assertIn("no agent answers", done.stderr)
            return json.loads(done.stdout)
        findings = look()
        agent = self.one(findings, "agent", "bad", "n9")
        self.assertIn("no.sock", agent["finding"])
        self.assertIn("systemctl start dtraind", agent["cure"])
        self.assertEqual([f for f in findings if f["level"] == "bad"], [agent], findings)
        self.assertEqual(len(of(findings, "ports", "ok")), 1, findings)
        self.assertIn("no-such-host.invalid", self.one(findings, "names", "warn", "n9")["finding"])
        stranger = self.stranger(self.ip, 7401)
        taken = self.one(look(), "ports", "bad", "n9")
        self.assertIn("the port is taken by python3 (pid %d)" % stranger.pid, taken["finding"])
        self.assertIn("stop that program", taken["cure"])
        wrong = self.one(look(self.write("wrong.yaml", "network: {lisden: 1}\n")), "config", "bad", None)
        self.assertIn("lisden", wrong["finding"])
        self.assertIn("does-not-exist", self.one(look(self.path("does-not-exist")), "config", "bad", None)["finding"])


if __name__ == "__main__":
    agents_lab.enter(AT_MOST)
    harness.main()
