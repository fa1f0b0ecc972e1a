"""What people see: why a job waits, what a task shows of itself, and answers that are true when they are given."""
import os
import pty
import select
import subprocess

from harness import PATIENCE, SLEEP, SystemTest, main, python, sh, until

BAR = r"""
import os, sys, time
for i in range(4):
    sys.stdout.write('\rEpoch 1: %3d%%' % (i * 10))
    sys.stdout.flush()
    while not os.path.exists('GO.%d' % i): time.sleep(0.02)
print()
"""


class Seen(SystemTest):
    def stream(self, *arguments):
        """A dtrainctl whose stdout is read as it comes."""
        process = subprocess.Popen(self.agent.ctl_command(*arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        for clean_up in (process.stdout.close, process.stderr.close, process.wait, process.kill):
            self.addCleanup(clean_up)
        return process

    def read_until(self, descriptor, wanted, seen=b""):
        def more():
            nonlocal seen
            if wanted not in seen and select.select([descriptor], [], [], 0.1)[0]:
                seen += os.read(descriptor, 65536)
            return wanted in seen
        until(more, lambda: "%r in %r" % (wanted, seen))
        return seen

    def test_a_progress_bar_is_shown_state_by_state(self):
        program = python(BAR.replace("GO", self.path("go")))
        path = self.job_file("bar", {"worker": {"replicas": 1, "command": program}})
        run = self.stream("run", path)
        self.read_until(run.stdout.fileno(), b"Epoch 1:   0%")
        follower = self.stream("logs", "-f", "bar")
        self.read_until(follower.stdout.fileno(), b"Epoch 1:   0%")
        for i in range(3):          # each state is there before the next is made
            self.write("go.%d" % i, "")
            state = b"Epoch 1:  %d%%" % ((i + 1) * 10)
            self.read_until(run.stdout.fileno(), state)
            self.read_until(follower.stdout.fileno(), state)
        self.write("go.3", "")
        self.assertEqual(run.wait(PATIENCE), 0)
        self.assertEqual(follower.wait(PATIENCE), 0)

    def test_escape_sequences_of_a_task_stay_away_from_the_terminal(self):
        words = r"printf 'first\033[2J\033]0;title\007\033[?1049h\n\033[31mred\033[0m\n'; echo last"
        path = self.job_file("esc", {"worker": {"replicas": 1, "command": sh(words)}})

        def on_terminal(*arguments):
            pid, terminal = pty.fork()
            if pid == 0:
                command = self.agent.ctl_command(*arguments)
                os.execvp(command[0], command)
            seen = b""
            while True:
                try:
                    piece = os.read(terminal, 65536)
                except OSError:     # the program has ended
                    break
                if not piece:
                    break
                seen += piece
            os.close(terminal)
            os.waitpid(pid, 0)
            return seen
        for seen in (on_terminal("run", path), on_terminal("logs", "esc"), on_terminal("logs", "esc", "worker-0")):
            for sequence in (b"\033[2J", b"title", b"1049h"):
                self.assertNotIn(sequence, seen)
            self.assertIn(b"\033[31mred\033[0m", seen)
            self.assertIn(b"last", seen)
        self.assertIn(b"\033[2J", on_terminal("logs", "--raw", "esc", "worker-0"))
        self.assertIn("\033[2J", self.agent.do("logs", "esc", "worker-0"), "a file has what the task wrote")

    def test_run_without_a_terminal_says_why_it_waits(self):
        path = self.job_file("never", {"worker": {"replicas": 1, "command": ["true"], "resources": {"gpus": 8}}})
        run = self.stream("run", path)
        said = self.read_until(run.stderr.fileno(), b"job never: waits: ")
        self.read_until(run.stderr.fileno(), b"GPU", said.split(b"waits: ")[1])
        self.agent.do("cancel", "never")
        self.assertEqual(run.wait(PATIENCE), 1)

    def test_who_waits_for_whose_ready_is_said(self):
        self.submit("a", {"ps": {"replicas": 1, "command": SLEEP, "notify": True},
                          "launcher": {"replicas": 1, "command": ["true"], "startAfter": {"ps": "Ready"}}})
        until(lambda: self.agent.ask("describe", "job", "a")["waiting_for"] == "launcher-0 waits for READY=1 of ps-0",
              lambda: self.agent.ask("describe", "job", "a")["waiting_for"])
        self.assertIn("launcher-0 waits for READY=1 of ps-0", self.agent.do("describe", "job", "a"))

    def test_what_is_not_ready_in_time_is_dead(self):
        self.submit("a", {"worker": {"replicas": 1, "command": SLEEP, "notify": True, "startTimeout": "1s", "restartPolicy": "Never"}})
        job = self.wait_job("a", "Failed")
        self.assertIn("startTimeout: not ready within 1 s", job["reason"])

    def test_a_worker_that_ended_with_its_job_does_not_read_succeeded_sigkill(self):
        stubborn = sh("trap '' TERM; while :; do sleep 0.1; done")
        self.submit("a", {"chief": {"replicas": 1, "command": ["true"]}, "worker": {"replicas": 1, "command": stubborn}},
                    framework="tensorflow", policy={"stopGracePeriod": "100ms"})
        self.wait_job("a", "Succeeded")
        until(lambda: self.tasks("a")["worker-0"]["state"] == "Succeeded", "the worker's end")
        row = [line for line in self.agent.do("tasks", "a").splitlines() if line.startswith("worker-0")][0]
        self.assertNotIn("SIGKILL", row)

    def test_after_scale_and_restart_running_means_running_again(self):
        slow = sh("trap 'sleep 0.5; exit 0' TERM; while :; do sleep 0.05; done")
        self.submit("a", {"ps": {"replicas": 1, "command": slow}, "worker": {"replicas": 1, "command": slow}}, framework="tensorflow")
        self.wait_job("a", "Running")
        for verb, generation in ((["scale", "a", "worker=2"], 2), (["restart", "a"], 3)):
            self.agent.do(*verb)
            self.assertEqual(self.agent.ctl("wait", "a", "--for", "Running", "--timeout", "%ds" % PATIENCE).returncode, 0)
            job = self.job("a")
            self.assertEqual((job["state"], job["generation"]), ("Running", generation))
        self.assertEqual(self.job("a")["roles"]["worker"]["running"], 2)

    def test_delete_answers_when_the_name_is_free(self):
        slow = sh("trap '' TERM; while :; do sleep 0.05; done")
        first = self.job_file("a", {"worker": {"replicas": 4, "command": slow}})
        self.agent.do("submit", first)
        self.wait_job("a", "Running")
        self.agent.do("delete", "a", "--force")
        submitted = self.agent.ctl("submit", self.job_file("a", {"worker": {"replicas": 1, "command": ["true"]}}))
        self.assertEqual(submitted.returncode, 0, submitted.stderr)
        self.wait_job("a", "Succeeded")
        self.assertEqual(self.agent.ctl("delete", "a").returncode, 0)
        self.assertEqual(self.agent.ctl("delete", "a").returncode, 3)

    def test_run_of_what_has_ended_runs_nothing(self):
        path = self.job_file("a", {"worker": {"replicas": 1, "command": ["echo", "hello"]}})
        self.assertEqual(self.agent.do("run", path), "worker-0 | hello\n")
        again = self.agent.ctl("run", path)
        self.assertEqual((again.returncode, again.stdout), (0, ""))
        self.assertIn("dtrainctl rerun a", again.stderr)

    def test_describe_shows_what_was_set_and_says_things_once(self):
        self.submit("a", {"worker": {"replicas": 2, "command": ["true"]}}, policy={"backoffLimit": 3})
        self.wait_job("a", "Succeeded")
        text = self.agent.do("describe", "job", "a")
        self.assertIn("backoffLimit: 3", text)
        self.assertNotIn("failureThreshold", text)
        self.assertIn("failureThreshold", self.agent.do("-o", "wide", "describe", "job", "a"))
        self.assertIn("Duration:", text)
        self.assertRegex(text, r"Created +passed")
        self.assertRegex(text, r"Succeeded +now")
        events = self.agent.do("events", "a")
        self.assertRegex(events, r"job\.succeeded a generation=1")
        self.assertNotIn("job=a", events)
        self.assertNotRegex(events, r"task=a/worker-0")

    def test_priorities_of_the_journal(self):
        self.submit("a", {"worker": {"replicas": 1, "command": ["false"], "restartPolicy": "Never"}})
        self.wait_job("a", "Failed")
        line = until(lambda: [line for line in self.agent.log().splitlines() if "event=job.failed" in line], "the line")[0]
        self.assertIn("level=error", line)
        self.assertTrue(any("level=warn" in line for line in self.agent.log().splitlines() if "event=task.failed" in line))


class Failing(SystemTest):
    def test_starts_that_fail_in_a_row_wait_ever_longer(self):
        runtime, bad = self.path("runtime"), self.write("bad.yaml", "no: such key\n")
        os.mkdir(runtime)
        environment = {**os.environ, "RUNTIME_DIRECTORY": runtime, "INVOCATION_ID": "1"}
        command = [self.agent.command()[0], "--config", bad]
        said = [subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE) for _ in range(4)]
        self.assertEqual({done.returncode for done in said}, {78})
        self.assertEqual(["starts in a row failed" in done.stderr for done in said], [False, False, False, True])
        waits = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        self.addCleanup(waits.stderr.close)
        self.assertIn("4 starts in a row failed: the next try is in 2 s", waits.stderr.readline())
        waits.terminate()       # what systemctl restart does
        self.assertEqual(waits.wait(PATIENCE), 0)
        self.assertFalse(os.path.exists(os.path.join(runtime, "failed-starts")))


if __name__ == "__main__":
    main()
