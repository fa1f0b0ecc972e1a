"""Three agents, and hosts that an operator drains: what moves, what stays and says why, and what comes again."""
import json
import subprocess
import unittest

import harness
import test_hosts
from harness import alive, until


class Drain(test_hosts.Hosts):
    def gang(self, name, workers, cpus, command=("sh", "-c", "exec sleep 1000"), grace="10s", knows_all=True):
        """A job of which each task takes `cpus`; where every task knows all addresses only the whole can move."""
        env = {"PEERS": "{hosts:worker}"} if knows_all else {}
        return self.write(name + ".json", json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"framework": "generic", "env": env, "policy": {"placement": "spread", "stopGracePeriod": grace},
                     "roles": {"worker": {"replicas": workers, "command": list(command), "resources": {"cpus": cpus}}}}}))

    def waiting_for(self, agent, name):
        return agent.ask("describe", "job", name).get("waiting_for") or ""

    def nodes_of(self, agent, name):
        return {t["node"] for t in self.tasks_at(agent, name).values()}

    def event_types(self, agent):
        return [event["type"] for event in agent.events()]

    def test_tasks_move_with_their_stop_grace_and_come_again(self):
        agents = self.three()
        said = self.path("said")
        command = ["sh", "-c", "trap 'echo stopped $DTRAIN_TASK >> %s; exit 0' TERM; sleep 1000 & wait" % said]
        agents[0].do("submit", self.spread("moving", 3, command))
        before = self.running(agents[0], "moving")
        mover = next(n for n, t in before.items() if t["node"] == "a3")
        done = agents[1].ctl("--timeout", "60s", "drain", "a3", "--reason", "new disk", "--wait")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("no task is left there", done.stderr)
        after = until(lambda: (t := self.running(agents[0], "moving")) and t[mover]["node"] != "a3" and t, "another host")
        self.assertFalse(alive(before[mover]["pid"]))
        with open(said) as file:
            self.assertEqual(file.read(), "stopped %s\n" % mover)
        for name in set(before) - {mover}:
            self.assertEqual((after[name]["pid"], after[name]["attempt"]), (before[name]["pid"], before[name]["attempt"]))
        job = self.job_at(agents[0], "moving")
        self.assertEqual((job["restarts"], job["generation"]), (0, 1))
        for agent in agents:
            node = until(lambda: (n := agent.nodes()["a3"])["drained"] and n, "the drain to be known")
            self.assertFalse(node["schedulable"])
            self.assertEqual(node["drained"]["reason"], "new disk")
            self.assertEqual(agent.ask("status")["drained"], {"a3": "new disk"})
        self.assertIn("drained", agents[0].do("nodes"))
        self.assertEqual(self.event_types(agents[0]).count("node.drained"), 1)
        agents[0].do("drain", "a3", "--reason", "new disk")         # again: no error
        agents[0].do("submit", self.spread("more", 6))
        self.running(agents[0], "more", 6)
        self.assertNotIn("a3", self.nodes_of(agents[0], "more"))
        agents[2].do("undrain", "a3")
        self.assertIn("node.undrained", self.event_types(agents[0]))
        agents[0].do("submit", self.spread("again", 6))
        self.running(agents[0], "again", 6)
        self.assertIn("a3", self.nodes_of(agents[0], "again"))
        refused = agents[0].ctl("drain", "a33")
        self.assertEqual(refused.returncode, 3, refused.stderr)
        self.assertIn("did you mean a3?", refused.stderr)

    def test_a_gang_stays_until_all_its_new_places_are_held(self):
        agents = self.three()
        cpus = min(n["cpus"]["total"] for n in agents[0].ask("nodes"))
        agents[0].do("submit", self.gang("filler", 1, cpus))
        full = self.running(agents[0], "filler", 1)["worker-0"]["node"]
        agents[0].do("submit", self.gang("gang", 2, cpus, ("sh", "-c", "trap '' TERM; while :; do sleep 1; done"), "8s"))
        before = self.running(agents[0], "gang", 2)
        left = next(t["node"] for t in before.values() if t["node"] != "a1")    # a1 coordinates
        with subprocess.Popen(agents[0].ctl_command("drain", left, "--wait"), stderr=subprocess.PIPE, text=True) as waits:
            for agent in agents:
                until(lambda: "stays on drained host %s: " % left in self.waiting_for(agent, "gang"),
                      lambda: "the reason; seen: %s" % self.waiting_for(agent, "gang"))
            self.assertIn("CPU", self.waiting_for(agents[0], "gang"))
            self.assertEqual(agents[0].ctl("--timeout", "2s", "drain", left, "--wait").returncode, 6)
            now = self.tasks_at(agents[0], "gang")
            self.assertEqual({n: (t["pid"], t["attempt"]) for n, t in now.items()},
                             {n: (t["pid"], t["attempt"]) for n, t in before.items()}, "nothing was stopped")
            agents[0].do("cancel", "filler")
            until(lambda: all(t["state"] == "Stopping" for t in self.tasks_at(agents[0], "gang").values()),
                  lambda: "its stop: %s" % self.tasks_at(agents[0], "gang"))
            agents[0].do("submit", self.gang("thief", 1, cpus))
            after = until(lambda: (j := self.job_at(agents[0], "gang"))["generation"] == 2 and j["state"] == "Running" and
                          self.running(agents[0], "gang", 2), lambda: "its new places: %s" % agents[0].ask("describe", "job", "gang"))
            self.assertEqual(waits.wait(harness.PATIENCE), 0)
            talk = waits.stderr.read()
        self.assertIn("gang (1 task): stays: ", talk)
        self.assertEqual({t["node"] for t in after.values()}, {"a1", "a2", "a3"} - {left})
        self.assertIn(full, {t["node"] for t in after.values()})
        self.assertEqual(self.job_at(agents[0], "gang")["restarts"], 0)
        self.assertEqual(self.job_at(agents[0], "thief")["state"], "Pending")
        agents[0].do("undrain", left)
        self.assertEqual(self.running(agents[0], "thief", 1)["worker-0"]["node"], left)

    def test_after_the_deadline_what_stays_is_halted_and_waits(self):
        agents = self.three()
        cpus = min(n["cpus"]["total"] for n in agents[0].ask("nodes"))
        agents[0].do("submit", self.gang("gang", 3, cpus))
        self.running(agents[0], "gang")
        agents[0].do("drain", "a2", "--deadline", "3s", "--wait")
        until(lambda: self.job_at(agents[0], "gang")["state"] == "Pending", "the halt")
        self.assertEqual(self.job_at(agents[0], "gang")["restarts"], 0)
        agents[0].do("undrain", "a2")
        self.running(agents[0], "gang")

    def test_a_drained_coordinator_hands_over_and_no_task_restarts(self):
        agents = self.three()
        agents[0].do("submit", self.spread("steady", 6))
        before = self.running(agents[0], "steady", 6)
        self.assertEqual(agents[0].ask("status")["coordinator"]["node"], "a1")
        done = agents[0].ctl("--timeout", "60s", "drain", "a1", "--wait")
        self.assertEqual(done.returncode, 0, done.stderr)
        until(lambda: all((c := a.ask("status")["coordinator"]) and c["node"] != "a1" for a in agents), "another coordinator")
        after = self.running(agents[1], "steady", 6)
        for name, task in before.items():
            if task["node"] != "a1":
                self.assertEqual((after[name]["pid"], after[name]["attempt"]), (task["pid"], task["attempt"]))
            else:
                self.assertNotEqual(after[name]["node"], "a1")
        self.assertEqual(self.job_at(agents[1], "steady")["restarts"], 0)


if __name__ == "__main__":
    unittest.main()
