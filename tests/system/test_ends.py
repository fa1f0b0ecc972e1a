"""Ends that somebody asked for, and what comes after: grace, no orphan, suspend, scale, restart, rerun, deadlines."""
import os
import time
import unittest

from harness import PATIENCE, SLEEP, SystemTest, alive, main, names_of, only_agents_left, processes_of, python, sh, until


class Ends(SystemTest):
    def only_agent_left(self):
        until(lambda: only_agents_left(self.top), lambda: "only the agent is left: %s" % names_of(processes_of(self.top)))

    def test_cancel_gives_grace(self):
        polite = sh("trap 'echo asked >> %s; exit 0' TERM; touch %s.$DTRAIN_INDEX; while :; do sleep 0.02; done"
                    % (self.path("asked"), self.path("up")))
        self.submit("a", {"worker": {"replicas": 2, "command": polite}})
        self.wait_job("a", "Running")
        until(lambda: os.path.exists(self.path("up.0")) and os.path.exists(self.path("up.1")), "the traps to be set")
        self.agent.do("cancel", "a")
        self.wait_job("a", "Cancelled")
        self.only_agent_left()
        self.assertEqual(self.lines("asked"), ["asked", "asked"])

    def test_cancel_kills_the_stubborn_after_the_grace(self):
        stubborn = sh("trap '' TERM; touch %s; while :; do sleep 0.02; done" % self.path("up"))
        self.submit("a", {"worker": {"replicas": 1, "command": stubborn}}, policy={"stopGracePeriod": "300ms"})
        until(lambda: os.path.exists(self.path("up")), "the trap to be set")
        self.wait_job("a", "Running")
        self.agent.do("cancel", "a")
        self.wait_job("a", "Cancelled")
        self.only_agent_left()

    # As most commands are: a script sets something up and calls the trainer, without exec.
    WRAPPED = ("#!/bin/bash\n/usr/bin/python3 -u -c 'import signal, sys, time\n"
               "def save(number, frame):\n time.sleep(0.5); open(\"%s\", \"a\").write(\"saved\\n\"); sys.exit(0)\n"
               "for number in (signal.SIGTERM, signal.SIGUSR1): signal.signal(number, save)\n"
               "open(\"%s\", \"a\").write(\"up\\n\")\n"
               "while True: signal.pause()\n'\necho ended\n")

    def wrapped(self, name, **more):
        """A job of one task whose trainer saves when it is asked to end; returns when it trains."""
        script = self.write("package/run.sh", self.WRAPPED % (self.path(name + ".saved"), self.path(name + ".up")))
        os.chmod(script, 0o755)
        self.submit(name, {"worker": {"command": ["./run.sh"], **more.pop("role", {})}}, package=self.path("package"), **more)
        until(lambda: self.lines(name + ".up") == ["up"], "the trainer of " + name)

    def test_every_end_gives_its_grace_to_the_trainer_behind_a_script(self):
        for verb, *more in (("suspend",), ("cancel",), ("restart",), ("delete", "--force")):
            self.wrapped(verb)
            self.agent.do(verb, verb, *more)
            until(lambda: self.lines(verb + ".saved") == ["saved"], "what the trainer of %s saves" % verb)
        until(lambda: self.job("suspend")["state"] == "Suspended" and self.job("cancel")["state"] == "Cancelled", "the ends")
        until(lambda: "delete" not in [job["name"] for job in self.agent.ask("jobs")], "the job to be gone")

    def test_signal_to_main_reaches_no_other(self):
        self.wrapped("a", role={"signalTo": "main"}, policy={"stopGracePeriod": "1s"})
        self.agent.do("cancel", "a")
        self.wait_job("a", "Cancelled")
        self.only_agent_left()
        self.assertEqual(self.lines("a.saved"), [], "the grace was over, and nobody had asked it")

    def test_what_ends_after_the_signal_before_the_deadline_is_not_begun_again(self):
        self.wrapped("a", policy={"activeDeadlineSeconds": 600, "signalBeforeDeadline": {"signal": "SIGUSR1", "before": "598s"}})
        job = self.wait_job("a", "Failed")
        self.assertEqual(self.lines("a.saved"), ["saved"])
        self.assertEqual((job["restarts"], self.lines("a.up")), (0, ["up"]))
        self.assertIn("activeDeadlineSeconds", job["reason"])

    def test_enough_is_enough_and_codes_of_ones_own(self):
        """successPercent, overrides, retryExitCodes: worker 0 fails for good, 1 at first, 2 succeeds, 3 runs for ever."""
        worker = {"replicas": 4, "command": sh("exit 0"), "restartPolicy": "ExitCode", "retryExitCodes": ["75", "200-210"],
                  "overrides": {"0": {"command": sh("exit 7")},
                                "1": {"command": sh("echo x >> $FILE; [ $(wc -l < $FILE) -ge 2 ] || exit 75"),
                                      "env": {"FILE": self.path("tries")}},
                                "3": {"command": SLEEP}}}
        self.submit("a", {"worker": worker}, framework="generic", policy={"successPercent": 50})
        self.wait_job("a", "Succeeded")
        self.assertEqual(self.lines("tries"), ["x", "x"])
        self.only_agent_left()
        self.submit("b", {"worker": worker}, framework="generic", policy={"successPercent": 100})
        self.assertIn("worker-0: exit code 7; fewer than successPercent can succeed", self.wait_job("b", "Failed")["reason"])

    def test_run_timeout(self):
        self.submit("a", {"worker": {"command": SLEEP, "runTimeout": "300ms", "restartPolicy": "Never"}})
        self.assertIn("runTimeout: ran for 300 ms", self.wait_job("a", "Failed")["reason"])

    def test_stop_signal(self):
        program = sh("trap 'echo usr1 >> %s; exit 0' USR1; touch %s; while :; do sleep 0.02; done" % (self.path("got"), self.path("up")))
        self.submit("a", {"worker": {"replicas": 1, "command": program, "stopSignal": "SIGUSR1"}})
        until(lambda: os.path.exists(self.path("up")), "the trap to be set")
        self.wait_job("a", "Running")
        self.agent.do("cancel", "a")
        self.wait_job("a", "Cancelled")
        until(lambda: self.lines("got") == ["usr1"], "the task's note of the signal")

    def test_no_orphan(self):
        """Children in own sessions, daemonised twice, ignoring signals: all gone with the task."""
        daemon = ("import os, signal, time\n"
                  "for _ in range(3):\n"
                  "  if os.fork() == 0:\n"
                  "    os.setsid()\n"
                  "    if os.fork() == 0:\n"
                  "      signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                  "      open(%r, 'a').write('%%d\\n' %% os.getpid())\n"
                  "      time.sleep(1e6)\n"
                  "    os._exit(0)\n"
                  "time.sleep(%s)\n")
        for name, life, end in (("cancelled", "1e6", lambda: self.agent.do("cancel", "cancelled")), ("done", "0.5", lambda: None)):
            self.submit(name, {"worker": {"replicas": 1, "command": python(daemon % (self.path(name), life))}},
                        policy={"stopGracePeriod": "200ms"})
            until(lambda: len(self.lines(name)) == 3, "three daemonised children")
            end()
            until(lambda: self.job(name)["state"] in ("Cancelled", "Succeeded"), "the end of the job")
            until(lambda: not any(alive(int(pid)) for pid in self.lines(name)), "the end of every child")
        self.only_agent_left()

    def test_suspend_and_resume(self):
        self.submit("a", {"worker": {"replicas": 2, "command": SLEEP}})
        self.wait_job("a", "Running")
        before = self.tasks("a")
        self.agent.do("suspend", "a")
        self.wait_job("a", "Suspended")
        until(lambda: not any(alive(task["pid"]) for task in before.values()), "the end of every task")
        self.agent.end()
        self.agent.start()
        self.assertEqual(self.job("a")["state"], "Suspended")
        self.agent.do("resume", "a")
        job = self.wait_job("a", "Running")
        self.assertEqual(job["restarts"], 0)
        self.assertEqual({task["attempt"] for task in self.tasks("a").values()}, {2})

    def test_scale(self):
        self.submit("a", {"ps": {"replicas": 1, "command": SLEEP}, "worker": {"replicas": 2, "command": SLEEP}}, framework="tensorflow",
                    policy={"enableDynamicWorker": True})
        self.wait_job("a", "Running")
        kept = self.tasks("a")
        self.agent.do("scale", "a", "worker=4")
        until(lambda: sum(t["state"] == "Running" for t in self.tasks("a").values()) == 5 and self.job("a")["state"] == "Running",
              lambda: "five running tasks: %s" % self.tasks("a"))
        self.assertEqual(self.job("a")["roles"]["worker"]["desired"], 4)
        self.agent.do("scale", "a", "worker=1")
        until(lambda: sorted(self.tasks("a")) == ["ps-0", "worker-0"] and self.job("a")["state"] == "Running",
              lambda: "two tasks: %s" % self.tasks("a"))
        until(lambda: not alive(kept["worker-1"]["pid"]), "the end of worker-1")
        self.assertNotEqual(self.agent.ctl("scale", "a", "worker=0").returncode, 0)
        self.assertNotEqual(self.agent.ctl("scale", "a", "nobody=2").returncode, 0)

    def test_delete(self):
        self.submit("a", {"worker": {"replicas": 1, "command": SLEEP}})
        self.wait_job("a", "Running")
        pid = self.tasks("a")["worker-0"]["pid"]
        self.assertEqual(self.agent.ctl("delete", "a").returncode, 5)
        self.assertTrue(alive(pid))
        self.agent.do("delete", "a", "--force")
        until(lambda: not self.agent.ask("jobs"), "the job to be gone")
        self.assertEqual(self.agent.ctl("tasks", "a").returncode, 3)
        self.only_agent_left()
        self.submit("a", {"worker": {"replicas": 1, "command": ["true"]}})      # the name is free
        self.wait_job("a", "Succeeded")

    def test_restart_of_a_task_and_of_a_job(self):
        self.submit("a", {"worker": {"replicas": 2, "command": SLEEP}})
        self.wait_job("a", "Running")
        before = self.tasks("a")
        self.agent.do("restart", "a", "worker-1")
        after = self.wait_task("a", "worker-1", state="Running", attempt=2)
        self.assertEqual(after["address"], before["worker-1"]["address"])
        self.assertEqual(self.tasks("a")["worker-0"]["pid"], before["worker-0"]["pid"])
        self.agent.do("restart", "a")
        until(lambda: self.job("a")["generation"] == 2 and self.job("a")["state"] == "Running", lambda: "generation 2: %s" % self.job("a"))
        self.assertFalse(any(alive(task["pid"]) for task in before.values()))

    def test_rerun(self):
        self.submit("a", {"worker": {"replicas": 1, "command": sh("echo run >> %s" % self.path("runs"))}})
        self.wait_job("a", "Succeeded")
        self.agent.do("rerun", "a")
        until(lambda: self.lines("runs") == ["run", "run"], "the second run")
        job = self.wait_job("a", "Succeeded")
        self.assertEqual(job["restarts"], 0)
        self.submit("b", {"worker": {"replicas": 1, "command": SLEEP}})
        self.assertEqual(self.agent.ctl("rerun", "b").returncode, 5)

    def test_active_deadline(self):
        self.submit("a", {"worker": {"replicas": 1, "command": SLEEP}}, policy={"activeDeadlineSeconds": 1, "stopGracePeriod": "1s"})
        job = self.wait_job("a", "Failed")
        self.assertIn("activeDeadlineSeconds", job["reason"])
        self.only_agent_left()

    def test_ttl(self):
        self.submit("kept", {"worker": {"replicas": 1, "command": ["true"]}})
        self.submit("gone", {"worker": {"replicas": 1, "command": ["true"]}}, policy={"ttlSecondsAfterFinished": 1})
        until(lambda: [job["name"] for job in self.agent.ask("jobs")] == ["kept"], lambda: "one job: %s" % self.agent.ask("jobs"))

    def test_actions_on_what_has_ended(self):
        self.submit("a", {"worker": {"replicas": 1, "command": ["true"]}})
        self.wait_job("a", "Succeeded")
        for verb in (("suspend", "a"), ("resume", "a"), ("scale", "a", "worker=2")):
            self.assertEqual(self.agent.ctl(*verb).returncode, 5, verb)
        for verb in ("cancel", "suspend", "resume", "restart", "delete", "rerun"):
            self.assertEqual(self.agent.ctl(verb, "nobody").returncode, 3, verb)
        self.assertEqual(self.job("a")["state"], "Succeeded")

    def test_cancel_at_any_moment(self):
        for number in range(8):
            name = "j%d" % number
            self.submit(name, {"ps": {"replicas": 1, "command": SLEEP}, "worker": {"replicas": 2, "command": SLEEP}},
                        framework="tensorflow")
            time.sleep(0.01 * number)
            self.agent.do("cancel", name)
            self.wait_job(name, "Cancelled", 2 * PATIENCE)
        self.only_agent_left()


if __name__ == "__main__":
    main()
