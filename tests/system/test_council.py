"""Three agents with one log: any of them answers, and whoever coordinates may die."""
import json
import subprocess
import time
import unittest

import test_members
from harness import until


class CouncilTest(test_members.Members):
    def council_of_three(self):
        agents = self.cluster_of(3)

        def complete():
            seen = [agent.ask("status") for agent in agents]
            return all(s["coordinator"] and s["quorum"]["voters"] == ["a1", "a2", "a3"] for s in seen) and seen
        until(complete, lambda: "three voters; seen: %s" % [agent.ask("status") for agent in agents])
        return agents

    def job(self, name):
        return self.write(name + ".json", json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"framework": "generic", "roles": {"worker": {"replicas": 1, "command": ["/bin/true"]}}}}))

    def names(self, agent):
        return {job["name"] for job in agent.ask("jobs")}

    def coordinator(self, agents):
        """The agent that one of those that run names."""
        for agent in agents:
            if agent.process.poll() is None and (named := agent.ask("status")["coordinator"]):
                return next(other for other in agents if other.name == named["node"])
        return None

    def submit_until_taken(self, agent, name):
        """Milliseconds until it is acknowledged."""
        since = time.monotonic()
        path = self.job(name)
        until(lambda: agent.ctl("submit", path).returncode == 0, "submit of " + name + " at " + agent.name)
        return (time.monotonic() - since) * 1000

    def test_any_agent_takes_and_shows_jobs(self):
        agents = self.council_of_three()
        for agent in agents:
            agent.do("submit", self.job("at-" + agent.name))
            self.assertIn("at-" + agent.name, self.names(agent))    # who was answered sees it there
        for agent in agents:
            until(lambda: all(job["state"] == "Succeeded" for job in agent.ask("jobs")) and len(self.names(agent)) == 3,
                  lambda: "three finished jobs at %s: %s" % (agent.name, agent.ask("jobs")))
        agents[1].do("delete", "at-a1")
        until(lambda: all("at-a1" not in self.names(agent) for agent in agents), "a deletion that all know")

    def test_the_coordinator_is_killed_again_and_again(self):
        agents = self.council_of_three()
        acknowledged = set()
        took = []
        for round_ in range(6):
            leader = until(lambda: self.coordinator(agents), "a coordinator")
            others = [agent for agent in agents if agent is not leader]
            name = "before-%d" % round_
            others[0].do("submit", self.job(name))
            acknowledged.add(name)
            leader.end()
            name = "after-%d" % round_
            took.append(self.submit_until_taken(others[1], name))
            acknowledged.add(name)
            self.assertIsNot(self.coordinator(others), leader)
            for agent in others:
                until(lambda: acknowledged <= self.names(agent),
                      lambda: "all that was acknowledged at %s: %s" % (agent.name, acknowledged - self.names(agent)))
            leader.start()
            until(lambda: acknowledged <= self.names(leader),
                  lambda: "all of it at %s, which returned: %s" % (leader.name, acknowledged - self.names(leader)))
            until(lambda: all(m.states() == {"a1": "alive", "a2": "alive", "a3": "alive"} for m in agents), "all to be alive")
        print("killed coordinator to the next acknowledged submit, ms: " + " ".join("%.0f" % ms for ms in sorted(took)))

    def test_its_tasks_go_on_and_are_told_of(self):
        agents = self.council_of_three()
        leader = self.coordinator(agents)
        other = next(agent for agent in agents if agent is not leader)
        path = self.write("long.json", json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": "long"},
            "spec": {"framework": "generic", "roles": {"worker": {"replicas": 1, "command": ["/bin/sleep", "1000"]}}}}))
        other.do("submit", path)
        running = until(lambda: (t := other.ask("tasks", "long")) and t[0]["state"] == "Running" and t, "the task to run")
        pid = running[0]["pid"]
        leader.end()
        until(lambda: (c := self.coordinator([a for a in agents if a is not leader])) and c is not leader, "another coordinator")
        subprocess.run(["kill", "-0", str(pid)], check=True)        # nothing happened to the task
        leader.start()
        self.assertEqual(other.ask("tasks", "long")[0]["pid"], pid)
        subprocess.run(["kill", "-0", str(pid)], check=True)
        other.do("cancel", "long")                                  # at a follower, of a task on another host
        until(lambda: all({j["name"]: j["state"] for j in agent.ask("jobs")}["long"] == "Cancelled" for agent in agents),
              "its end at all")
        until(lambda: subprocess.run(["kill", "-0", str(pid)], capture_output=True).returncode != 0, "the task to be gone")

    def test_the_coordinator_leaves(self):
        agents = self.council_of_three()
        leader = self.coordinator(agents)
        others = [agent for agent in agents if agent is not leader]
        leader.do("leave")
        self.assertIn("left", leader.ask("status")["waiting_for"])
        until(lambda: (c := self.coordinator(others)) and c is not leader, "another coordinator")
        self.submit_until_taken(others[0], "after")
        until(lambda: all(agent.ask("status")["quorum"]["voters"] == [self.coordinator(others).name] for agent in others),
              "a council of one: two members are left")

    def test_without_a_majority_nothing_is_written(self):
        agents = self.council_of_three()
        last = agents[2]
        last.do("submit", self.job("before"))
        for agent in agents[:2]:
            agent.end()
        until(lambda: last.ask("status")["coordinator"] is None, "its coordinator's loss")
        self.assertTrue(last.ask("status")["stale"])
        self.assertEqual(self.names(last), {"before"})
        refused = last.ctl("submit", self.job("after"))
        self.assertEqual(refused.returncode, 5)
        self.assertIn("majority", refused.stderr)
        agents[0].start()
        self.submit_until_taken(last, "again")
        self.assertIn("before", self.names(agents[0]))


if __name__ == "__main__":
    unittest.main()
