"""Three hosts with a real systemd, the Debian package, one key and one `join` line: a cluster, over which a job trains while the package is
upgraded on one host after the other; a host whose power is cut comes back by itself."""
import json
import unittest

import hosts_lab
from harness import main

AT_MOST = 300       # seconds, of all of it
LINES = "cluster: {name: lab, expect: 3}\nnetwork: {join: [h1, h2, h3]}\ntiming: {downGrace: 60s}\n" \
        "access: {users: {dtrain: submit}}\n"
JOB = {"apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": "train"},
       "spec": {"framework": "generic", "policy": {"placement": "spread"},
                "roles": {"worker": {"replicas": 3, "command": ["sleep", "1000000"], "resources": {"gpus": 1}}}}}


class Cluster(unittest.TestCase):
    """One story in the order of its tests."""
    lab = packages = None

    @classmethod
    def setUpClass(cls):
        cls.packages = [cls.lab.package(revision) for revision in (1, 2)]

    def tasks(self):
        found = json.loads(self.lab.hosts[0].does("dtrainctl", "-o", "json", "tasks", "train"))
        return {task["task"]: (task["state"], task["node"], task["pid"], task["attempt"]) for task in found}

    def all_run(self):
        return self.lab.until(lambda: {task[0] for task in self.tasks().values()} == {"Running"} and self.tasks(),
                              lambda: "three tasks: %s" % self.tasks())

    def all_alive(self):
        for host in self.lab.hosts:
            self.lab.until(lambda: "; 3 of 3 members alive" in host.status() and host.status().startswith("coordinator h"),
                           lambda: "%s: %s\n%s" % (host.name, host.status(), host.journal("dtraind")[-1500:]))

    def test_1_a_cluster(self):
        h1, h2, h3 = self.lab.hosts
        for host in self.lab.hosts:
            host.install(self.packages[0])
        h1.does("dtrainctl", "keygen", "/etc/dtrain/cluster.key")
        for host in self.lab.hosts:
            if host is not h1:
                host.write("/etc/dtrain/cluster.key", h1.does("cat", "/etc/dtrain/cluster.key"), 0o600)
            host.write("/etc/dtrain/dtraind.yaml", LINES)
            host.write("/etc/default/dtraind", 'DTRAIND_FLAGS="--gpus 2"\n')
            host.does("systemctl", "restart", "dtraind")
        self.all_alive()

    def test_1b_doctor_finds_nothing_bad_and_what_is(self):
        h1, h2, _ = self.lab.hosts

        def look(host, *as_whom):
            done = host.tries(*as_whom, "dtrainctl", "-o", "json", "doctor")
            return done.returncode, json.loads(done.stdout), done
        for host in self.lab.hosts:
            code, found, done = look(host, "runuser", "-u", "dtrain", "--")
            self.assertEqual((code, [f for f in found if f["level"] == "bad"]), (0, []), done)
            self.assertEqual(sorted(f["node"] for f in found if (f["check"], f["level"]) == ("reach", "ok")),
                             sorted(other.name for other in self.lab.hosts if other is not host), found)
            self.assertEqual([f for f in found if f["check"] in ("names", "addresses") and f["level"] != "ok"], [])
        h2.does("systemctl", "stop", "dtraind")
        code, found, done = look(h2)
        self.assertEqual(code, 4, done)
        self.assertEqual([f["check"] for f in found if f["level"] == "bad"], ["agent"], found)
        self.assertIn("systemctl start dtraind", found[0]["cure"])
        away = self.lab.until(lambda: [f for f in look(h1)[1] if (f["check"], f["node"], f["level"]) == ("reach", "h2", "bad")],
                              lambda: "h2 to be missed: %s" % look(h1)[1])
        self.assertIn("systemctl start dtraind", away[0]["cure"])
        h2.does("systemctl", "start", "dtraind")
        self.all_alive()

    def test_2_trains_while_each_host_is_upgraded(self):
        self.lab.hosts[0].does("runuser", "-u", "dtrain", "--", "dtrainctl", "submit", "-", given=json.dumps(JOB))
        before = self.all_run()
        self.assertEqual({node for _, node, _, _ in before.values()}, {"h1", "h2", "h3"})
        for host in self.lab.hosts:
            # Each task a service of its own.
            units = host.does("systemctl", "list-units", "--plain", "--no-legend", "dtrain-[0-9]*.service")
            self.assertRegex(units, r"-[0-9a-f]{8}\.service ")
            agent = host.shows("dtraind", "MainPID")["MainPID"]
            host.install(self.packages[1])
            self.assertNotEqual(host.shows("dtraind", "MainPID")["MainPID"], agent)
            self.all_alive()
        self.assertEqual(self.all_run(), before)
        job = json.loads(self.lab.hosts[0].does("dtrainctl", "-o", "json", "jobs"))[0]
        self.assertEqual((job["state"], job["restarts"], job["generation"]), ("Running", 0, 1))

    def test_2b_nor_does_it_notice_what_becomes_of_an_agent(self):
        before = self.all_run()
        h1, h2, h3 = self.lab.hosts
        # A loop that is stuck, noticed after the test's time.
        h3.write("/etc/systemd/system/dtraind.service.d/watchdog.conf", "[Service]\nWatchdogSec=4s\n")
        h3.does("systemctl", "daemon-reload")
        h3.does("systemctl", "restart", "dtraind")
        self.all_alive()
        for host, what in ((h1, ["restart", "dtraind"]), (h2, ["kill", "--kill-whom=main", "--signal=KILL", "dtraind"]),
                           (h3, ["kill", "--kill-whom=main", "--signal=STOP", "dtraind"])):
            agent = host.shows("dtraind", "MainPID")["MainPID"]
            host.does("systemctl", *what)
            self.lab.until(lambda host=host, agent=agent: host.shows("dtraind", "MainPID")["MainPID"] not in ("0", agent),
                           lambda host=host: "another agent on %s: %s" % (host.name, host.journal("dtraind")[-1500:]))
            self.all_alive()
        self.assertIn("Watchdog timeout", h3.journal("dtraind"))
        for host in self.lab.hosts:
            host.does("systemctl", "daemon-reexec")
            host.does("systemctl", "restart", "systemd-journald")
        self.all_alive()
        self.assertEqual(self.all_run(), before)
        job = json.loads(h1.does("dtrainctl", "-o", "json", "jobs"))[0]
        self.assertEqual((job["state"], job["restarts"], job["generation"]), ("Running", 0, 1))

    def test_3_a_power_cut(self):
        h3 = self.lab.hosts[2]
        before = self.all_run()
        h3.cut()
        h3.boot()
        h3.wait()
        self.all_alive()
        after = self.all_run()
        for task, (_, node, pid, attempt) in before.items():
            if node == "h3":    # it began anew there, or elsewhere where the host was away for long
                self.assertEqual(after[task][3], 2)
            else:
                self.assertEqual(after[task], ("Running", node, pid, attempt), "a task of another host was restarted")


if __name__ == "__main__":
    Cluster.lab = hosts_lab.Hosts(hosts_lab.enter(AT_MOST), 3).begin()
    main()
