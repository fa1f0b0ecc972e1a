"""The administrator's programs of each host: prolog and epilog of jobs, with three agents."""
import os
import unittest

import test_hosts
from harness import until

# Says what it was told, and does as the files beside it want.
HOOK = r'''#!/bin/sh
cd "%(top)s"
echo "$DTRAIN_HOOK $DTRAIN_JOB begins" >> ran-$DTRAIN_NODE
env | sort > env-$DTRAIN_HOOK-$DTRAIN_NODE
id -u >> env-$DTRAIN_HOOK-$DTRAIN_NODE
while [ -e hold-$DTRAIN_HOOK-$DTRAIN_NODE ]; do sleep 0.1; done
if [ -e fail-$DTRAIN_HOOK-$DTRAIN_NODE ]; then
  echo "no scratch" >&2
  echo "more" >&2
  exit 3
fi
echo "$DTRAIN_HOOK $DTRAIN_JOB ends" >> ran-$DTRAIN_NODE
'''
BY_THE_SHELL = {"PWD", "OLDPWD", "SHLVL", "_"}


class HostHooks(test_hosts.Hosts):
    def hooked(self):
        script = self.write("hook.sh", HOOK % {"top": self.path("hooks")})
        os.chmod(script, 0o755)
        os.makedirs(self.path("hooks"))
        self.member_options = ["--set", "tasks.prolog=" + script, "--set", "tasks.epilog=" + script, "--gpus", "2"]
        return self.three()

    def make(self, *arguments, **more):
        member = super().make(*arguments, **more)
        member.options = self.member_options
        return member

    def mark(self, what):
        open(self.path("hooks", what), "w").close()

    def unmark(self, what):
        os.unlink(self.path("hooks", what))

    def ran(self, node):
        return self.lines("hooks/ran-" + node)

    def waiting_for(self, agent, name):
        return agent.ask("describe", "job", name).get("waiting_for") or ""

    def unfit(self, agent, node):
        return agent.nodes()[node]["unfit"]

    def test_each_runs_once_per_job_and_host(self):
        agents = self.hooked()
        for agent in agents:
            self.assertNotIn("config.without-effect", agent.log())
        agents[0].do("submit", self.spread("digits", 6, resources={"gpus": 1}))
        tasks = self.running(agents[0], "digits", 6)
        self.assertEqual({t["node"] for t in tasks.values()}, {"a1", "a2", "a3"})
        for agent in agents:
            self.assertEqual(self.ran(agent.name), ["prolog digits begins", "prolog digits ends"])
            *env, uid = self.lines("hooks/env-prolog-" + agent.name)
            env = dict(line.split("=", 1) for line in env)
            self.assertEqual(uid, str(os.geteuid()))
            self.assertEqual({k: v for k, v in env.items() if k not in BY_THE_SHELL | {"DTRAIN_JOB_ID"}}, {
                "DTRAIN_HOOK": "prolog", "DTRAIN_JOB": "digits", "DTRAIN_USER": env["DTRAIN_USER"], "DTRAIN_NODE": agent.name,
                "DTRAIN_GPUS": "0,1", "LC_ALL": "C.UTF-8",
                "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"})
            self.assertTrue(env["DTRAIN_JOB_ID"].isdigit(), env)
        agents[1].do("cancel", "digits")
        for agent in agents:
            until(lambda: self.ran(agent.name)[2:] == ["epilog digits begins", "epilog digits ends"],
                  lambda: "its epilog; seen %s" % self.ran(agent.name))
            self.assertIn("DTRAIN_GPUS=0,1", self.lines("hooks/env-epilog-" + agent.name))

    def test_a_job_that_one_host_refuses_runs_elsewhere_and_one_that_all_refuse_waits(self):
        agents = self.hooked()
        self.mark("fail-prolog-a2")
        agents[0].do("submit", self.spread("digits", 6))
        until(lambda: {t["node"] for t in self.running(agents[0], "digits", 6).values()} == {"a1", "a3"}, "to run elsewhere")
        said = "could not begin digits on host a2: prolog ended with 3: no scratch; it is placed elsewhere"
        events = [e for e in agents[0].events() if e["type"] == "task.stage-failed"]
        self.assertIn(said, [e["reason"] for e in events])
        self.assertEqual(self.job_at(agents[0], "digits")["restarts"], 0)
        until(lambda: self.ran("a2")[-1] == "epilog digits ends", "its epilog there, for the prolog may have done half")
        self.assertEqual(self.ran("a1"), ["prolog digits begins", "prolog digits ends"])

        for node in ("a1", "a3"):
            self.mark("fail-prolog-" + node)
        agents[0].do("submit", self.spread("nowhere", 1))
        until(lambda: "none of 3 hosts does now" in self.waiting_for(agents[0], "nowhere"),
              lambda: "its reason; seen: %s" % self.waiting_for(agents[0], "nowhere"))
        self.assertIn("a1 refused it: prolog ended with 3: no scratch", self.waiting_for(agents[0], "nowhere"))
        for node in ("a1", "a2", "a3"):
            self.unmark("fail-prolog-" + node)
        agents[0].do("submit", self.spread("other", 1))
        self.running(agents[0], "other", 1)
        agents[0].do("restart", "nowhere")
        self.running(agents[0], "nowhere", 1)

    def test_a_host_whose_epilog_fails_is_unfit_until_it_succeeds(self):
        agents = self.hooked()
        self.mark("fail-epilog-a2")
        agents[0].do("submit", self.spread("digits", 3))
        self.running(agents[0], "digits", 3)
        agents[0].do("cancel", "digits")
        why = "epilog of job digits ended with 3: no scratch"
        until(lambda: self.unfit(agents[0], "a2") == why, lambda: "a2 unfit; seen: %s" % self.unfit(agents[0], "a2"))
        self.assertEqual([e["reason"] for e in agents[1].events() if e["type"] == "host.sick"], [why])
        agents[0].do("submit", self.spread("after", 6))
        self.assertEqual({t["node"] for t in self.running(agents[0], "after", 6).values()}, {"a1", "a3"})
        self.unmark("fail-epilog-a2")
        until(lambda: self.unfit(agents[0], "a2") == "", "a2 fit again", seconds=150)
        self.assertIn("host.well", [e["type"] for e in agents[1].events()])

    def test_what_one_life_of_the_agent_began_the_next_ends(self):
        agents = self.hooked()
        self.mark("hold-prolog-a3")
        agents[0].do("submit", self.spread("digits", 3))
        until(lambda: "prolog digits begins" in self.ran("a3"), "the prolog")
        there = lambda: next(t for t in self.tasks_at(agents[0], "digits").values() if t["node"] == "a3")
        until(lambda: there()["reason"] == "runs the prolog of this host", lambda: "its reason; seen %s" % there())
        agents[2].end()
        self.unmark("hold-prolog-a3")
        agents[2].start()
        self.running(agents[0], "digits", 3)
        self.assertEqual(self.ran("a3").count("prolog digits begins"), 2)

        self.mark("hold-epilog-a3")
        agents[2].end()
        agents[0].do("cancel", "digits")
        agents[2].start()
        until(lambda: "epilog digits begins" in self.ran("a3"), "the epilog, though the agent was away")
        agents[2].end()
        self.unmark("hold-epilog-a3")
        agents[2].start()
        until(lambda: self.ran("a3").count("epilog digits begins") == 2 and self.ran("a3")[-1] == "epilog digits ends", "it again")


if __name__ == "__main__":
    unittest.main()
