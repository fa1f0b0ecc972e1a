"""Most voters are lost for good: recover-quorum on the one that is left, and how the others come back."""
import unittest

import test_hosts
from harness import alive, until
from test_formation import Founder


class RecoverQuorumTest(test_hosts.Hosts):
    def formed(self):
        """Three founders with --expect 3, all voters."""
        ips = [self.ip_of(i) for i in (1, 2, 3)]
        agents = []
        for i, ip in enumerate(ips, 1):
            founder = Founder(self.top, "h%d" % i, ip, self.key)
            founder.founders = ips
            self.addCleanup(lambda founder=founder: founder.process and founder.process.poll() is None and founder.end())
            self.members[founder.name] = founder
            agents.append(founder.start())
        until(lambda: all(len(a.ask("status")["quorum"]["voters"]) == 3 and a.ask("status")["coordinator"] for a in agents),
              lambda: "three voters: %s" % [a.ask("status") for a in agents], 60)
        until(lambda: all(n["schedulable"] for n in agents[0].ask("nodes")), lambda: "hosts: %s" % agents[0].ask("nodes"))
        return agents

    def refused(self, agent, why, *options):
        done = agent.ctl("recover-quorum", *options)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn(why, done.stderr)
        return done.stderr

    def test_one_is_left_and_one_comes_back(self):
        agents = h1, h2, h3 = self.formed()
        for agent in agents:
            self.refused(agent, "coordinates", "--yes")         # nothing is lost
        h1.do("submit", self.spread("both"))
        tasks = self.running(h1, "both")
        # The survivor runs one of the tasks; the others' hosts go, but the task of one stays: its agent alone died.
        survivor = h2
        orphan = next(t for t in tasks.values() if t["node"] == "h1")
        own = next(n for n, t in tasks.items() if t["node"] == "h2")
        h1.end()
        self.kill_host(h3)
        until(lambda: survivor.ask("status")["coordinator"] is None, "the loss of the coordinator")
        self.assertEqual(survivor.ctl("submit", self.spread("refused", 1)).returncode, 5)
        told = until(lambda: (n := survivor.ask("status")["quorum"]["next"]) and "recover-quorum" in n and n,
                     lambda: "advice: %s" % survivor.ask("status"))
        self.assertIn("Start the agents of h1, h3", told)
        self.assertIn("recover-quorum", survivor.do("status"))
        warned = self.refused(survivor, "give --yes")
        self.assertIn("there will be two clusters", warned)
        self.assertIn("then start one agent after the other", warned)
        self.assertEqual(survivor.ask("status")["quorum"]["history"], 1)
        done = survivor.ask("recover-quorum", "--yes")
        self.assertEqual((done["history"], done["new_history"], done["lost"]), (1, 2, ["h1", "h3"]))
        self.assertGreater(done["index"], 0)
        self.assertIn("event=council.recovered", survivor.log())
        status = survivor.ask("status")
        self.assertEqual((status["coordinator"]["node"], status["quorum"]["voters"], status["quorum"]["history"]), ("h2", ["h2"], 2))
        survivor.do("submit", self.spread("after", 1))
        self.running(survivor, "after", 1)
        self.assertEqual(self.tasks_at(survivor, "both")[own]["pid"], tasks[own]["pid"])
        self.assertTrue(alive(tasks[own]["pid"]))
        self.refused(survivor, "h2 coordinates", "--yes")
        # What the lost host had is begun elsewhere; the task of the agent that died runs on until it is told.
        until(lambda: all(t["node"] == "h2" and t["state"] == "Running" for t in self.tasks_at(survivor, "both").values()),
              lambda: "the tasks on the host that is left: %s" % self.tasks_at(survivor, "both"), 90)
        self.assertTrue(alive(orphan["pid"]))
        h1.start()
        until(lambda: h1.ask("status")["quorum"]["history"] == 2 and not h1.ask("status")["stale"],
              lambda: "h1 in the new history: %s" % h1.ask("status"), 60)
        self.assertIn("event=council.followed", h1.log())
        until(lambda: not alive(orphan["pid"]), "the end of what h1 should not run any more")
        until(lambda: h1.nodes()["h1"]["schedulable"] and survivor.nodes()["h1"]["schedulable"], "h1 to be given tasks again")
        survivor.do("submit", self.spread("again", 2))
        self.running(h1, "again", 2)

        def ledger(agent):
            return [(j["name"], j["state"], sorted((t["task"], t["node"], t["pid"], t["attempt"]) for t in agent.ask("tasks", j["name"])))
                    for j in agent.ask("jobs")]
        until(lambda: ledger(h1) == ledger(survivor), lambda: "equal ledgers: %s %s" % (ledger(h1), ledger(survivor)))
        self.assertEqual({name for name, *_ in ledger(h1)}, {"both", "after", "again"})
        self.assertEqual(self.tasks_at(h1, "both")[own]["pid"], tasks[own]["pid"])
        # It keeps all this over a restart.
        h1.end()
        h1.start()
        until(lambda: ledger(h1) == ledger(survivor), lambda: "equal ledgers again: %s %s" % (ledger(h1), ledger(survivor)), 60)

    def test_a_majority_is_alive(self):
        agents = self.formed()
        leader = next(a for a in agents if a.name == agents[0].ask("status")["coordinator"]["node"])
        others = [a for a in agents if a is not leader]
        leader.end()
        for agent in others:
            self.assertEqual(agent.ctl("recover-quorum", "--yes", "--force").returncode, 5)
        until(lambda: all(a.ask("status")["coordinator"] for a in others), "another coordinator")
        self.assertEqual({a.ask("status")["quorum"]["history"] for a in others}, {1})
        self.assertNotIn("event=council.recovered", "".join(a.log() for a in agents))


if __name__ == "__main__":
    unittest.main()
