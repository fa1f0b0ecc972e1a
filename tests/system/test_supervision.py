"""What a task can say through NOTIFY_SOCKET, what follows from silence, and the start order that readiness decides."""
import os
import unittest

from harness import SLEEP, SystemTest, main, python, sh, until

NOTIFY = ("import os, socket, sys, time\n"
          "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
          "def say(text): s.sendto(text.encode(), os.environ['NOTIFY_SOCKET'])\n")


class Supervision(SystemTest):
    def test_status_is_shown(self):
        self.submit("a", {"worker": {"replicas": 1, "command": python(NOTIFY + "say('STATUS=step 7 of 9')\ntime.sleep(1e6)")}})
        self.wait_task("a", "worker-0", status="step 7 of 9")
        self.assertIn("step 7 of 9", self.agent.do("tasks", "a"))

    def test_ready_and_start_after(self):
        wait = ("open(%r, 'w').write('up')\nimport os.path\nwhile not os.path.exists(%r): time.sleep(0.02)\nsay('READY=1')\ntime.sleep(1e6)"
                % (self.path("chief-up"), self.path("go")))
        self.submit("a", {"chief": {"replicas": 1, "notify": True, "command": python(NOTIFY + wait)},
                          "worker": {"replicas": 1, "command": SLEEP, "startAfter": {"chief": "Ready"}}}, framework="tensorflow")
        until(lambda: self.lines("chief-up"), "the chief to run")
        self.wait_task("a", "chief-0", state="Running")
        self.assertEqual(self.job("a")["roles"]["chief"]["ready"], 0)
        self.assertFalse(self.tasks("a")["worker-0"]["pid"])
        self.write("go", "")
        self.wait_task("a", "worker-0", state="Running")
        self.assertEqual(self.job("a")["roles"]["chief"]["ready"], 1)

    def test_silence_is_death(self):
        alive_then_hung = ("say('WATCHDOG=1')\n"
                           "if os.environ['DTRAIN_ATTEMPT'] == '1':\n"
                           "  for _ in range(10): say('WATCHDOG=1'); time.sleep(0.1)\n"
                           "  time.sleep(1e6)\n"
                           "while True: say('WATCHDOG=1'); time.sleep(0.1)")
        self.submit("a", {"worker": {"replicas": 1, "watchdog": "2s", "command": python(NOTIFY + alive_then_hung)}},
                    policy={"restartBackoff": "0s"})
        self.wait_task("a", "worker-0", state="Running", attempt=2)
        described = self.agent.ask("describe", "job", "a")
        self.assertIn("watchdog", described["first_fault"]["cause"])

    def test_junk_on_the_notify_socket(self):
        junk = ("for text in (b'', b'\\xff' * 100, b'STATUS=' + b'x' * 3000, b'READY=2', b'=\\n=\\n', os.urandom(4000)):\n"
                "  s.sendto(text, os.environ['NOTIFY_SOCKET'])\n"
                "try: s.sendto(b'x' * 100000, os.environ['NOTIFY_SOCKET'])\n"
                "except OSError: pass\n"
                "say('STATUS=still here')\ntime.sleep(1e6)")
        self.submit("a", {"worker": {"replicas": 1, "command": python(NOTIFY + junk)}})
        self.wait_task("a", "worker-0", status="still here")
        self.assertEqual(self.job("a")["restarts"], 0)

    def test_only_what_supervises_is_urgent(self):
        """The agent and the shim come before others where the agent may say so; tasks and execs do not."""
        say = "import os\nprint(os.getpriority(os.PRIO_PROCESS, 0), flush=True)\n"
        self.submit("a", {"worker": {"replicas": 1, "command": python(say + "import time\ntime.sleep(1e6)")}})
        pid = self.wait_task("a", "worker-0", state="Running")["pid"]
        with open("/proc/%d/stat" % pid) as file:
            shim = int(file.read().rsplit(")", 1)[1].split()[1])
        expected = -10 if os.geteuid() == 0 and os.getpriority(os.PRIO_PROCESS, 0) == 0 else os.getpriority(os.PRIO_PROCESS, 0)
        for supervisor in (self.agent.process.pid, shim):
            self.assertEqual(os.getpriority(os.PRIO_PROCESS, supervisor), expected)
        usual = max(0, os.getpriority(os.PRIO_PROCESS, 0))
        self.assertEqual(os.getpriority(os.PRIO_PROCESS, pid), usual)
        self.assertEqual(self.agent.do("exec", "a", "worker-0", "--", *python(say)).strip(), str(usual))
        said = until(lambda: self.agent.do("logs", "a", "worker-0").strip(), "the task to say how urgent it is")
        self.assertEqual(said, str(usual))

    def test_a_command_that_does_not_exist(self):
        self.submit("a", {"worker": {"replicas": 1, "restartPolicy": "Never", "command": ["no-such-program-here"]}})
        job = self.wait_job("a", "Failed")
        self.assertIn("no-such-program-here", job["reason"])
        self.assertIn("No such file", job["reason"])

    def test_a_working_directory_that_does_not_exist(self):
        done = self.agent.ctl("submit", self.job_file("a", {"worker": {"replicas": 1, "command": ["true"]}}, workDir="/no/such/directory"))
        if done.returncode == 0:
            until(lambda: "/no/such/directory" in self.job("a")["reason"] + self.agent.ask("describe", "job", "a")["waiting_for"],
                  lambda: "the job to name the directory: %s" % self.job("a"))
            self.assertNotEqual(self.job("a")["state"], "Succeeded")
        else:
            self.assertIn("/no/such/directory", done.stderr)

    def test_required_paths(self):
        self.submit("a", {"worker": {"replicas": 1, "command": ["true"]}}, requires={"paths": [self.path("later")]})
        until(lambda: self.path("later") in self.job("a")["reason"] + self.agent.ask("describe", "job", "a")["waiting_for"],
              lambda: "the job to name the path: %s" % self.job("a"))
        self.agent.do("cancel", "a")
        self.wait_job("a", "Cancelled")

    def test_out_of_memory_is_named(self):
        """Only where a writable cgroup gives the limit teeth; elsewhere the task just ends well."""
        eat = "x = bytearray(200 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1"
        self.submit("a", {"worker": {"replicas": 1, "restartPolicy": "Never", "resources": {"memory": "64Mi"}, "command": python(eat)}})
        until(lambda: self.job("a")["state"] in ("Succeeded", "Failed"), "the end")
        if self.job("a")["state"] == "Failed":
            described = self.agent.ask("describe", "job", "a")
            self.assertIn("memory", described["first_fault"]["cause"] + described["first_fault"]["stderr_tail"].lower())

    def test_output_of_every_kind(self):
        text = ("import sys\nsys.stdout.buffer.write(bytes(range(256)))\nsys.stdout.flush()\n"
                "sys.stdout.buffer.write(b'no newline at the end')")
        self.submit("a", {"worker": {"replicas": 1, "command": python(text)}})
        self.wait_job("a", "Succeeded")
        done = self.agent.ctl("logs", "a", "worker-0", text=False)
        self.assertEqual(done.stdout, bytes(range(256)) + b"no newline at the end")

    def test_a_task_may_write_a_lot(self):
        self.submit("a", {"worker": {"replicas": 1, "command": sh("seq 1 300000")}})
        self.wait_job("a", "Succeeded")
        self.assertEqual(self.agent.do("logs", "a", "worker-0").split(), [str(i) for i in range(1, 300001)])


if __name__ == "__main__":
    main()
