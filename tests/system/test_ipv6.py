"""A whole cluster on IPv6 alone: three agents, a job over all of them whose tasks find each other, verbs from any node, and the death of
the coordinator.

In namespaces of its own, whose loopback has no address of IPv4 at all.
"""
import json
import os
import signal
import sys
import unittest

import agents_lab
import harness
import test_hosts
from harness import until

AT_MOST = 300                   # seconds for all tests

# Each task serves at its own address as TF_CONFIG has it; the chief greets all others, found as scripts find them.
TASK = r"""
import json, os, socket, sys, time
from urllib.parse import urlsplit

def endpoint(address):
    parts = urlsplit("grpc://" + address)
    return parts.hostname, parts.port

config = json.loads(os.environ["TF_CONFIG"])
kind, index = config["task"]["type"], config["task"]["index"]
own = config["cluster"][kind][index]
assert own == sys.argv[1], (own, sys.argv)
assert sys.argv[2].split(",") == config["cluster"]["ps"], sys.argv
assert open("hello.txt").read() == "from the package"
server = socket.create_server(endpoint(own), family=socket.AF_INET6)
print("serving", own, flush=True)
if kind == "chief":
    others = [a for role in config["cluster"].values() for a in role if a != own]
    for address in others:
        while True:
            try:
                with socket.create_connection(endpoint(address), timeout=5) as peer:
                    print("greeted", address, peer.recv(100).decode(), flush=True)
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
    print("greeted all", flush=True)
    while not os.path.exists(os.environ["GO"]):
        time.sleep(0.05)
else:
    while True:
        with server.accept()[0] as peer:
            peer.sendall(("%s-%d" % (kind, index)).encode())
"""


class Six(harness.Member):
    def __init__(self, top, name, ip, key, joins=(), cluster="test"):
        super().__init__(top, name, ip, key, ["[%s]:7400" % seed for seed in joins], cluster)

    def command(self):
        return ["[%s]:7400" % self.ip if word == self.ip + ":7400" else word for word in super().command()]


class Ipv6Test(test_hosts.Hosts):
    member = Six

    def ip_of(self, number):
        return "fd00::%d" % number

    def test_a_cluster_without_ipv4(self):
        agents = self.three()
        for name, node in agents[0].nodes().items():
            self.assertEqual(node["address"], "[fd00::%s]:7400" % name[1:])
        self.write("package/task.py", TASK)
        self.write("package/hello.txt", "from the package")
        command = ["/usr/bin/python3", "-u", "task.py", "{task.address}", "{hosts:ps}"]
        agents[1].do("submit", self.write("six.json", json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": "six"},
            "spec": {"framework": "tensorflow", "package": self.path("package"), "env": {"GO": self.path("go")},
                     "policy": {"placement": "spread"},
                     "roles": {"ps": {"replicas": 2, "command": command}, "chief": {"command": command},
                               "worker": {"replicas": 2, "command": command}}}})))
        tasks = self.running(agents[0], "six", 5)
        self.assertEqual({task["node"] for task in tasks.values()}, {"a1", "a2", "a3"})
        for task in tasks.values():
            self.assertRegex(task["address"], r"^\[fd00::%s\]:2\d{4}$" % task["node"][1:])
        for agent in agents:        # also where the chief is not: over a relay
            said = until(lambda: (log := agent.do("logs", "six", "chief-0")) and "greeted all" in log and log, "the chief's log")
            for name, task in tasks.items():
                if name != "chief-0":
                    self.assertIn("greeted %s %s" % (task["address"], name), said)
            self.assertIn("serving " + tasks["worker-1"]["address"], agent.do("logs", "six", "worker-1"))
            self.assertEqual(agent.do("exec", "six", "ps-1", "--", "echo", "here"), "here\n")
        os.kill(tasks["worker-0"]["pid"], signal.SIGKILL)
        until(lambda: self.tasks_at(agents[2], "six")["worker-0"]["attempt"] == 2 and
              self.tasks_at(agents[2], "six")["worker-0"]["state"] == "Running", "worker-0 again")
        agents[0].end()             # it coordinates
        until(lambda: all((c := a.ask("status")["coordinator"]) and c["node"] != "a1" for a in agents[1:]), "another coordinator")
        agents[0].start()
        self.write("go", "")
        until(lambda: all(self.job_at(a, "six")["state"] == "Succeeded" for a in agents), lambda: self.job_at(agents[1], "six"))


if __name__ == "__main__":
    if not os.path.exists("/proc/net/if_inet6"):
        sys.exit(77)                # cmake/tests.cmake
    agents_lab.enter(AT_MOST)
    agents_lab.run("ip", "addr", "flush", "dev", "lo")
    for number in (1, 2, 3):
        agents_lab.run("ip", "-6", "addr", "add", "fd00::%d/128" % number, "dev", "lo", "nodad")
    unittest.main(verbosity=2)
