"""Jobs over several hosts: three agents with one log, tasks on all of them, and hosts that die."""
import json
import os
import re
import signal
import unittest

import harness
import test_members
from harness import alive, end_processes_of, until


class Hosts(test_members.Members):
    """Helpers: three agents and what runs where."""

    def three(self):
        agents = self.cluster_of(3)
        until(lambda: all(len(a.ask("status")["quorum"]["voters"]) == 3 for a in agents), "three voters")
        until(lambda: all(n["schedulable"] for n in agents[0].ask("nodes")), lambda: "hosts: %s" % agents[0].ask("nodes"))
        return agents

    def spread(self, name, workers=3, command=harness.SLEEP, resources=None, **spec):
        return self.write(name + ".json", json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"framework": "generic", "policy": {"placement": "spread"},
                     "roles": {"worker": {"replicas": workers, "command": command, "resources": resources or {}}}, **spec}}))

    def tasks_at(self, agent, name):
        return {task["task"]: task for task in agent.ask("tasks", name)}

    def job_at(self, agent, name):
        return next(job for job in agent.ask("jobs") if job["name"] == name)

    def running(self, agent, name, count=3):
        def all_run():
            tasks = self.tasks_at(agent, name)
            return len(tasks) == count and all(t["state"] == "Running" for t in tasks.values()) and tasks
        return until(all_run, lambda: "%d tasks to run; seen: %s" % (count, self.tasks_at(agent, name)), seconds=120)

    def ended(self, agent, name, state="Succeeded"):
        def at_end():
            job = self.job_at(agent, name)
            return job["state"] in ("Succeeded", "Failed", "Cancelled") and job
        job = until(at_end, lambda: "the end of %s: %s" % (name, agent.do("describe", "job", name)), seconds=120)
        self.assertEqual(job["state"], state, agent.do("describe", "job", name))
        return job

    def kill_host(self, agent):
        """Its agent, its shims and its tasks, as when the machine goes."""
        agent.process.kill()
        agent.process.wait()
        end_processes_of(agent.directory)


class HostsTest(Hosts):
    def test_a_job_runs_on_all_of_them(self):
        agents = self.three()
        agents[1].do("submit", self.spread("wide", 4))
        for agent in agents:
            tasks = self.running(agent, "wide", 4)
            self.assertEqual({t["node"] for t in tasks.values()}, {"a1", "a2", "a3"})
            for task in tasks.values():
                ip = next(a.ip for a in agents if a.name == task["node"])
                self.assertTrue(task["address"].startswith(ip), task)
        there = next(t for t in tasks.values() if t["node"] == "a3")
        for verb in (["logs", "wide", there["task"]], ["exec", "wide", there["task"], "--", "true"]):
            agents[0].do(*verb)                     # more of them: test_relay.py
        spec = agents[2].ask("cluster-spec", "wide")
        self.assertIn("a3", json.dumps(spec))
        os.kill(there["pid"], signal.SIGKILL)       # restarts in place
        until(lambda: (t := self.tasks_at(agents[0], "wide")[there["task"]]) and t["attempt"] == 2 and t["state"] == "Running" and
              t["node"] == "a3" and t["address"] == there["address"], "its second attempt, on its host")
        agents[2].do("cancel", "wide")
        until(lambda: not any(alive(t["pid"]) for t in tasks.values()), "the end of all tasks")
        until(lambda: all(j["state"] == "Cancelled" for a in agents for j in a.ask("jobs")), "its end, known to all")

    def test_a_package_is_taken_by_every_host_and_runs_on_all(self):  # more of them: test_packages.py
        agents = self.three()
        self.write("package/hello.txt", "from the package")
        for agent in agents:
            job = self.spread("packed-" + agent.name, 3, ["grep", "-q", "from the package", "hello.txt"], package=self.path("package"))
            agent.do("submit", job)
            until(lambda: self.job_at(agent, "packed-" + agent.name)["state"] == "Succeeded",
                  lambda: "its end; seen %s" % self.job_at(agent, "packed-" + agent.name))
            self.assertEqual({t["node"] for t in self.tasks_at(agent, "packed-" + agent.name).values()}, {"a1", "a2", "a3"})

    def test_an_absent_host_is_not_asked_and_a_lost_majority_is_told(self):
        agents = self.three()
        agents[0].do("submit", self.spread("wide", policy={"placement": "spread", "backoffLimit": 0}))
        there = next(t["task"] for t in self.running(agents[0], "wide").values() if t["node"] == "a3")
        agents[2].process.kill()
        agents[2].process.wait()
        refused = until(lambda: (r := agents[0].ctl("restart", "wide", there)).returncode != 0 and r, "a refusal")
        self.assertIn("could not restart task " + there, refused.stderr)
        self.assertIn("dtrainctl describe job wide", refused.stderr)
        types = lambda: re.findall(r'"type": *"([^"]+)"', agents[0].do("-o", "json", "events"))
        self.assertNotIn("quorum.lost", types())
        agents[1].process.kill()
        agents[1].process.wait()
        until(lambda: "quorum.lost" in types(), "quorum.lost", seconds=60)
        self.assertNotIn("quorum.back", types())
        agents[1].start()
        until(lambda: types().count("quorum.back") == 1, "quorum.back", seconds=60)
        self.assertEqual(types().count("quorum.lost"), 1)

    def test_agents_come_back_and_tasks_run_on(self):
        agents = self.three()
        agents[0].do("submit", self.spread("steady"))
        before = self.running(agents[0], "steady")
        for agent in agents:
            agent.end()
            agent.start()
            until(lambda: all(a.states() == {"a1": "alive", "a2": "alive", "a3": "alive"} for a in agents), "all to be alive")
            after = self.running(agent, "steady")
            self.assertEqual({n: (t["pid"], t["attempt"], t["node"]) for n, t in after.items()},
                             {n: (t["pid"], t["attempt"], t["node"]) for n, t in before.items()})

    def test_what_a_lost_host_had_is_begun_elsewhere(self):
        agents = self.three()
        agents[0].do("submit", self.spread("moving"))
        before = self.running(agents[0], "moving")
        victim = agents[2]
        self.kill_host(victim)
        moved = next(n for n, t in before.items() if t["node"] == "a3")
        after = until(lambda: (t := self.running(agents[0], "moving")) and t[moved]["node"] != "a3" and t,
                      lambda: "another host; seen %s" % self.tasks_at(agents[0], "moving"), 60)
        for name, task in after.items():
            if name != moved:
                self.assertEqual((task["pid"], task["attempt"]), (before[name]["pid"], before[name]["attempt"]))
        victim.start()
        until(lambda: agents[0].nodes()["a3"]["schedulable"], "the host that is back to be given tasks again")
        self.assertEqual(self.running(agents[0], "moving")[moved]["pid"], after[moved]["pid"])
        agents[0].do("submit", self.spread("again", 6))
        self.assertIn("a3", {t["node"] for t in self.running(agents[0], "again", 6).values()})

    def test_a_gang_goes_on_with_fewer_and_is_whole_again_when_restarted(self):
        agents = self.three()
        see = "echo $DTRAIN_TASK of $0; exec sleep 1000000"
        roles = {"worker": {"replicas": 3, "minReplicas": 2, "antiAffinity": "host", "command": ["sh", "-c", see, "{count:worker}"]}}
        agents[0].do("submit", self.write("gang.json", json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": "gang"},
            "spec": {"framework": "generic", "roles": roles}})))
        self.running(agents[0], "gang")
        victim = next(a for a in agents if a.name == self.tasks_at(agents[0], "gang")["worker-2"]["node"])
        rest = [a for a in agents if a is not victim]
        self.kill_host(victim)
        after = until(lambda: len(t := self.tasks_at(rest[0], "gang")) == 2 and self.running(rest[0], "gang", 2),
                      lambda: "two tasks; seen %s" % self.tasks_at(rest[0], "gang"), 60)   # timing.downGrace twice
        self.assertEqual({t["node"] for t in after.values()}, {a.name for a in rest})
        for agent in rest:
            job = until(lambda: (j := self.job_at(agent, "gang")) and j["state"] == "Running" and j, "the job to run, by every agent")
            self.assertIn("runs with 2 of 3 worker", job["reason"])
            self.assertEqual((job["roles"]["worker"]["desired"], job["roles"]["worker"]["running"], job["restarts"]), (3, 2, 1))
        until(lambda: "of 2" in rest[0].do("logs", "gang", "worker-0"), "a task that was told of two")
        self.assertIn("job.shrunk", [event["type"] for event in rest[0].events()])
        victim.start()
        until(lambda: rest[0].nodes()[victim.name]["schedulable"], "the host that is back to be given tasks again")
        self.assertEqual({n: t["pid"] for n, t in self.running(rest[0], "gang", 2).items()}, {n: t["pid"] for n, t in after.items()})
        rest[0].do("restart", "gang")
        self.running(rest[0], "gang", 3)
        self.assertNotIn("runs with", self.job_at(rest[0], "gang")["reason"])

    def test_what_must_not_run_twice_waits(self):
        agents = self.three()
        path = self.write("one.json", json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": "one"},
            "spec": {"framework": "generic", "policy": {"placement": "spread"},
                     "roles": {"worker": {"replicas": 3, "exclusive": True, "command": harness.SLEEP}}}}))
        agents[0].do("submit", path)
        before = self.running(agents[0], "one")
        victim = agents[2]
        kept = next(n for n, t in before.items() if t["node"] == "a3")
        victim.end()            # the agent alone: the task runs on
        until(lambda: "may run there" in (agents[0].ask("describe", "job", "one").get("waiting_for") or ""),
              lambda: "the reason: %s" % agents[0].ask("describe", "job", "one"), 60)
        self.assertTrue(alive(before[kept]["pid"]))
        self.assertEqual(self.tasks_at(agents[0], "one")[kept]["node"], "a3")
        victim.start()
        until(lambda: not agents[0].ask("describe", "job", "one").get("waiting_for"), "nothing to wait for")
        self.assertEqual(self.running(agents[0], "one")[kept]["pid"], before[kept]["pid"])


if __name__ == "__main__":
    unittest.main()
