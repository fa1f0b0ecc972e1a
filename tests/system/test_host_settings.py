"""What a host's configuration gives its tasks: the address and interface they talk on, their limits, and CPUs of their own.

In namespaces of its own: it makes network interfaces, and takes rights from agents.
"""
import json
import os
import resource
import signal
import unittest

import agents_lab
import harness
from harness import until

AT_MOST = 300                   # seconds for all tests
SECOND, SECOND_IP, NOBODYS_IP = "fast0", "10.99.1.1", "10.99.1.9"
MEMLOCK = 8 << 20               # bytes: the usual limit of a service, too little for RDMA


def may_raise():
    """Whether root can raise limits here: some containers keep CAP_SYS_RESOURCE to themselves."""
    with open("/proc/self/status") as file:
        effective = next(line for line in file if line.startswith("CapEff:")).split()[1]
    return int(effective, 16) >> 24 & 1 == 1


class HostSettings(harness.SystemTest):
    def start(self):
        """Each test starts its agent itself."""

    def starts(self, *options, prefix=()):
        self.agent.options, self.agent.prefix = list(options), list(prefix)
        self.agent.start()
        return self.agent

    def doctor(self, level):
        return [f for f in json.loads(self.agent.ctl("-o", "json", "doctor").stdout) if f["level"] == level]

    def says(self, name, command):
        """What a task prints that runs this shell command."""
        self.agent.do("submit", self.job_file(name, {"worker": {"replicas": 1, "command": ["sh", "-c", command]}}))
        self.wait_job(name, "Succeeded")
        return self.agent.do("logs", name, "worker-0")

    # ---- taskAddress

    def second_interface(self):
        agents_lab.run("ip", "link", "add", SECOND, "type", "veth", "peer", "name", SECOND + "p")
        self.addCleanup(agents_lab.run, "ip", "link", "del", SECOND)
        agents_lab.run("ip", "addr", "add", SECOND_IP + "/24", "dev", SECOND)
        for name in (SECOND, SECOND + "p"):
            agents_lab.run("ip", "link", "set", name, "up")

    def test_tasks_talk_on_the_interface_that_is_theirs(self):
        self.second_interface()
        # What it is told of all, and whether it can listen where the others are told that it is.
        looks = ("import json, os, socket, sys; hosts = json.loads(os.environ['TF_CONFIG'])['cluster']['worker']; host, port = sys.argv[1]"
                 ".split(':'); socket.create_server((host, int(port))); print(sorted(h.split(':')[0] for h in hosts), "
                 "sys.argv[1] in hosts, os.environ['GLOO_SOCKET_IFNAME'], os.environ['NCCL_SOCKET_IFNAME'])")
        for name, given in (("by-name", SECOND), ("by-address", SECOND_IP)):
            self.starts("--set", "network.taskAddress=" + given)
            self.agent.do("submit", self.job_file(name, {"worker": {
                "replicas": 2, "command": ["/usr/bin/python3", "-c", looks, "{task.address}"]}}, framework="tensorflow",
                policy={"successPolicy": "AllWorkers"}))    # else worker-1 is stopped, perhaps before it prints, when worker-0 has ended
            self.wait_job(name, "Succeeded")
            for task in ("worker-0", "worker-1"):
                self.assertEqual(self.agent.do("logs", name, task), "%s True %s %s\n" % ([SECOND_IP] * 2, SECOND, SECOND))
            task = self.agent.ask("tasks", name)[0]
            self.assertTrue(task["address"].startswith(SECOND_IP + ":"), task)
            self.assertTrue(self.agent.ask("nodes")[0]["address"].startswith(self.ip), "agents talk on theirs")
            self.assertNotIn("network.task-address", self.agent.log())
            found = [f for f in self.doctor("ok") if f["check"] == "addresses"]
            self.assertIn("tasks use %s (%s)" % (SECOND_IP, SECOND), found[0]["finding"])
            self.agent.end(signal.SIGTERM)

    def test_an_address_that_no_interface_has_is_warned_of(self):
        self.starts("--set", "network.taskAddress=" + NOBODYS_IP)
        line = next(line for line in self.agent.log().splitlines() if " event=network.task-address " in line)
        for part in ("level=warn", "no interface here has the task address " + NOBODYS_IP, "GLOO_SOCKET_IFNAME", "network.taskAddress"):
            self.assertIn(part, line)
        found = [f for f in self.doctor("warn") if f["check"] == "addresses"]
        self.assertEqual(len(found), 1, found)
        self.assertIn("no interface here has the task address " + NOBODYS_IP, found[0]["finding"])
        self.assertIn("set network.taskAddress to an address or an interface of this host", found[0]["cure"])

    # ---- limits

    def test_tasks_may_lock_all_memory(self):
        """As much as this machine lets root have; what that lacks is said."""
        self.starts()
        kib = "unlimited" if may_raise() else self.hard(resource.RLIMIT_MEMLOCK, 10)
        files = str(1 << 20) if may_raise() else self.hard(resource.RLIMIT_NOFILE, 0)
        self.assertEqual(self.says("locks", "ulimit -l; ulimit -n; ulimit -c"), "%s\n%s\n0\n" % (kib, files))
        lacking = {name for name, enough in (("memlock", kib == "unlimited"), ("nofile", files == str(1 << 20))) if not enough}
        found = [f["finding"] for f in self.doctor("warn") if f["check"] == "limits"]
        self.assertEqual({name for name in ("memlock", "nofile") if any("ulimit %s " % name in text for text in found)}, lacking, found)
        self.assertEqual(self.agent.log().count(" event=tasks.ulimits "), len(lacking))

    def hard(self, limit, shift):
        most = resource.getrlimit(limit)[1]
        return "unlimited" if most == resource.RLIM_INFINITY else str(most >> shift)

    def test_what_the_agent_itself_may_not_is_said(self):
        # As under a unit with the default LimitMEMLOCK, and without the right to raise it.
        self.starts(prefix=["prlimit", "--memlock=%d:%d" % (MEMLOCK, MEMLOCK), "setpriv", "--bounding-set=-sys_resource",
                            "--inh-caps=-sys_resource"])
        line = next(line for line in self.agent.log().splitlines() if " event=tasks.ulimits " in line and "memlock" in line)
        self.assertIn("memlock unlimited, and get 8.0 MiB: RDMA", line)
        self.assertIn("LimitMEMLOCK=infinity", line)
        found = [f for f in self.doctor("warn") if f["check"] == "limits" and "memlock" in f["finding"]]
        self.assertEqual(len(found), 1, found)
        self.assertIn("memlock unlimited, and get 8.0 MiB: RDMA", found[0]["finding"])
        self.assertIn("LimitMEMLOCK=infinity", found[0]["cure"])
        self.assertEqual(self.says("locks", "ulimit -l"), "%d\n" % (MEMLOCK >> 10))     # as it was said

    # ---- CPUs

    def has_cpus(self, name, cpus):
        """The CPUs that a task may use, which goes on running."""
        looks = "import os, time; print(*sorted(os.sched_getaffinity(0)), flush=True); time.sleep(1e6)"
        self.agent.do("submit", self.job_file(name, {"worker": {"replicas": 1, "command": ["/usr/bin/python3", "-c", looks],
                                                                "resources": {"cpus": cpus}}}))
        return self.cpus_of(name)

    def cpus_of(self, name):
        said = harness.until(lambda: "\n" in self.agent.ctl("logs", name, "worker-0").stdout and self.agent.do("logs", name, "worker-0"),
                             "what %s says" % name)
        return {int(cpu) for cpu in said.splitlines()[-1].split()}

    def test_whole_cpus_are_ones_own(self):
        mine = os.sched_getaffinity(0)
        self.starts("--set", "resources.reserve.cpus=0")
        first = self.has_cpus("first", 1)
        self.assertEqual(first, {min(mine)})
        if len(mine) == 1:
            return                  # nobody else has room here
        second = self.has_cpus("second", 1)
        self.assertEqual(len(second), 1)
        self.assertFalse(first & second, (first, second))
        # Without being told of the first's the next life would give them out again.
        self.agent.end(signal.SIGKILL)
        self.agent.start()
        self.agent.do("cancel", "second")
        self.wait_job("second", "Cancelled")
        third = self.has_cpus("third", 1)
        self.assertEqual(len(third), 1)
        self.assertFalse(first & third, (first, third))
        self.assertEqual(self.cpus_of("first"), first)
        self.assertEqual(self.tasks("first")["worker-0"]["attempt"], 1)
        for event in ("tasks.warning", "task.unbound"):
            self.assertNotIn(" event=%s " % event, self.agent.log())

    def test_who_asks_for_no_whole_cpus_shares_them(self):
        mine = os.sched_getaffinity(0)
        self.starts("--set", "resources.reserve.cpus=0")
        for name, cpus in (("none", 0), ("part", "500m")):
            self.assertEqual(self.has_cpus(name, cpus), mine)
            self.agent.do("cancel", name)
            self.wait_job(name, "Cancelled")
        self.agent.end(signal.SIGTERM)
        self.starts("--set", "resources.reserve.cpus=0", "--set", "tasks.cpuBinding=false")
        self.assertEqual(self.has_cpus("unbound", 1), mine)

    # ---- healthCheck

    def health(self, agent):
        node = agent.nodes()["n1"]
        return node["schedulable"], node["unfit"]

    def test_an_unfit_host_gets_no_new_tasks_and_everybody_hears_why(self):
        sick = self.path("sick")
        script = self.write("check.sh", "#!/bin/sh\n[ ! -e %s ] || { echo /scratch is not mounted; echo more; exit 3; }\n" % sick)
        os.chmod(script, 0o755)
        key = harness.make_key(self.path("cluster.key"))
        check = ["--set", "healthCheck.command=" + script, "--set", "healthCheck.every=200ms"]
        self.agent = harness.Member(self.top, "n1", self.ip, key)
        self.agent.options = check
        self.agent.start()
        self.submit("before", {"worker": {"replicas": 1, "command": harness.SLEEP}})
        runs = self.wait_task("before", "worker-0", state="Running")
        other = harness.Member(self.top, "n2", self.ip.rsplit(".", 1)[0] + ".254", key, [self.ip])
        self.addCleanup(lambda: other.process and other.process.poll() is None and other.end())
        other.start()
        until(lambda: self.health(other) == (True, ""), "n2 knows n1 as fit")
        self.assertNotIn("config.without-effect", self.agent.log())

        open(sick, "w").close()
        why = "health check ended with 3: /scratch is not mounted"
        for agent in (self.agent, other):
            until(lambda: self.health(agent) == (False, why), lambda: "%s hears it; %s" % (agent.name, self.health(agent)))
        event, = (event for event in self.agent.events() if event["type"] == "host.sick")
        self.assertEqual((event["object"], event["reason"]), ("n1", why))
        self.assertIn("event=host.sick node=n1", self.agent.log())
        self.assertIn("no: " + why, self.agent.do("describe", "node", "n1"))
        self.assertIn("no: " + why, self.agent.do("nodes"))
        found, = (f for f in json.loads(self.agent.ctl("-o", "json", "doctor").stdout) if f["check"] == "health" and f["node"] == "n1")
        self.assertEqual((found["level"], found["finding"]), ("bad", "no new tasks are placed here: " + why))

        # Elsewhere, or not at all.
        self.submit("many", {"worker": {"replicas": 4, "command": harness.SLEEP}})
        self.wait_job("many", "Running")
        self.assertEqual({task["node"] for task in self.tasks("many").values()}, {"n2"})
        other.do("drain", "n2")
        self.submit("waits", {"worker": {"replicas": 1, "command": harness.SLEEP}})
        waits = until(lambda: self.agent.ask("describe", "job", "waits")["waiting_for"], "why it waits")
        self.assertIn("n1: " + why, waits)
        self.assertEqual(self.tasks("before")["worker-0"]["pid"], runs["pid"])      # what runs is left to itself

        os.unlink(sick)
        self.assertEqual(self.wait_task("waits", "worker-0", state="Running")["node"], "n1")
        until(lambda: self.health(other) == (True, ""), "n2 hears it")
        self.assertIn("host.well", [event["type"] for event in self.agent.events()])

    def test_a_check_that_hangs_fails_and_one_that_is_taken_away_does_not(self):
        config = self.write("dtraind.yaml", "healthCheck: {command: [sleep, '1000000'], every: 200ms, timeout: 300ms}\n")
        self.starts("--config", config)
        why = "health check did not end within 300 ms, and was killed"
        until(lambda: self.agent.ask("nodes")[0]["unfit"] == why, lambda: self.agent.ask("nodes")[0]["unfit"])
        self.write("dtraind.yaml", "log: {level: info}\n")
        self.agent.process.send_signal(signal.SIGHUP)
        until(lambda: self.agent.ask("nodes")[0]["schedulable"], "it to be fit")
        until(lambda: not self.checks(), lambda: "the end of the check: %s" % self.checks())

    def checks(self):
        """Children of the agent that are the check, be they dead and not reaped yet."""
        with open("/proc/%d/task/%d/children" % (self.agent.process.pid, self.agent.process.pid)) as children:
            pids = children.read().split()
        names = []
        for pid in pids:
            with open("/proc/%s/comm" % pid) as comm:
                names.append(comm.read())
        return [name for name in names if "sleep" in name]


if __name__ == "__main__":
    agents_lab.enter(AT_MOST)
    unittest.main(verbosity=2)
