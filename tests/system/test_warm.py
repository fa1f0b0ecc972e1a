"""Warm standby: beside a Python task waits a process that has imported what the script imports, and becomes its next attempt. The scripts
here import numpy, and tell whether it was there before they did."""
import os
import re
import signal
import subprocess
import textwrap
import unittest

import harness
from harness import alive, until

# Every line that a rank writes has its number and generation. It ends with 0 once the file `end` exists, and kills itself for `kill.RANK`.
SCRIPT = textwrap.dedent("""
    import sys
    before = "numpy" in sys.modules
    import numpy
    import os, signal, time
    def out(text): print("rank=%s generation=%s %s" % (os.environ.get("RANK", "-"), os.environ["DTRAIN_GENERATION"], text), flush=True)
    out("warm=%s" % before)
    out("argv=%s cwd=%s main=%s" % (sys.argv[1:], os.getcwd(), __name__))
    out("nice=%d oom=%s pid=%d parent=%d" % (os.nice(0), open("/proc/self/oom_score_adj").read().strip(), os.getpid(), os.getppid()))
    out("attempt=%s notify=%s master=%s" % (os.environ["DTRAIN_ATTEMPT"], os.environ["NOTIFY_SOCKET"], os.environ.get("MASTER_PORT")))
    out("errors=%s" % os.environ.get("TORCHELASTIC_ERROR_FILE"))
    print("to stderr", file=sys.stderr, flush=True)
    while not os.path.exists(sys.argv[1] + "/end"):
        mine = "%s/kill.%s" % (sys.argv[1], os.environ.get("RANK", "-"))
        if os.path.exists(mine):
            os.unlink(mine)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.02)
    out("done")
    """)


NEWS = ("task.standby-ready", "task.warm-start", "task.no-standby")


class WarmJobs(harness.SystemTest):
    def gang(self, name, workers=2, ranks=2, warm="auto", framework="pytorch", **role):
        script = self.write("train.py", SCRIPT)
        directory = os.path.dirname(script)
        more = {"nprocPerNode": ranks} if framework == "pytorch" else {}
        self.submit(name, {"worker": {"replicas": workers, "command": ["/usr/bin/python3", "-u", script, directory, "x y"], **more, **role,
                                      **({"warm": warm} if warm else {})}},
                    framework=framework, policy={"restartBackoff": "0s"})

    def kill(self, rank):
        self.write("kill.%s" % rank, "")

    def ready(self, count):
        until(lambda: self.agent.log().count("event=task.standby_ready") >= count, lambda: self.agent.log()[-1500:], 60)

    def said(self, name, what, count, task=None):
        """Matches of the expression in the logs of all attempts, once there are so many."""
        def found():
            text = self.agent.do("logs", name, *([task] if task else []), "--attempt", "all")
            matches = re.findall(what, text)
            return len(matches) >= count and matches
        return until(found, lambda: "%d times %s in:\n%s" % (count, what, self.agent.do("logs", name, "--attempt", "all")), 60)

    def waits_here(self):
        """Standbys of this test's agent."""
        return harness.standbys(self.top)

    def no_group_is_left(self):
        find = ["find", "/sys/fs/cgroup", "-type", "d", "-path", "*standby.*"]
        found = subprocess.run(find, capture_output=True, text=True).stdout
        return not [line for line in found.splitlines() if str(os.stat(self.agent.data + "/tasks").st_ino) in line]


class Warm(WarmJobs):
    def test_a_gang_comes_back_in_its_standbys(self):
        self.gang("gang")
        self.said("gang", r"generation=1 warm=False", 4)
        for generation in (2, 3):
            self.ready(2 * (generation - 1))
            self.assertEqual(len(self.waits_here()), 4)
            self.kill(generation)       # rank 2, then rank 3
            self.assertEqual(sorted(self.said("gang", r"rank=(\d) generation=%d warm=True" % generation, 4)), ["0", "1", "2", "3"])
        script = os.path.dirname(self.path("train.py"))
        lines = self.said("gang", r"generation=[23] argv=(.*)", 8)
        self.assertEqual(len({line.split(" cwd=")[0] for line in lines}), 1, lines)
        self.assertTrue(lines[0].startswith("[%r, 'x y']" % script) and lines[0].endswith("main=__main__"), lines)
        self.assertEqual(set(self.said("gang", r"generation=[23] nice=(-?\d+ oom=-?\d+)", 8)),
                         set(self.said("gang", r"generation=1 nice=(-?\d+ oom=-?\d+)", 4)))
        self.assertEqual(len(set(self.said("gang", r"generation=3 attempt=\d+ notify=(\S+)", 4))), 2)
        self.assertEqual(len(set(self.said("gang", r"errors=(\S+)", 12))), 12, "each rank of each attempt has an error file of its own")
        self.assertEqual(self.job("gang")["restarts"], 2)
        self.assertEqual(self.agent.log().count("event=task.warm_start"), 4)
        self.assertNotIn("event=task.no_standby", self.agent.log())
        # It is the task in all that people do with one.
        self.assertEqual(self.agent.do("exec", "gang", "worker-1", "--", "echo", "here"), "here\n")
        self.write("end", "")
        self.wait_job("gang", "Succeeded")
        self.assertEqual(len(self.said("gang", r"generation=3 done", 4)), 4)
        until(lambda: not self.waits_here(), lambda: "the end of %s" % self.waits_here())
        until(self.no_group_is_left, "the end of the groups of standbys")

    def test_a_task_that_is_begun_again_in_place(self):
        script = self.write("train.py", SCRIPT)
        self.submit("one", {"worker": {"command": ["/usr/bin/python3", script, self.top], "warm": ["numpy"]}}, framework="generic",
                    policy={"restartBackoff": "0s", "collective": True})
        self.said("one", r"generation=1 warm=False", 1)
        self.ready(1)
        self.kill("-")
        self.said("one", r"generation=1 warm=True", 1)
        self.said("one", r"generation=1 attempt=2", 1)
        self.assertEqual(self.tasks("one")["worker-0"]["attempt"], 2)
        self.ready(2)
        self.agent.end()                # what runs in a standby is adopted like any other
        self.agent.start()
        self.kill("-")
        self.said("one", r"generation=1 attempt=3", 1)
        self.write("end", "")
        self.wait_job("one", "Succeeded")

    def test_who_does_not_want_one_has_none(self):
        self.gang("cold", warm="none")
        self.gang("plain", framework="generic", warm=None)
        self.gang("warm", workers=1, ranks=1)
        self.ready(1)
        self.assertEqual(len(self.waits_here()), 1)

    def test_a_standby_that_is_killed_costs_nothing(self):
        self.gang("hurt")
        self.ready(2)
        for pid in self.waits_here():
            os.kill(pid, signal.SIGKILL)
        self.kill(0)
        self.said("hurt", r"generation=2 warm=False", 4)
        self.assertEqual(self.job("hurt")["restarts"], 1)
        until(lambda: self.agent.log().count("event=task.no_standby") >= 1, "why")
        self.ready(3)                   # the next attempt has one again
        self.write("end", "")
        self.wait_job("hurt", "Succeeded")

    def test_a_standby_that_dies_while_it_waits_is_replaced(self):
        self.gang("heals", workers=1)
        self.ready(1)
        first = self.waits_here()
        os.kill(first[0], signal.SIGKILL)
        self.ready(2)
        second = self.waits_here()
        self.assertEqual((len(second), set(first) & set(second)), (2, set()))
        self.kill(0)
        self.said("heals", r"generation=2 warm=True", 2)
        seen = lambda: [(e["type"], e["reason"]) for e in self.events("heals") if e["type"] in NEWS]
        until(lambda: len(seen()) >= 4, lambda: "events: %s" % self.events("heals"))
        self.assertEqual(seen()[:4], [("task.standby-ready", ""), ("task.no-standby", "one that waited ended"), ("task.standby-ready", ""),
                                      ("task.warm-start", "")])
        self.assertIn("task.warm-start", self.agent.do("describe", "job", "heals"))

    def test_an_adopted_task_has_one_again(self):
        self.gang("adopted", workers=1)
        self.ready(1)
        self.agent.end()
        self.agent.start()
        self.ready(2)
        self.kill(0)
        self.said("adopted", r"generation=2 warm=True", 2)

    def test_a_standby_that_is_stopped_is_not_waited_for(self):
        self.gang("still", workers=1)
        self.ready(1)
        for pid in self.waits_here():
            os.kill(pid, signal.SIGSTOP)
        self.kill(1)
        self.said("still", r"generation=2 warm=False", 2)
        self.assertRegex(self.agent.log(), "event=task.no_standby .*a standby did not answer")
        until(lambda: len(self.said("still", "warm=False", 4)) == 4, "both ranks, once")

    def test_it_ends_with_the_job_and_with_the_agent(self):
        self.gang("ends", workers=1)
        self.ready(1)
        waiting = self.waits_here()
        self.agent.do("cancel", "ends")
        until(lambda: not any(map(alive, waiting)), lambda: "the end of %s" % waiting, 60)
        self.gang("again", workers=1)
        self.ready(2)
        waiting = self.waits_here()
        self.agent.end()
        until(lambda: not any(map(alive, waiting)), lambda: "the end of %s" % waiting)
        self.agent.start()
        self.wait_task("again", "worker-0", state="Running")
        self.ready(3)                   # of the adopted task
        self.agent.do("cancel", "again")
        until(self.no_group_is_left, "the end of the groups of standbys", 60)

    def test_a_standby_that_prepares_ends_with_the_agent(self):
        self.write("slow.py", textwrap.dedent("""
            import os, time
            if 'dtrain-warm' in open('/proc/self/cmdline').read():
                open(os.path.dirname(__file__) + '/began', 'w').close()
                time.sleep(1000)
            """))
        main = self.write("main.py", "import time\nprint('runs', flush=True)\ntime.sleep(1000)\n")
        self.submit("slow", {"worker": {"command": ["/usr/bin/python3", main], "warm": ["slow"]}}, framework="pytorch")
        until(lambda: os.path.exists(self.path("began")), "the import in the standby")
        waiting = self.waits_here()
        self.assertEqual(len(waiting), 1)
        self.agent.end()
        until(lambda: not any(map(alive, waiting)), lambda: "the end of %s" % waiting)
        shims = subprocess.run(["pgrep", "-f", self.agent.data + "/tasks/standby"], capture_output=True, text=True).stdout.split()
        until(lambda: not any(map(alive, map(int, shims))), lambda: "the end of the shims %s" % shims)
        self.agent.start()
        until(self.no_group_is_left, "the end of the groups of standbys")

    def test_a_script_that_imports_what_no_standby_may_have_is_cold(self):
        self.write("odd.py", "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n")
        main = self.write("main.py", "import odd, os, time\n"
                                     "print('generation', os.environ['DTRAIN_GENERATION'], flush=True)\n"
                                     "time.sleep(1000)\n")
        self.submit("odd", {"worker": {"nprocPerNode": 1, "command": ["/usr/bin/python3", main], "warm": ["odd"]}}, framework="pytorch",
                    policy={"restartBackoff": "0s"})
        until(lambda: re.search("event=task.no_standby .*thread", self.agent.log()), lambda: self.agent.log()[-1500:])
        self.kill_task("odd", "worker-0")
        self.said("odd", "generation", 2)
        self.assertEqual(self.tasks("odd")["worker-0"]["attempt"], 2)


class SwitchedOff(WarmJobs):
    agent_options = ("--set", "tasks.standbys=false")

    def test_a_host_may_have_none(self):
        self.gang("plain", workers=1)
        self.said("plain", r"generation=1 warm=False", 2)
        self.kill(0)
        self.said("plain", r"generation=2 warm=False", 2)
        self.assertNotIn("standby", self.agent.log())


class ShortOfMemory(WarmJobs):
    """The agent and its tasks are in a group of memory with a limit, as in a container."""
    LIMIT, HOG = 2560 << 20, 1920 << 20

    def setUp(self):
        parent, limit = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
        if os.path.exists("/sys/fs/cgroup/cgroup.controllers"):     # version 2 alone
            parent, limit = "/sys/fs/cgroup", "memory.max"
            with open(parent + "/cgroup.subtree_control", "w") as file:
                file.write("+memory")
        self.group = "%s/dtrain-test-%d" % (parent, os.getpid())
        os.mkdir(self.group)
        self.addCleanup(lambda: until(self.group_is_removed, "the end of %s" % self.group))     # the last of all
        with open("%s/%s" % (self.group, limit), "w") as file:
            file.write(str(self.LIMIT))
        super().setUp()

    def start(self):
        self.agent.prefix = self.inside()
        super().start()

    def inside(self):
        return ["sh", "-c", "echo $$ > %s/cgroup.procs && exec \"$@\"" % self.group, "sh"]

    def group_is_removed(self):
        for directory, _, _ in os.walk(self.group, topdown=False):
            try:
                os.rmdir(directory)
            except OSError:
                return False
        return True

    def test_standbys_go_first(self):
        self.gang("tight", workers=1)
        self.ready(1)
        waiting = self.waits_here()
        self.assertEqual(len(waiting), 2)
        hog = subprocess.Popen([*self.inside(), "/usr/bin/python3", "-c", "import sys; hog = b'x' * %d; sys.stdin.read()" % self.HOG],
                               stdin=subprocess.PIPE)
        self.addCleanup(lambda: (hog.communicate(), self.assertEqual(hog.returncode, 0, "nobody is short of it but standbys")))
        until(lambda: not any(map(alive, waiting)), lambda: "the end of %s" % waiting)
        until(lambda: "task.no-standby" in self.event_types("tight"), lambda: "events: %s" % self.events("tight"))
        self.assertEqual({e["reason"] for e in self.events("tight") if e["type"] == "task.no-standby"}, {"memory is short"})
        self.assertEqual({t["state"] for t in self.tasks("tight").values()}, {"Running"})
        # The next attempt is cold, and has a standby again once there is room.
        self.kill(0)
        self.said("tight", r"generation=2 warm=False", 2)
        hog.communicate()
        self.kill(1)
        self.said("tight", r"generation=3 warm=False", 2)
        self.ready(2)


if __name__ == "__main__":
    unittest.main()
