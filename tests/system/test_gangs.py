"""Jobs that need most of four agents at once: two of them never hold a half each, and a big one is not starved by small ones.

Each task takes all processors of a host, and ends when the test says so, or when its whole gang has met: a gang that is placed in
part, or a host that is given to the wrong job, shows as a test that waits for ever.
"""
import itertools
import json
import subprocess
import unittest

import harness
import test_hosts
from harness import until

HOSTS, GANG = 4, 3          # three quarters
ROUNDS = 20
SMALL = 6
SAY = "read now rest < /proc/uptime; echo %s $DTRAIN_JOB $now >> {said}; "


class Gangs(test_hosts.Hosts):
    def four(self):
        agents = self.cluster_of(HOSTS)
        until(lambda: len(n := agents[0].ask("nodes")) == HOSTS and all(x["schedulable"] for x in n),
              lambda: "hosts: %s" % agents[0].ask("nodes"))
        self.cpus = min(node["cpus"]["total"] for node in agents[0].ask("nodes"))
        return agents

    def of_whole_hosts(self, name, workers, until_there, cpus=None):
        """A job whose tasks say in a file that they begin, and that they end, once the shell command holds."""
        script = SAY % "begin" + "until {there}; do sleep 0.05; done; " + SAY % "end"
        command = ["sh", "-c", script.format(said=self.path("said"), there=until_there)]
        return self.write(name + ".json", json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"framework": "generic", "policy": {"placement": "spread", "failureThreshold": {"count": 0}},
                     "roles": {"worker": {"replicas": workers, "command": command, "resources": {"cpus": cpus or self.cpus}}}}}))

    def gated(self, name, workers, gate=None, **more):
        return self.of_whole_hosts(name, workers, "test -e " + self.path("gate-" + (gate or name)), **more)

    def open(self, gate):
        self.write("gate-" + gate, "")

    def said(self, what):
        """[(job, seconds)] in the order in which they said it."""
        lines = (line.split() for line in self.lines("said"))
        return [(job, float(at)) for word, job, at in lines if word == what]

    def waiting_for(self, agent, name):
        """The coordinator says it as it is now, others as it was when the job began to wait for this, and that it was."""
        status = agent.ask("status")
        told = agent.ask("describe", "job", name)["waiting_for"]
        # Who has no copy of the ledger asks the coordinator.
        if told and status["ledger"] and status["coordinator"] and status["coordinator"]["node"] != agent.name:
            self.assertIn("from when it began to wait this way", told)
        return told

    def states(self, agent):
        return {job["name"]: job["state"] for job in agent.ask("jobs")}

    def test_two_jobs_of_three_quarters_take_turns(self):
        agents, seen = self.four(), {}
        for number, pair in zip(range(ROUNDS), itertools.cycle(itertools.permutations(agents, 2))):
            names = ["%s%d" % (letter, number) for letter in "ab"]
            met = '[ $(grep -c "begin $DTRAIN_JOB " %s) = %d ]' % (self.path("said"), GANG)
            files = [self.of_whole_hosts(name, GANG, met) for name in names]
            clients = [subprocess.Popen(agent.ctl_command("submit", file), stdout=subprocess.DEVNULL) for agent, file in zip(pair, files)]
            self.assertEqual([client.wait(harness.PATIENCE) for client in clients], [0, 0])

            def ended():
                for name in names:
                    placed = sum(bool(task["node"]) for task in agents[number % HOSTS].ask("tasks", name))
                    seen[placed] = seen.get(placed, 0) + 1
                    self.assertIn(placed, (0, GANG), "%s has a part of its places" % name)
                states = self.states(agents[0])
                return all(states[name] == "Succeeded" for name in names)
            until(ended, lambda: "both to end: %s" % [(agents[0].ask("describe", "job", name)) for name in names])
        self.assertEqual(len(self.said("end")), 2 * GANG * ROUNDS, "each task ran once")
        print("tasks with a place, per look at a job: %s" % seen)

    def test_a_big_job_waits_for_those_that_ran_when_it_came_and_for_nobody_else(self):
        agents = self.four()
        for kills in (False, True):
            first, big, small = ["first%d-%d" % (kills, i) for i in range(HOSTS)], "big%d" % kills, "small%d" % kills
            for name in first:
                agents[0].do("submit", self.gated(name, 1))
                self.running(agents[0], name, 1)
            agents[1].do("submit", self.gated(big, GANG))
            for i in range(SMALL):
                agents[i % HOSTS].do("submit", self.gated("%s-%d" % (small, i), 1, small))
            for agent in agents:
                until(lambda: "it is next in the queue" in self.waiting_for(agent, big),
                      lambda: "its turn: %s" % self.waiting_for(agent, big))
            if kills:
                self.the_coordinator_dies(agents)
            for name in reversed(first):        # the reservation guesses that the oldest ends first
                self.open(name)
                until(lambda: self.states(agents[0])[name] == "Succeeded", "the end of " + name)
            self.running(agents[2], big, GANG)
            until(lambda: self.lines("said") and len([1 for job, _ in self.said("begin") if job == big]) == GANG, "its first acts")
            began = [job for job, _ in self.said("begin")]
            before = [job for job in began[:began.index(big)] if job.startswith(small)]
            self.assertLessEqual(len(before), HOSTS - GANG, "were given its places: %s" % before)
            last = max(at for job, at in self.said("end") if job in first)
            print("%s began %.2f s after the end of the last that ran before it%s" %
                  (big, min(at for job, at in self.said("begin") if job == big) - last, ", with a coordinator killed meanwhile" * kills))
            self.open(big)
            self.open(small)
            until(lambda: all(state == "Succeeded" for state in self.states(agents[0]).values()),
                  lambda: "all to end: %s" % self.states(agents[0]))

    def the_coordinator_dies(self, agents):
        """Another takes over, and all hosts take tasks again."""
        named = agents[0].ask("status")["coordinator"]["node"]
        dies = next(agent for agent in agents if agent.name == named)
        others = [agent for agent in agents if agent is not dies]
        dies.end()
        until(lambda: all((c := agent.ask("status")["coordinator"]) and c["node"] != named for agent in others), "another coordinator")
        dies.start()
        until(lambda: all(node["schedulable"] for agent in agents for node in agent.ask("nodes")), "all hosts again")

    def test_who_never_fits_blocks_nobody_and_says_why(self):
        agents = self.four()
        agents[1].do("submit", self.gated("wide", HOSTS + 1))
        agents[2].do("submit", self.gated("thick", 1, cpus=self.cpus + 1))
        for agent in agents:
            for name in ("wide", "thick"):
                until(lambda: "can never run here" in self.waiting_for(agent, name),
                      lambda: "why %s waits, at %s: %s" % (name, agent.name, self.waiting_for(agent, name)))
        agents[3].do("submit", self.gated("gang", HOSTS))
        self.running(agents[0], "gang", HOSTS)
        self.open("gang")
        until(lambda: self.states(agents[0])["gang"] == "Succeeded", "its end")
        self.assertEqual([self.states(agents[0])[name] for name in ("wide", "thick")], ["Pending", "Pending"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
