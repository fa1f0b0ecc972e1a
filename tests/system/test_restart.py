"""A worker dies: in place, at its address, in its generation; and policies and budgets are kept."""
import os
import signal
import unittest

from harness import SLEEP, SystemTest, alive, main, sh, until

NO_BACKOFF = {"restartBackoff": "0s", "failureThreshold": {"count": 0}}


class Restart(SystemTest):
    def exit_with(self, code, times=1):
        """A command that exits with the code this often, then stays."""
        return sh('echo x >> {0}; [ $(wc -l < {0}) -gt {1} ] && exec sleep 1000000; exit {2}'.format(self.path("exits"), times, code))

    def test_in_place(self):
        self.submit("a", {"ps": {"replicas": 1, "command": SLEEP}, "chief": {"replicas": 1, "command": SLEEP},
                          "worker": {"replicas": 2, "command": SLEEP}}, framework="tensorflow", policy=NO_BACKOFF)
        self.wait_job("a", "Running")
        before = self.tasks("a")
        for attempt in range(2, 12):
            self.kill_task("a", "worker-1")
            self.wait_task("a", "worker-1", attempt=attempt, state="Running")
        after = self.tasks("a")
        self.assertEqual(after["worker-1"]["address"], before["worker-1"]["address"])
        self.assertEqual(after["worker-1"]["exit"], {"signal": "SIGKILL"})
        for name in ("ps-0", "chief-0", "worker-0"):
            self.assertEqual((after[name]["pid"], after[name]["attempt"]), (before[name]["pid"], 1))
        job = self.wait_job("a", "Running")
        self.assertEqual((job["generation"], job["restarts"]), (1, 10))

    def test_the_successor_knows_its_attempt(self):
        self.submit("a", {"worker": {"replicas": 1, "command": sh("echo $DTRAIN_ATTEMPT >> %s; exec sleep 1000000" % self.path("n"))}},
                    policy=NO_BACKOFF)
        for attempt in ("1", "2", "3"):
            until(lambda: self.lines("n")[-1] == attempt, "attempt " + attempt)
            self.kill_task("a", "worker-0")
        until(lambda: self.lines("n") == ["1", "2", "3", "4"], lambda: "four attempts, each once: %s" % self.lines("n"))

    def test_what_the_dead_leaves_is_gone_before_the_successor(self):
        # The child keeps the port of its parent: a successor could not bind it.
        listen = ("import os, socket, sys, time\n"
                  "s = socket.socket(); s.bind((sys.argv[1], int(sys.argv[2]))); s.listen()\n"
                  "open(%r, 'a').write('%%d\\n' %% os.getpid())\n"
                  "os.fork()\n"
                  "time.sleep(1e6)\n" % self.path("bound"))
        self.submit("a", {"worker": {"replicas": 1, "command": ["/usr/bin/python3", "-c", listen, "{task.host}", "{task.port}"]}},
                    policy=NO_BACKOFF)
        for attempt in range(1, 4):
            until(lambda: len(self.lines("bound")) == attempt, "the port to be bound for the %d. time" % attempt)
            self.kill_task("a", "worker-0")
        until(lambda: len(self.lines("bound")) == 4, "the port to be bound after three deaths")
        self.assertEqual(self.job("a")["restarts"], 3)

    def test_on_failure_and_success(self):
        self.submit("a", {"worker": {"replicas": 1, "command": sh("echo x >> %s; [ $DTRAIN_ATTEMPT = 3 ]" % self.path("runs"))}},
                    policy=NO_BACKOFF)
        self.assertEqual(self.wait_job("a", "Succeeded")["restarts"], 2)
        self.assertEqual(len(self.lines("runs")), 3)

    def test_never(self):
        self.submit("a", {"worker": {"replicas": 1, "restartPolicy": "Never", "command": self.exit_with(1)}})
        self.wait_job("a", "Failed")
        self.assertEqual(len(self.lines("exits")), 1)

    def test_always_restarts_after_success(self):
        self.submit("a", {"worker": {"replicas": 1, "restartPolicy": "Always", "command": self.exit_with(0, 3)}}, policy=NO_BACKOFF)
        self.wait_task("a", "worker-0", attempt=4, state="Running")

    def test_exit_code_policy(self):
        self.submit("temporary", {"worker": {"replicas": 1, "restartPolicy": "ExitCode", "command": self.exit_with(130)}},
                    policy=NO_BACKOFF)
        self.wait_task("temporary", "worker-0", attempt=2, state="Running")
        self.kill_task("temporary", "worker-0")                 # a signal counts as 128 + n
        self.wait_task("temporary", "worker-0", attempt=3, state="Running")
        self.submit("permanent", {"worker": {"replicas": 1, "restartPolicy": "ExitCode", "command": ["false"]}}, policy=NO_BACKOFF)
        self.wait_job("permanent", "Failed")
        self.assertEqual(self.tasks("permanent")["worker-0"]["attempt"], 1)

    def test_backoff_limit(self):
        self.submit("a", {"worker": {"replicas": 1, "command": sh("echo x >> %s; exit 1" % self.path("runs"))}},
                    policy=dict(NO_BACKOFF, backoffLimit=3))
        job = self.wait_job("a", "Failed")
        self.assertEqual(len(self.lines("runs")), job["restarts"] + 1)
        self.assertEqual(job["restarts"], 3)
        self.assertIn("backoffLimit", job["reason"])

    def test_failure_threshold(self):
        self.submit("a", {"worker": {"replicas": 1, "command": sh("echo x >> %s; exit 1" % self.path("runs"))}},
                    policy={"restartBackoff": "0s", "failureThreshold": {"count": 4, "within": "1h"}})
        job = self.wait_job("a", "Failed")
        self.assertEqual(len(self.lines("runs")), 4)
        self.assertIn("failure threshold", job["reason"])

    def test_backoff_is_shown_and_waited_for(self):
        self.submit("a", {"worker": {"replicas": 1, "command": ["false"]}}, policy={"restartBackoff": "1h"})
        task = self.wait_task("a", "worker-0", state="Backoff")
        self.assertEqual(task["attempt"], 1)
        self.agent.do("cancel", "a")
        self.wait_job("a", "Cancelled")

    def test_shim_killed(self):
        """The shim's death ends its task, and counts as the task's."""
        self.submit("a", {"worker": {"replicas": 1, "command": SLEEP}}, policy=NO_BACKOFF)
        self.wait_job("a", "Running")
        task = self.tasks("a")["worker-0"]
        with open("/proc/%d/stat" % task["pid"]) as file:
            shim = int(file.read().rsplit(")", 1)[1].split()[1])
        os.kill(shim, signal.SIGKILL)
        again = until(lambda: (lambda t: t["state"] == "Running" and t["pid"] != task["pid"] and t)(self.tasks("a")["worker-0"]),
                      "the task under another shim")
        self.assertGreater(again["attempt"], 1)
        self.assertFalse(alive(task["pid"]))


if __name__ == "__main__":
    main()
