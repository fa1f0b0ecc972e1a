"""The agent dies, is stopped or upgraded: training does not notice, nothing is forgotten, nothing is done twice."""
import os
import signal
import subprocess
import time
import unittest

from harness import PATIENCE, SLEEP, SystemTest, alive, main, names_of, only_agents_left, processes_of, python, sh, until

LINES = 2500
COUNT = "import time\nfor i in range(%d):\n  print(i)\n  time.sleep(0.004)" % LINES


class AgentDeath(SystemTest):
    def running(self, name):
        return {task["task"]: task["pid"] for task in self.tasks(name).values() if task["state"] == "Running"}

    def test_killed_again_and_again(self):
        """No task exits, no restart is counted, every line is in the log exactly once and in order."""
        self.submit("a", {"worker": {"replicas": 3, "command": python(COUNT)}})
        self.wait_job("a", "Running")
        pids = self.running("a")
        self.assertEqual(len(pids), 3)
        for _ in range(12):
            self.agent.end()
            self.assertTrue(all(alive(pid) for pid in pids.values()))
            self.agent.start()
            self.assertEqual(self.running("a"), pids)
        job = self.wait_job("a", "Succeeded", 4 * PATIENCE)
        self.assertEqual((job["restarts"], job["generation"]), (0, 1))
        self.assertEqual({task["attempt"] for task in self.tasks("a").values()}, {1})
        for index in range(3):
            printed = self.agent.do("logs", "a", "worker-%d" % index).split()
            self.assertEqual(printed, [str(i) for i in range(LINES)], "worker-%d" % index)

    def test_ends_while_it_is_away(self):
        """Exits that happened meanwhile are known with their code; what they ask for is done after the return."""
        def wait_for(name, end):
            return sh("while [ ! -e %s ]; do sleep 0.02; done; %s" % (self.path(name), end))
        self.submit("good", {"worker": {"replicas": 2, "command": wait_for("go", "exit 0")}})
        self.submit("bad", {"worker": {"replicas": 1, "restartPolicy": "Never", "command": wait_for("go", "exit 7")}})
        second_stays = sh("[ $DTRAIN_ATTEMPT = 2 ] && exec sleep 1000000; "
                          "while [ ! -e %s ]; do sleep 0.02; done; kill -9 $$" % self.path("go"))
        self.submit("again", {"worker": {"replicas": 1, "command": second_stays}})
        for name in ("good", "bad", "again"):
            self.wait_job(name, "Running")
        pids = [task["pid"] for name in ("good", "bad", "again") for task in self.tasks(name).values()]
        self.agent.end()
        self.write("go", "")
        until(lambda: not any(alive(pid) for pid in pids), "the ends of the tasks")
        self.agent.start()
        self.wait_job("good", "Succeeded")
        self.wait_job("bad", "Failed")
        self.assertEqual(self.tasks("bad")["worker-0"]["exit"]["code"], 7)
        task = self.wait_task("again", "worker-0", state="Running", attempt=2)
        self.assertEqual(task["exit"]["signal"], "SIGKILL")

    def test_stopped_with_sigterm(self):
        self.submit("a", {"worker": {"replicas": 2, "command": SLEEP}})
        self.wait_job("a", "Running")
        pids = self.running("a")
        self.assertEqual(self.agent.end(signal.SIGTERM), 0)
        self.assertTrue(all(alive(pid) for pid in pids.values()))
        self.agent.start()
        self.assertEqual(self.running("a"), pids)
        self.assertEqual(self.job("a")["state"], "Running")

    def test_killed_during_every_phase(self):
        """A job that is submitted, started, restarted and cancelled under kills still gets where it should."""
        for round_number in range(10):
            name = "j%d" % round_number
            self.submit(name, {"ps": {"replicas": 1, "command": SLEEP}, "worker": {"replicas": 2, "command": sh("sleep 0.2")},
                               "chief": {"replicas": 1, "command": sh("sleep 0.4")}}, framework="tensorflow")
            time.sleep(0.004 * round_number)                    # another phase each time
            self.agent.end()
            self.agent.start()
            job = self.wait_job(name, "Succeeded")
            self.assertEqual((job["generation"], job["restarts"]), (1, 0))
        until(lambda: only_agents_left(self.top), lambda: "only the agent is left: %s" % names_of(processes_of(self.top)))

    def test_acknowledged_is_durable(self):
        for number in range(10):
            self.submit("j%d" % number, {"worker": {"replicas": 1, "command": SLEEP}})
            self.agent.end()
            self.agent.start()
            self.assertEqual(sorted(job["name"] for job in self.agent.ask("jobs")), ["j%d" % i for i in range(number + 1)])

    def test_history_is_kept(self):
        self.submit("a", {"worker": {"replicas": 1, "command": ["true"]}})
        self.wait_job("a", "Succeeded")
        before = self.events("a")
        self.agent.end()
        self.agent.start()
        self.assertEqual(self.events("a"), before)
        self.assertEqual([event["seq"] for event in before], sorted({event["seq"] for event in before}))

    def test_a_client_that_follows_reconnects(self):
        command = self.agent.ctl_command("run", self.job_file("a", {"worker": {"replicas": 1, "command": sh(
            "while [ ! -e %s ]; do sleep 0.02; done; echo finished" % self.path("go"))}}))
        follower = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(follower.stdout.close)
        self.addCleanup(follower.wait)
        self.addCleanup(follower.kill)
        self.wait_job("a", "Running")
        self.agent.end()
        self.agent.start()
        self.write("go", "")
        output, _ = follower.communicate(timeout=PATIENCE)
        self.assertEqual(follower.returncode, 0, output)
        self.assertIn("finished", output)

    def test_work_directory_and_logs_survive(self):
        self.submit("a", {"worker": {"replicas": 1, "command": sh("echo one; while [ ! -e %s ]; do sleep 0.02; done; echo two; "
                                                                  "touch kept; pwd" % self.path("go"))}})
        self.wait_job("a", "Running")
        until(lambda: self.agent.do("logs", "a", "worker-0") == "one\n", "the first line")
        self.agent.end()
        self.write("go", "")
        self.agent.start()
        self.wait_job("a", "Succeeded")
        one, two, directory = self.agent.do("logs", "a", "worker-0").split()
        self.assertEqual((one, two), ("one", "two"))
        self.assertTrue(os.path.exists(os.path.join(directory, "kept")))
        self.agent.do("delete", "a")
        until(lambda: not os.path.exists(directory), "the removal of the job's files")


if __name__ == "__main__":
    main()
