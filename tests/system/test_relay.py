"""What other hosts answer, logs and exec above all: three agents, tasks on all of them, asked at one that has not what is asked for.

In namespaces of its own: links are cut here.
"""
import contextlib
import fcntl
import hashlib
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

import agents_lab
import harness
import test_hosts
from harness import BIN, PATIENCE, until

AT_MOST = 500                   # seconds for all tests
GROUP = 20001                   # of the first agent; packet filters tell agents apart by it
BIG = 24 << 20                  # bytes of a large log
NOBODY = 65534
# Seconds without a link: more than TCP bears without a long pause (it sends again after 0.2, 0.6, 1.4, 3.0 and gives up after 5.2 s),
# less than the 4.7 s after which the silent host is asked a last time before it is declared dead.
BRIEF = 4
# Lines of all lengths, 64 MiB/s at least, always the same: what it prints can be printed here, too.
PRINT = """
import os, random, sys
r, size, out = random.Random(int(sys.argv[1])), int(sys.argv[2]), os.fdopen(1, "wb", 1 << 16)
while size > 0:
    line = bytes(r.choices(b"abcdefghijklmnop", k=8)) * r.randrange(200) + b"\\n"
    line = line[-size:]
    out.write(line)
    size -= len(line)
out.flush()
"""


class Placed(harness.Member):
    """Its network traffic is told apart by its group."""
    group = 0

    def command(self):
        return ["setpriv", "--regid", str(self.group), "--clear-groups", *super().command()]


class Cuttable(test_hosts.Hosts):
    """Helpers: three agents whose links can be cut."""

    def make(self, name, number, joins=(), **more):
        member = Placed(self.top, name, self.ip_of(number), self.key, joins)
        member.group = GROUP + number
        self.addCleanup(lambda: member.process and member.process.poll() is None and member.end())
        self.members[name] = member
        return member

    @contextlib.contextmanager
    def away(self, agent):
        """No packet passes between the agent and the others."""
        ports = "tcp dport { 7400, 7401 }"
        agents_lab.track_connections()
        mark = next(agents_lab.MARKS)
        marks = ["meta skgid %d %s ct mark set %d" % (agent.group, ports, mark), "ip daddr %s %s ct mark set %d" % (agent.ip, ports, mark)]
        with agents_lab.filtered("chain leaving { type filter hook output priority 0; %s; }" % "; ".join(marks),
                                 "chain arriving { type filter hook input priority 0; ct mark %d counter drop; }" % mark) as dropped:
            yield dropped

    @contextlib.contextmanager
    def briefly_away(self, agent):
        """For BRIEF seconds, at whose end the block runs."""
        with self.away(agent) as dropped:
            end = time.monotonic() + BRIEF
            until(lambda: dropped() > 0, "packets to be dropped")
            time.sleep(max(0, end - time.monotonic()))      # not a wait for something: how long the fault lasts
            yield


class RelayTest(Cuttable):
    def script(self, text):
        """A task's command: a program of its own, so that no shell quotes it."""
        return ["/usr/bin/python3", "-u", self.write("task-%s.py" % hashlib.sha256(text.encode()).hexdigest()[:8], text)]

    def begin(self, name, text, workers=3, **spec):
        agents = self.three()
        agents[0].do("submit", self.spread(name, workers, self.script(text), **spec))
        return agents, self.running(agents[0], name, workers)

    def on(self, tasks, node):
        return next(task for task, seen in tasks.items() if seen["node"] == node)

    def follow(self, agent, *arguments, **options):
        process = subprocess.Popen(agent.ctl_command(*arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, **options)
        self.addCleanup(lambda: process.poll() is None and (process.kill(), process.communicate()))
        return process

    def rss_kib(self, agent):
        with open("/proc/%d/status" % agent.process.pid) as file:
            return int(next(line for line in file if line.startswith("VmRSS:")).split()[1])

    # ---- logs

    def test_logs_from_everywhere(self):
        agents, tasks = self.begin("spread", "import os, time\nt = os.environ['DTRAIN_TASK']\n"
                                   "for i in range(1000): print(t, i)\nprint('no end', end='', flush=True)\ntime.sleep(1e6)")
        whole = {task: "".join("%s %d\n" % (task, i) for i in range(1000)) + "no end" for task in tasks}
        for agent in agents:
            for task in tasks:
                until(lambda: agent.do("logs", "spread", task) == whole[task], "the log of %s at %s" % (task, agent.name))
            lines = agent.do("logs", "spread").splitlines()
            for task in tasks:
                mine = [line.split(" | ", 1)[1] for line in lines if line.startswith(task + " | ")]
                self.assertEqual(mine, whole[task].splitlines(), (agent.name, task))
            self.assertEqual(len(lines), 3 * 1001)
            there = self.on(tasks, "a3")
            self.assertEqual(agent.do("logs", "spread", there, "--tail", "2"), there + " 999\nno end")
            self.assertEqual(agent.ctl("logs", "spread", "worker-9").returncode, 3)
            wrong = agent.ctl("logs", "spread", there, "--attempt", "7")
            self.assertEqual(wrong.returncode, 3, wrong)
            self.assertIn("attempt 7", wrong.stderr)

    def test_plan_at_any_agent(self):
        agents = self.three()
        job = self.spread("planned", 3, ["true"])
        for agent in agents:
            planned = json.loads(agent.do("-o", "json", "plan", job))
            self.assertEqual([task["task"] for task in planned["tasks"]], ["worker-%d" % i for i in range(3)], (agent.name, planned))
        self.assertEqual(json.loads(agents[0].do("-o", "json", "jobs")), [])

    def test_a_large_log_is_the_same_bytes_and_waits_for_its_reader(self):
        agents, tasks = self.begin("large", "import sys, time\nsys.argv = ['', '7', '%d']\n%s\ntime.sleep(1e6)" % (BIG, PRINT))
        written = subprocess.run(["/usr/bin/python3", "-c", PRINT, "7", str(BIG)], capture_output=True, check=True).stdout
        there = self.on(tasks, "a3")
        asked = agents[0]
        last = written.splitlines(True)[-1]
        tail = lambda task: agents[2].ctl("logs", "large", task, "--tail", "1", text=False).stdout      # noqa: E731
        until(lambda: all(tail(task) == last for task in tasks), "the last lines", 60)
        before = [self.rss_kib(agent) for agent in agents]
        slow = subprocess.Popen(asked.ctl_command("logs", "large", there), stdout=subprocess.PIPE)
        self.addCleanup(lambda: (slow.kill(), slow.communicate()))
        read = os.read(slow.stdout.fileno(), 100)
        until(lambda: self.rss_kib(asked) - before[0] > 6 << 10, "the queue of the agent that was asked to fill")
        # Everybody waits for the reader by now: others are served as ever, and the host that has the log does not collect it.
        self.assertEqual(asked.do("logs", "large", there, "--tail", "1").encode(), last)
        grown = [self.rss_kib(agent) - was for agent, was in zip(agents, before)]
        self.assertLess(grown[2], 12 << 10, grown)
        self.assertLess(grown[0], 20 << 10, grown)
        read += slow.communicate(timeout=PATIENCE)[0]
        self.assertTrue(read == written, len(read))
        self.assertTrue(asked.ctl("logs", "large", there, text=False).stdout == written)
        # The whole job: every line whole, whoever's it is.
        lines = asked.ctl("logs", "large", text=False).stdout.splitlines()
        for task in tasks:
            mine = [line.split(b" | ", 1)[1] for line in lines if line.startswith(task.encode() + b" | ")]
            self.assertTrue(b"\n".join(mine) + b"\n" == written, task)

    def test_follow_over_a_restart(self):
        agents, tasks = self.begin(
            "follow", "import os, sys, time\nn = os.environ['DTRAIN_ATTEMPT']\nt = os.environ['DTRAIN_TASK']\nprint(t, 'before', n)\n"
            "while not os.path.exists('%s.%%s.%%s' %% (t, n)): time.sleep(0.05)\nprint(t, 'after', n)\n"
            "sys.exit(n == '1')" % self.path("go"))
        there = self.on(tasks, "a3")
        one, all_ = self.follow(agents[0], "logs", "-f", "follow", there), self.follow(agents[1], "logs", "-f", "follow")
        self.assertEqual(one.stdout.readline(), there + " before 1\n")
        for attempt in ("1", "2"):
            for task in tasks:
                self.write("go.%s.%s" % (task, attempt), "")
        rest, note = one.communicate(timeout=PATIENCE)
        self.assertEqual((rest.splitlines(), one.returncode), ([there + line for line in (" after 1", " before 2", " after 2")], 0), note)
        self.assertIn("attempt 2", note)
        out, note = all_.communicate(timeout=PATIENCE)
        self.assertEqual(all_.returncode, 0, note)
        for task in tasks:
            self.assertEqual([line for line in out.splitlines() if line.startswith(task)],
                             ["%s | %s %s" % (task, task, line) for line in ("before 1", "after 1", "before 2", "after 2")])

    def test_follow_over_a_cut(self):
        agents, tasks = self.begin("count", "import itertools, time\nfor i in itertools.count():\n print(i)\n time.sleep(0.002)")
        there = self.on(tasks, "a3")
        process = self.follow(agents[0], "logs", "-f", "count", there)
        seen = [int(process.stdout.readline()) for _ in range(100)]
        with self.briefly_away(agents[2]):
            pass
        first = seen[-1]
        end = time.monotonic() + PATIENCE
        while seen[-1] < first + 2000 * BRIEF and time.monotonic() < end:
            seen.append(int(process.stdout.readline()))
        self.assertEqual(seen, list(range(len(seen))))      # none lost, none twice
        self.assertGreater(len(seen), first + 500 * BRIEF)    # it went on
        self.assertEqual(agents[0].saw("member.dead", "a3"), 0)

    def test_follow_at_a_host_that_was_taken_for_dead(self):
        agents, tasks = self.begin("count", "import itertools, time\nfor i in itertools.count():\n print(i)\n time.sleep(0.01)")
        there = self.on(tasks, "a1")
        process = self.follow(agents[2], "logs", "-f", "count", there)
        seen = [int(process.stdout.readline()) for _ in range(50)]
        with self.away(agents[2]):
            until(lambda: agents[0].states()["a3"] == "dead", "its death", 60)
        printed = len(agents[0].do("logs", "count", there).splitlines())
        while seen[-1] < printed + 100:
            seen.append(int(process.stdout.readline()))
        self.assertEqual(seen, list(range(len(seen))))

    def test_a_host_that_goes(self):
        agents, tasks = self.begin("moving", "import os, time\nprint('attempt', os.environ['DTRAIN_ATTEMPT'], flush=True)\ntime.sleep(1e6)")
        there = self.on(tasks, "a3")
        process = self.follow(agents[0], "logs", "-f", "moving", there)
        self.assertEqual(process.stdout.readline(), "attempt 1\n")
        running = self.follow(agents[1], "exec", "moving", there, "--", "cat")
        running.stdin.write("echo\n")
        running.stdin.flush()
        self.assertEqual(running.stdout.readline(), "echo\n")
        self.kill_host(agents[2])
        _, said = running.communicate(timeout=2 * PATIENCE)
        self.assertNotEqual(running.returncode, 0)
        self.assertRegex(said, r"could not run a command in moving %s: host a3 .*; " % there)
        self.assertEqual(process.stdout.readline(), "attempt 2\n")       # begun elsewhere, and followed there
        after = self.running(agents[0], "moving")
        self.assertNotEqual(after[there]["node"], "a3")
        agents[1].do("cancel", "moving")
        rest, note = process.communicate(timeout=PATIENCE)
        self.assertEqual((rest, process.returncode), ("", 0), note)
        self.assertIn("host a3 is", note)
        self.assertIn("goes on at host " + after[there]["node"], note)
        self.assertEqual(agents[0].do("logs", "moving", there), "attempt 2\n")
        # The first attempt is on the host that is away; once it is back any agent finds it there.
        agents[2].start()
        for agent in agents:
            for past in (["--attempt", "1"], ["--previous"]):
                until(lambda: agent.ctl("logs", "moving", there, *past).stdout == "attempt 1\n", "the first attempt, %s" % past)
            self.assertEqual(sorted(agent.do("logs", "moving", there, "--attempt", "all").splitlines()), ["attempt 1", "attempt 2"])

    def test_the_host_of_a_finished_task_is_away(self):
        agents, tasks = self.begin("short", "import os, time\nprint('it was', os.environ['DTRAIN_TASK'], flush=True)\n"
                                   "while not os.path.exists('%s'): time.sleep(0.05)" % self.path("go"))
        self.write("go", "")
        until(lambda: agents[0].ask("jobs")[0]["state"] == "Succeeded", "its end")
        self.kill_host(agents[2])
        until(lambda: agents[0].states()["a3"] != "alive", "its death to be noticed")
        there = self.on(tasks, "a3")
        for follow in ([], ["-f"]):
            one = agents[0].ctl("logs", *follow, "short", there)
            self.assertEqual(one.stdout, "")
            self.assertRegex(one.stderr, r"could not read all logs of short %s: host a3 is (down|dead); " % there)
            self.assertNotEqual(one.returncode, 0)
            whole = agents[0].ctl("logs", *follow, "short")
            self.assertEqual(sorted(whole.stdout.splitlines()), ["%s | it was %s" % (t, t) for t in sorted(tasks) if t != there])
            self.assertIn("host a3 is", whole.stderr)
            self.assertNotEqual(whole.returncode, 0)
        agents[2].start()
        until(lambda: agents[0].ctl("logs", "short", there).stdout == "it was %s\n" % there, "its return")

    def test_follow_over_new_lives_of_both_agents(self):
        agents, tasks = self.begin("steady", "import itertools, time\nfor i in itertools.count():\n print(i)\n time.sleep(0.01)")
        there = self.on(tasks, "a3")
        process = self.follow(agents[0], "logs", "-f", "steady", there)
        seen = [int(process.stdout.readline()) for _ in range(50)]
        for agent in (agents[2], agents[0]):
            agent.end()
            agent.start()
            printed = until(lambda: len(agent.ctl("logs", "steady", there).stdout.splitlines()), "its answer")
            while seen[-1] < printed + 100:
                seen.append(int(process.stdout.readline()))
        self.assertEqual(seen, list(range(len(seen))))

    def test_run_from_pending_over_a_life_of_another_agent(self):
        agents = self.three()
        for agent in agents:
            agents[0].do("drain", agent.name)
        count = self.script("import itertools, time\nfor i in itertools.count():\n print(i)\n time.sleep(0.01)")
        process = self.follow(agents[0], "run", self.spread("late", 1, count))
        until(lambda: agents[0].ctl("describe", "job", "late").returncode == 0, "the job")
        agents[0].do("undrain", "a3")
        line = lambda: int(process.stdout.readline().removeprefix("worker-0 | "))      # noqa: E731
        seen = [line() for _ in range(50)]
        agents[2].end()
        until(lambda: agents[0].states()["a3"] == "down", "its death to be noticed")
        agents[2].start()
        printed = until(lambda: len(agents[2].ctl("logs", "late", "worker-0").stdout.splitlines()), "its answer")
        while seen[-1] < printed + 100:
            seen.append(line())
        self.assertEqual(seen, list(range(len(seen))))
        agents[0].do("cancel", "late")
        _, said = process.communicate(timeout=PATIENCE)
        self.assertIn("host a3 is down", said)
        self.assertIn("host a3 is back", said)
        self.assertNotIn("lost the agent", said)    # the one that was asked was there all the time

    # ---- exec

    def test_exec(self):
        agents, tasks = self.begin("run", "import time\ntime.sleep(1e6)", env={"MARK": "here"})
        there = self.on(tasks, "a3")
        program = "echo $MARK $DTRAIN_TASK; echo oops >&2; cat; exit 7"
        for agent in agents:
            done = agent.ctl("exec", "run", there, "--", "sh", "-c", program, stdin="from stdin\n")
            self.assertEqual((done.stdout, done.stderr.strip(), done.returncode), ("here %s\nfrom stdin\n" % there, "oops", 7))
        self.assertEqual(agents[0].ctl("exec", "run", there, "--", "/no/such").returncode != 0, True)
        self.assertEqual(agents[0].ctl("exec", "run", there, "--", "sh", "-c", "kill -9 $$").returncode, 128 + signal.SIGKILL)
        much = "".join("%07d\n" % i for i in range(1 << 19))        # 4 MiB each way
        done = agents[0].ctl("exec", "run", there, "--", "cat", stdin=much)
        self.assertEqual((done.returncode, len(done.stdout)), (0, len(much)), done.stderr)
        self.assertTrue(done.stdout == much)
        long_ = agents[1].ctl("exec", "run", there, "--", "seq", "1", "1000000").stdout.split()
        self.assertEqual((len(long_), long_[-1]), (1000000, "1000000"))
        # Who hangs up ends the command.
        mark = self.path("running")
        process = self.follow(agents[0], "exec", "run", there, "--", "sh", "-c", "echo $$; echo $$ > %s; sleep 1000000" % mark)
        pid = int(process.stdout.readline())
        process.kill()
        process.communicate()
        until(lambda: not harness.alive(pid), "the end of the command")
        self.assertEqual(agents[0].ask("jobs")[0]["state"], "Running")

    def test_exec_is_limited_as_its_task(self):
        """What the kernel holds a task to it holds to its commands too: they lie in the same groups."""
        agents = self.three()
        agents[0].do("submit", self.spread("small", 1, self.script("import time\ntime.sleep(1e6)"), resources={"memory": "64Mi"}))
        (name, task), = self.running(agents[0], "small", 1).items()
        with open("/proc/%d/cgroup" % task["pid"]) as file:
            groups = file.read()
        self.assertEqual(agents[0].do("exec", "small", name, "--", "cat", "/proc/self/cgroup"), groups)

    def test_exec_with_a_terminal(self):
        agents, tasks = self.begin("run", "import time\ntime.sleep(1e6)")
        there = self.on(tasks, "a3")
        ours, theirs = pty.openpty()
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
        process = subprocess.Popen(agents[0].ctl_command("exec", "run", there, "--", "sh"), stdin=theirs, stdout=theirs, stderr=theirs,
                                   start_new_session=True, env=dict(os.environ, PS1="$ "))
        os.close(theirs)
        self.addCleanup(lambda: process.poll() is None and (process.kill(), process.wait()))
        screen = b""

        def shows(text):
            nonlocal screen
            end = time.monotonic() + PATIENCE
            while text not in screen:
                ready = select.select([ours], [], [], max(0, end - time.monotonic()))[0]
                self.assertTrue(ready, "%r on the screen, which shows %r" % (text, screen))
                screen += os.read(ours, 1 << 16)
            screen = screen.split(text, 1)[1]
        os.write(ours, b"stty size; tty\n")
        shows(b"33 77")
        shows(b"/dev/pts/")
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 44, 88, 0, 0))
        process.send_signal(signal.SIGWINCH)
        until(lambda: os.write(ours, b"stty size\n") and (shows(b"44 88") or True), "the new size")
        # It is in the foreground once it says so: before that, ^C would go to the shell.
        os.write(ours, b"sh -c \"echo run''ning; exec sleep 1000000\"; echo inter''rupted\n")
        shows(b"running")
        os.write(ours, b"\x03")                             # ^C ends the sleep and the line, not the shell
        os.write(ours, b"echo still he''re\n")
        shows(b"still here")
        os.write(ours, b"exit 9\n")
        self.assertEqual(process.wait(PATIENCE), 9)
        os.close(ours)

    # ---- who may

    def test_others_are_refused(self):
        agents, tasks = self.begin("mine", "import time\nprint('secret', flush=True)\ntime.sleep(1e6)")
        there = self.on(tasks, "a3")
        ctl = self.path("dtrainctl")
        with open(os.path.join(BIN, "dtrainctl"), "rb") as program:
            with open(ctl, "wb") as copy:
                copy.write(program.read())
        os.chmod(ctl, 0o755)
        os.chmod(self.top, 0o755)
        for directory in (agents[0].directory, agents[0].run):
            os.chmod(directory, 0o755)
        for verb in (["logs", "mine", there], ["logs", "mine"], ["exec", "mine", there, "--", "true"]):
            done = subprocess.run([ctl, "--agent", agents[0].socket, *verb], user=NOBODY, group=NOBODY, extra_groups=[],
                                  capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
            self.assertEqual((done.returncode, done.stdout), (5, ""), done)
            self.assertIn("it belongs to", done.stderr)


if __name__ == "__main__":
    agents_lab.enter(AT_MOST)
    unittest.main(verbosity=2)
