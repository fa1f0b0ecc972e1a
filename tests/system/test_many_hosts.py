"""More hosts than have a copy of the ledger while nothing is to be done: tasks run on all of them."""
import json
import unittest

import harness
import test_hosts
from harness import until

HOSTS = 25          # 5 + 16 have a copy in any case


class ManyHosts(test_hosts.Hosts):
    def outside(self, agents):
        """Agents without a copy, when the council is at rest: as the first one says."""
        def found():
            roles = {name: node["role"] for name, node in agents[0].nodes().items()}
            members = [a for a in agents if roles[a.name] == "member"]
            return len(members) == HOSTS - 21 and members
        return until(found, lambda: "21 copies; seen: %s" % {n: v["role"] for n, v in agents[0].nodes().items()},
                     seconds=120)

    def test_each_runs_a_task(self):
        agents = self.cluster_of(HOSTS)
        outside = self.outside(agents)
        until(lambda: all(node["schedulable"] for node in outside[0].nodes().values()), "all hosts to be given tasks", seconds=120)
        one_each = self.write("one-each.json", json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": "one-each"},
            "spec": {"framework": "generic", "policy": {"placement": "spread"},
                     "roles": {"worker": {"replicas": HOSTS - 1, "command": harness.SLEEP, "antiAffinity": "host"}}}}))
        outside[0].do("submit", one_each)
        tasks = self.running(agents[0], "one-each", HOSTS - 1)
        self.assertEqual(len({t["node"] for t in tasks.values()}), HOSTS - 1)
        with_tasks = [a for a in outside if a.name in {t["node"] for t in tasks.values()}]
        self.assertGreaterEqual(len(with_tasks), len(outside) - 1)
        until(lambda: with_tasks[0].ask("status")["ledger"], "a copy of the ledger where tasks run", seconds=120)
        until(lambda: len(self.tasks_at(with_tasks[0], "one-each")) == HOSTS - 1, "all its tasks in that copy", seconds=120)
        # One of them is lost: its task goes to the host that has none yet.
        self.kill_host(with_tasks[0])
        until(lambda: all(t["node"] != with_tasks[0].name and t["state"] == "Running"
                          for t in self.tasks_at(agents[0], "one-each").values()),
              lambda: "the task elsewhere; seen: %s" % self.tasks_at(agents[0], "one-each"), seconds=90)
        agents[0].do("cancel", "one-each")


if __name__ == "__main__":
    unittest.main()
