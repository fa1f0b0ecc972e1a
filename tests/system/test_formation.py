"""Agents with one shared configuration begin a cluster together: in any order, one late, one killed, one without its disk."""
import os
import random
import re
import shutil
import unittest

import harness
import test_members
from harness import Member, until


class Founder(Member):
    """One of several agents that are all started with the same --expect and --join."""
    founders = ()

    def command(self):
        command = super().command()
        at = command.index("--found")
        command[at:at + 1] = ["--expect", str(len(self.founders)), "--join", ",".join(self.founders)]
        return command


class FormationTest(test_members.Members):
    def founders(self, count):
        ips = [self.ip_of(i) for i in range(1, count + 1)]
        made = []
        for i in range(1, count + 1):
            founder = Founder(self.top, "h%d" % i, ips[i - 1], self.key)
            founder.founders = ips
            self.addCleanup(lambda founder=founder: founder.process and founder.process.poll() is None and founder.end())
            self.members[founder.name] = founder
            made.append(founder)
        return made

    def clusters(self, agents):
        """The cluster of each agent that runs; those without one are left out."""
        running = [agent for agent in agents if agent.process and agent.process.poll() is None]
        return {agent.name: status["cluster"]["id"] for agent in running
                if (status := agent.ask("status"))["cluster"]["id"]}

    def founded(self, agents):
        """Every cluster that any of them ever began, as its log says."""
        return {id for agent in agents for id in re.findall(r"event=cluster\.founded .*?id=(\w+)", agent.log())}

    def wait_formed(self, agents):
        names = {agent.name: "alive" for agent in agents}
        self.wait_states(names, of=agents, seconds=60)
        until(lambda: all(agent.ask("status")["coordinator"] for agent in agents),
              lambda: "a coordinator at all: %s" % [agent.ask("status") for agent in agents], 60)
        clusters = self.clusters(agents)
        self.assertEqual(len(clusters), len(agents), clusters)
        self.assertEqual(len(set(clusters.values())), 1, clusters)
        return clusters[agents[0].name]

    def test_three_in_any_order_with_one_late(self):
        h1, h2, h3 = agents = self.founders(3)
        order = random.sample(agents, 3)
        late = order.pop()
        for agent in order:
            agent.start()
        for agent in order:
            waits = until(lambda: (w := agent.ask("status")["waiting_for"]) and "waits for %s, not reachable" % late.ip in w and w,
                          lambda: "%s to say that %s is missing: %s" % (agent.name, late.name, agent.ask("status")["waiting_for"]))
            self.assertIn("of 3 founders", waits)
            self.assertIn(late.ip, agent.do("status"))
            self.assertIn("event=formation.waits", agent.log())
            refused = agent.ctl("jobs")
            self.assertIn("belongs to no cluster", refused.stderr)
        self.assertEqual(self.clusters(agents), {})
        late.start()
        cluster = self.wait_formed(agents)
        self.assertEqual(self.founded(agents), {cluster})
        for agent in agents:
            self.assertEqual(agent.ask("status")["quorum"]["voters"], ["h1", "h2", "h3"])
        # The same command again finds the same cluster.
        for agent in agents:
            agent.end()
        for agent in random.sample(agents, 3):
            agent.start()
        self.assertEqual(self.wait_formed(agents), cluster)
        self.assertEqual(self.founded(agents), {cluster})

    def test_killed_again_and_again_meanwhile(self):
        draw = random.Random(7)
        for turn in range(5):
            agents = self.founders(3)
            for agent in agents:
                shutil.rmtree(agent.directory)
                os.makedirs(agent.directory)
                agent.spawn()
            for _ in range(3):
                victim = draw.choice(agents)
                span = draw.uniform(0.0, 0.5)
                try:                                # at any moment of the forming, or never: both are good
                    until(lambda: self.clusters([victim]), "", span)
                except (AssertionError, harness.Refused):
                    pass
                victim.end()
                victim.spawn()
            for agent in agents:
                until(agent.answers, "an answer of " + agent.name)
            cluster = self.wait_formed(agents)
            self.assertEqual(self.founded(agents), {cluster}, "turn %d" % turn)
            for agent in agents:
                agent.end()

    def test_a_lost_data_directory(self):
        h1, h2, h3 = agents = self.founders(3)
        h1.start(), h2.start()
        # It is gone before there is a cluster: it comes as another machine.
        h3.start()
        h3.end()
        shutil.rmtree(h3.data)
        h3.start()
        first = self.wait_formed(agents)
        # And once there is one, it is admitted.
        h3.end()
        shutil.rmtree(h3.data)
        until(lambda: h1.states()["h3"] != "alive", "the death of h3")
        h3.start()
        self.assertEqual(self.wait_formed(agents), first)
        self.assertIn("event=cluster.joined", h3.log())

    def test_without_one_that_will_not_come(self):
        h1, h2, h3 = agents = self.founders(3)
        h1.start(), h2.start()
        until(lambda: "waits for %s, not reachable" % h3.ip in h1.ask("status")["waiting_for"], "h1 to wait for h3 alone")
        refused = h1.ctl("form", "--without", h2.ip)
        self.assertEqual(refused.returncode, 5, refused.stderr)
        refused = h1.ctl("form", "--without", "nobody")
        self.assertEqual(refused.returncode, 3, refused.stderr)
        h1.do("form", "--without", h3.ip)
        until(lambda: all(agent.ask("status")["coordinator"] for agent in (h1, h2)), "a cluster of two")
        cluster = self.clusters([h1, h2])
        self.assertEqual(len(set(cluster.values())), 1)
        h3.start()
        self.assertEqual(self.wait_formed(agents), cluster["h1"])

    def test_mistakes_are_refused_at_the_start(self):
        h1, h2 = self.founders(2)
        h1.founders = [h1.ip, h2.ip, h1.ip]
        h2.founders = [h1.ip]
        for agent, why in ((h1, "twice|are all this machine"), (h2, "`expect` is 2, and 1")):
            command = agent.command()
            if agent is h2:
                command[command.index("--expect") + 1] = "2"
            agent.command = lambda command=command: command
            agent.spawn()
            self.assertEqual(agent.process.wait(harness.PATIENCE), 78, agent.log())
            self.assertRegex(agent.log(), "could not form a cluster: .*(%s)" % why)


if __name__ == "__main__":
    unittest.main()
