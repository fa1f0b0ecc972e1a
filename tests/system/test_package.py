"""The Debian package on hosts with a real systemd: it installs, starts the service, and is upgraded while training goes on; whatever
becomes of the agent, no task is restarted; removed, it leaves its configuration, and purged nothing.

Where no host can be had it says why and ends with the code for that (docs/testing.md).
"""
import functools
import json
import os
import re
import shutil
import unittest

import hosts_lab
from harness import main

AT_MOST = 300       # seconds, of all of it
TASKS = ("worker-0", "worker-1")
# Each step of a training leaves a mark in the working copy. Asked to end it ends well, as one that has saved its state does.
TRAIN = "trap 'exit 0' TERM; i=0 t=$DTRAIN_TASK; while :; do i=$((i+1)); echo $i > new.$t; mv new.$t step.$t; sleep 0.1; done"


def job(name, replicas, command, **role):
    """A job that no restart may cost anything."""
    return json.dumps({"apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": name},
                       "spec": {"framework": "generic", "policy": {"backoffLimit": 0},
                                "roles": {"worker": dict({"replicas": replicas, "command": command}, **role)}}})


JOB = job("train", len(TASKS), ["sh", "-c", TRAIN])
# The unit that the task lies in stops, says who speaks for it in its name.
SPEAKS = job("speaks", 1, ["sh", "-c", "NOTIFY_SOCKET=/run/systemd/notify systemd-notify STOPPING=1 STATUS=mine"])
LONE = job("lone", 1, ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"])
# A tree that eats together what none of it eats alone: the kernel ends one, which that one's parent tells.
FAMILY = job("family", 1, ["python3", "-uc", "import os, time\nfor _ in range(7): os.fork() or (b'a' * (40 << 20), time.sleep(1e6))\n"
                                             "print(os.wait()[1])"], resources={"memory": "128Mi"}, restartPolicy="Never")
# Numbers of NVIDIA, of a disk and of the machine's memory. No driver is behind the first: who may open it is told so.
NODES = {"gpu": ("c", 195, 0), "disk": ("b", 8, 0), "memory": ("c", 1, 1)}
LOOKS = "for f in gpu disk memory; do cat /var/tmp/nodes/$f; done 2>&1 > /dev/null; cat /dev/null && head -c 1 /dev/zero | wc -c"
OPENS = job("opens", 1, ["sh", "-c", LOOKS + "; exec sleep 1000000"])
# Told to, it makes processes until it may not, and says how many.
FORKS = job("forks", 1, ["python3", "-uc", """
import os, time
while not os.path.exists('go'): time.sleep(0.05)
pids = []
try:
  while len(pids) < 500:
    pids.append(os.fork())
    if not pids[-1]: time.sleep(1e6)
except OSError as error: print(error)
print(len(pids), 'processes')
time.sleep(1e6)
"""])
HUNGRY = job("hungry", 1, ["python3", "-c", "b'a' * (300 << 20)"], resources={"memory": "64Mi"}, restartPolicy="Never")


class Package(unittest.TestCase):
    """One story in the order of its tests: hosts are dear."""
    hosts = h1 = packages = None

    @classmethod
    def setUpClass(cls):
        cls.packages = [cls.hosts.package(revision) for revision in (1, 2)]

    # -- helpers

    def main_pid(self, host):
        return int(host.shows("dtraind", "MainPID")["MainPID"])

    def up(self, host):
        return host.shows("dtraind", "ActiveState")["ActiveState"] == "active"

    def tasks(self):
        found = json.loads(self.h1.does("dtrainctl", "-o", "json", "tasks", "train"))
        return {task["task"]: (task["state"], task["pid"], task["attempt"]) for task in found}

    def steps(self):
        """How far each task's training is."""
        found = self.h1.does("find", "/var/lib/dtrain/work", "-name", "step.*", "-exec", "grep", "-H", ".", "{}", "+")
        return {line.split(":")[0].rsplit(".", 1)[1]: int(line.split(":")[1]) for line in found.splitlines()}

    def goes_on(self, since):
        """Both tasks train on from there."""
        self.hosts.until(lambda: all(self.steps()[task] > since[task] for task in TASKS), lambda: "a step of each; %s" % self.steps())

    def trains(self, steps):
        since = self.steps()
        self.goes_on({task: step + steps for task, step in since.items()})

    def survives(self, what, do, another_agent=True):
        """Neither task notices what is done."""
        before, agent, steps = self.tasks(), self.main_pid(self.h1), self.steps()
        self.assertEqual({state for state, _, _ in before.values()}, {"Running"}, what)
        do()
        if another_agent:
            self.hosts.until(lambda: self.main_pid(self.h1) not in (0, agent), "another agent after " + what)
        self.hosts.until(lambda: self.up(self.h1), lambda: "the agent after %s: %s" % (what, self.h1.journal("dtraind")[-2000:]))
        self.assertEqual(self.tasks(), before, what)
        if not another_agent:
            self.assertEqual(self.main_pid(self.h1), agent, what)
        self.goes_on(steps)

    def submit(self, text):
        """As the account that the package made: root is not let submit."""
        self.h1.does("runuser", "-u", "dtrain", "--", "dtrainctl", "submit", "-", given=text)

    def job(self, name="train"):
        return next(job for job in json.loads(self.h1.does("dtrainctl", "-o", "json", "jobs")) if job["name"] == name)

    def becomes(self, name, state):
        return self.hosts.until(lambda: self.job(name)["state"] == state and self.job(name), lambda: "%s: %s" % (state, self.job(name)))

    def goes_on_after(self, restarts):
        """The host's stop was that of the tasks, too: they go on, and nothing is counted, though no restart may cost anything."""
        self.hosts.until(lambda: {(state, attempt) for state, _, attempt in self.tasks().values()} == {("Running", 1 + restarts)},
                         lambda: "both tasks to run again: %s; %s" % (self.tasks(), self.job()))
        job = self.job()
        self.assertEqual((job["state"], job["restarts"], job["generation"]), ("Running", restarts * len(TASKS), 1))

    # -- the story

    def test_1_installed_it_waits_and_says_so(self):
        self.h1.install(self.packages[0])
        self.assertTrue(self.up(self.h1))
        self.assertEqual(self.h1.does("systemctl", "is-enabled", "dtraind").strip(), "enabled")
        self.assertIn("belongs to no cluster; waits for --found", self.h1.status())
        self.assertIn("waits for", self.h1.does("systemctl", "status", "dtraind"))
        for path in ("/usr/share/man/man8/dtraind.8", "/usr/share/man/man1/dtrainctl.1", "/usr/share/man/man5/dtraind.yaml.5",
                     "/usr/share/man/man5/dtrain-job.5", "/usr/share/bash-completion/completions/dtrainctl",
                     "/usr/share/zsh/vendor-completions/_dtrainctl", "/usr/share/fish/vendor_completions.d/dtrainctl.fish",
                     "/usr/lib/systemd/system/dtrain.slice"):
            self.assertTrue(os.path.getsize(self.h1.path(path)), path)
        self.assertIn("dtrain", self.h1.does("getent", "passwd", "dtrain"))
        verified = self.h1.tries("systemd-analyze", "verify", "--recursive-errors=no", "--man=no", "dtraind.service",
                                 "dtrain-tasks.service", "dtrain-units.target", "dtrain.slice")
        self.assertEqual((verified.returncode, verified.stdout + verified.stderr), (0, ""))
        self.assertEqual(self.h1.does("dtraind", "--check-config").strip(), "the configuration is valid")

    def test_1b_without_a_place_for_tasks_there_is_an_agent(self):
        self.with_flags("--launch direct")      # one that launches its tasks itself, and needs a place for them
        agent = self.main_pid(self.h1)
        self.h1.write("/etc/systemd/system/dtrain-tasks.service.d/fails.conf", "[Service]\nExecStartPre=/bin/false\nRestartSec=1h\n")
        self.h1.does("systemctl", "daemon-reload")
        self.h1.does("systemctl", "stop", "dtrain-tasks")
        self.assertFalse(self.up(self.h1), "who ends the tasks ends the agent, which would begin them again")
        self.h1.does("systemctl", "start", "dtraind")
        self.assertTrue(self.up(self.h1))
        without = self.main_pid(self.h1)
        self.assertNotEqual(without, agent)
        self.assertIn("could not use tasks.cgroup /dtrain.slice/dtrain-tasks.service: ", self.h1.journal("dtraind"))
        # Once it starts the agent is begun anew with it.
        shutil.rmtree(self.h1.path("/etc/systemd/system/dtrain-tasks.service.d"))
        self.h1.does("systemctl", "daemon-reload")
        self.h1.does("systemctl", "restart", "dtrain-tasks")
        self.hosts.until(lambda: self.main_pid(self.h1) not in (0, without) and self.up(self.h1), "another agent")
        self.assertEqual(self.h1.journal("dtraind").count("could not use tasks.cgroup"), 1)
        self.with_flags("")

    def test_2_it_trains(self):
        config = self.h1.path("/etc/dtrain/dtraind.yaml")
        with open(config) as file:
            text = file.read()
        self.assertIn("\n  found: false\n", text)
        self.h1.write("/etc/dtrain/dtraind.yaml", text.replace("\n  found: false\n", "\n  found: true\n"))
        self.h1.does("systemctl", "restart", "dtraind")
        self.hosts.until(lambda: self.h1.status().startswith("coordinator h1; 1 of 1 members alive"), lambda: self.h1.status())
        self.assertEqual(self.h1.tries("dtrainctl", "submit", "-", given=JOB).returncode, 5)
        self.submit(JOB)
        self.hosts.until(lambda: {state for state, _, _ in self.tasks().values()} == {"Running"}, lambda: "both tasks: %s" % self.tasks())
        self.goes_on(self.hosts.until(self.steps, "steps"))
        self.hosts.until(lambda: "jobs: 1 Running; 2 tasks run here" in self.h1.status(), lambda: self.h1.status())
        for task in TASKS:
            said = functools.partial(self.h1.does, "journalctl", "--no-pager", "--output=cat", "DTRAIN_JOB=train", "DTRAIN_TASK=" + task)
            self.hosts.until(lambda task=task, said=said: "event=task.running task=train/%s " % task in said(), said)
        for _, pid, _ in self.tasks().values():
            said = self.h1.shows(self.unit_of(pid), "Description")["Description"]
            self.assertIn(said, ["train %s, generation 1" % task for task in TASKS])
            self.assertIn("dtrain", self.h1.does("stat", "-c", "%U", "/proc/%d" % pid))

    def test_3_no_task_notices(self):
        pid = lambda: str(self.main_pid(self.h1))       # noqa: E731
        systemctl = lambda *words: lambda: self.h1.does("systemctl", *words)        # noqa: E731
        self.survives("restart", systemctl("restart", "dtraind"))
        self.survives("kill -9", lambda: self.h1.does("kill", "-KILL", pid()))
        self.survives("daemon-reexec", systemctl("daemon-reexec"), another_agent=False)
        self.survives("restart of journald", systemctl("restart", "systemd-journald"), another_agent=False)
        self.survives("reload", systemctl("reload", "dtraind"), another_agent=False)
        holder = self.h1.shows("dtrain-tasks", "MainPID")["MainPID"]
        self.assertIn("/dtrain-tasks.service/hold\n", self.h1.does("cat", "/proc/%s/cgroup" % holder))
        # Its unit ends with it, is begun anew, and the agent with that.
        self.survives("kill -9 of who keeps the place of others", lambda: self.h1.does("kill", "-KILL", holder))
        self.survives("restart of that", systemctl("restart", "dtrain-tasks"))
        self.survives("restart of D-Bus", systemctl("restart", "dbus"), another_agent=False)
        # A loop that is stuck. The time until that is noticed is the test's.
        self.h1.write("/etc/systemd/system/dtraind.service.d/watchdog.conf", "[Service]\nWatchdogSec=5s\n")
        self.h1.does("systemctl", "daemon-reload")
        self.survives("restart with a shorter watchdog", systemctl("restart", "dtraind"))
        # One that turns is left alone, for longer than that time.
        agent = self.main_pid(self.h1)
        self.trains(60)
        self.assertEqual((self.main_pid(self.h1), self.h1.shows("dtraind", "NRestarts")["NRestarts"]), (agent, "0"))
        self.survives("SIGSTOP", lambda: self.h1.does("kill", "-STOP", pid()))
        self.assertIn("Watchdog timeout", self.h1.journal("dtraind"))

    def test_3b_a_task_speaks_for_itself_alone(self):
        def speaks():
            self.submit(SPEAKS)
            self.becomes("speaks", "Succeeded")
        self.survives("words in the name of the unit", speaks, another_agent=False)
        self.assertNotIn("mine", self.h1.does("systemctl", "status", "--lines=0", "dtrain*"))

    def test_3c_a_task_beyond_its_memory_ends_alone(self):
        def eats():
            self.submit(HUNGRY)
            self.becomes("hungry", "Failed")
        self.survives("another one's end for want of memory", eats, another_agent=False)
        self.assertIn("out of memory", self.h1.does("dtrainctl", "describe", "job", "hungry"))

    def test_3c2_a_tree_beyond_its_memory_loses_one(self):
        def eats():
            self.submit(FAMILY)
            self.becomes("family", "Succeeded")
        self.survives("the end of one of a tree for want of memory", eats, another_agent=False)
        self.assertEqual(self.h1.does("dtrainctl", "logs", "family", "worker-0"), "9\n")

    def one(self, name):
        self.submit(globals()[name.upper()])
        self.becomes(name, "Running")
        return json.loads(self.h1.does("dtrainctl", "-o", "json", "tasks", name))[0]["pid"]

    def cancel(self, name):
        self.h1.does("dtrainctl", "cancel", name)
        self.becomes(name, "Cancelled")

    def test_3c3_devices_are_denied(self):
        self.h1.does("mkdir", "/var/tmp/nodes")
        for name, numbers in NODES.items():
            self.h1.does("mknod", "--mode=666", "/var/tmp/nodes/" + name, *map(str, numbers))
        outside = self.h1.tries("runuser", "-u", "dtrain", "--", "cat", "/var/tmp/nodes/gpu").stderr
        self.assertNotIn("not permitted", outside, "its mode does not deny it")
        denied = "".join("cat: /var/tmp/nodes/%s: Operation not permitted\n" % name for name in NODES)
        self.one("opens")
        said = functools.partial(self.h1.does, "dtrainctl", "logs", "opens", "worker-0")
        self.hosts.until(lambda: said() == denied + "1\n", said)
        self.assertEqual(self.h1.does("runuser", "-u", "dtrain", "--", "dtrainctl", "exec", "opens", "worker-0", "--", "sh", "-c", LOOKS),
                         denied + "1\n")
        self.cancel("opens")
        self.h1.does("rm", "-r", "/var/tmp/nodes")

    def test_3c4_a_fork_bomb_is_bounded(self):
        def bursts():
            pid = self.one("forks")
            unit = self.unit_of(pid)
            self.assertEqual(self.h1.shows(unit, "TasksMax")["TasksMax"], "65536")
            self.h1.does("systemctl", "set-property", "--runtime", unit, "TasksMax=100")    # as many as that nobody needs to wait for
            self.h1.does("touch", os.path.join(self.h1.does("readlink", "/proc/%d/cwd" % pid).strip(), "go"))
            said = functools.partial(self.h1.does, "dtrainctl", "logs", "forks", "worker-0")
            self.hosts.until(lambda: "processes" in said(), said)
            self.assertRegex(said(), r"^\[Errno 11\] Resource temporarily unavailable\n9\d processes\n$")
            self.cancel("forks")
            self.hosts.until(lambda: self.h1.tries("test", "-d", "/proc/%d" % pid).returncode != 0, "the end of it")
        self.survives("a fork bomb", bursts, another_agent=False)

    def lone(self):
        found, = json.loads(self.h1.does("dtrainctl", "-o", "json", "tasks", "lone"))
        return found["state"], found["pid"], found["attempt"]

    def unit_of(self, pid):
        """The service that a process of a task lies in."""
        return re.search(r"0::/dtrain\.slice/([^/]*)/", self.h1.does("cat", "/proc/%d/cgroup" % pid)).group(1)

    def with_flags(self, flags):
        """Another agent, with these options."""
        self.h1.write("/etc/default/dtraind", 'DTRAIND_FLAGS="%s"\n' % flags)
        self.h1.does("systemctl", "restart", "dtraind")

    def test_3d_who_is_launched_otherwise_runs_on(self):
        self.survives("an agent that launches its tasks itself", lambda: self.with_flags("--launch direct"))
        self.submit(LONE)
        self.hosts.until(lambda: self.lone()[0] == "Running", "the lone task")
        lone = self.lone()
        self.assertEqual(self.unit_of(lone[1]), "dtrain-tasks.service")
        self.survives("one that has systemd do it", lambda: self.with_flags(""))
        self.assertEqual(self.lone(), lone)
        # Its successors are launched as it was: a shim stays for all attempts.
        self.h1.does("dtrainctl", "restart", "lone")
        self.hosts.until(lambda: self.lone()[0] == "Running" and self.lone()[2] == 2, self.lone)
        self.h1.does("dtrainctl", "cancel", "lone")
        self.becomes("lone", "Cancelled")
        self.h1.does("dtrainctl", "delete", "lone")

    def test_3e_the_stop_of_one_tasks_service_is_no_end_of_it(self):
        self.submit(LONE)
        self.hosts.until(lambda: self.lone()[0] == "Running", "the lone task")
        self.h1.does("systemctl", "stop", self.unit_of(self.lone()[1]))
        self.hosts.until(lambda: self.lone()[0] == "Running" and self.lone()[2] == 2, self.lone)
        self.assertEqual(self.job("lone")["state"], "Running")
        self.h1.does("dtrainctl", "cancel", "lone")
        self.becomes("lone", "Cancelled")

    def test_3f_who_is_let_into_a_task_is_kept_to_what_it_is(self):
        places = self.h1.does("runuser", "-u", "dtrain", "--", "dtrainctl", "exec", "train", "worker-0", "--", "cat", "/proc/self/cgroup")
        task = self.h1.does("cat", "/proc/%d/cgroup" % self.tasks()["worker-0"][1])
        held = re.compile(r"^\d+:(|memory|devices|pids):", re.M)     # those that limit it, by whichever version
        self.assertIn("/dtrain.slice/", task)
        self.assertEqual(*(sorted(line for line in text.splitlines() if held.match(line)) for text in (places, task)))

    def test_4_upgrade(self):
        # What a script of the package calls may fail, for reasons of the machine's: the upgrade does not.
        self.h1.write("/etc/tmpfiles.d/dtrain.conf", "nonsense\n")
        self.survives("an upgrade", lambda: self.h1.install(self.packages[1]))
        os.remove(self.h1.path("/etc/tmpfiles.d/dtrain.conf"))
        self.assertTrue(self.h1.does("dpkg-query", "-W", "-f", "${Version}", "dtrain").endswith("-2"))
        # Nobody was asked what to do with the file, though it was edited, and the package's is another now.
        with open(self.h1.path("/etc/dtrain/dtraind.yaml")) as file:
            text = file.read()
        self.assertIn("\n  found: true\n", text)
        self.assertIn("# revision 1\n", text)
        with open(self.h1.path("/usr/share/dtrain/dtraind.yaml")) as file:
            self.assertIn("# revision 2\n", file.read())
        self.goes_on_after(restarts=0)

    def test_5_stopping_the_agent_stops_no_training(self):
        before, steps = self.tasks(), self.steps()
        self.h1.does("systemctl", "stop", "dtraind")
        self.goes_on(steps)
        self.assertIn("to end them: dtrainctl cancel JOB at a node of the cluster, or here systemctl stop dtrain-tasks.service",
                      self.h1.journal("dtraind"))
        self.assertIn("stopped; 2 tasks run on; to end them: dtrainctl cancel JOB", self.h1.status())
        self.h1.does("systemctl", "start", "dtraind")
        self.assertEqual(self.tasks(), before)

    def test_5b_stopping_the_tasks_is_no_end_of_the_training(self):
        self.h1.does("systemctl", "stop", "dtrain-tasks")
        self.assertFalse(self.up(self.h1))
        self.h1.does("systemctl", "start", "dtraind")
        self.goes_on_after(restarts=1)

    def test_5c_nor_is_a_reboot(self):
        self.h1.reboot()
        self.hosts.until(lambda: self.up(self.h1), lambda: self.h1.journal("dtraind")[-2000:])
        self.goes_on_after(restarts=2)

    def test_6_removed_and_purged(self):
        pids = [pid for _, pid, _ in self.tasks().values()]
        self.h1.does("dpkg", "--remove", "--no-triggers", "dtrain")
        for pid in pids:
            self.assertNotEqual(self.h1.tries("test", "-d", "/proc/%d" % pid).returncode, 0, "a task runs on")
        self.assertFalse(os.path.exists(self.h1.path("/usr/bin/dtraind")))
        self.assertTrue(os.path.exists(self.h1.path("/etc/dtrain/dtraind.yaml")))
        self.assertTrue(os.path.exists(self.h1.path("/var/lib/dtrain/dtrain.db")))
        # Installed again it goes on from what was kept.
        self.h1.install(self.packages[1])
        self.goes_on_after(restarts=3)
        # The account's files are nobody's to delete. A data directory on a disk of its own is emptied, and stays.
        self.h1.does("runuser", "-u", "dtrain", "--", "touch", "/var/lib/dtrain/home/model")
        self.h1.does("mount", "--bind", "/var/lib/dtrain", "/var/lib/dtrain")
        self.h1.does("dpkg", "--purge", "--no-triggers", "dtrain")
        for path in ("/etc/dtrain", "/etc/default/dtraind", "/etc/needrestart/conf.d/dtrain.conf", "/run/dtrain"):
            self.assertNotEqual(self.h1.tries("test", "-e", path).returncode, 0, path)
        kept = self.h1.does("find", "/var/lib/dtrain", "-mindepth", "1", "-printf", "%P\n").split()
        self.assertEqual(kept, ["home", "home/model"])
        # And one that is not is gone.
        self.h1.does("umount", "/var/lib/dtrain")
        os.remove(self.h1.path("/var/lib/dtrain/home/model"))
        self.h1.install(self.packages[1])
        self.h1.does("dpkg", "--purge", "--no-triggers", "dtrain")
        self.assertNotEqual(self.h1.tries("test", "-e", "/var/lib/dtrain").returncode, 0)
        left = self.h1.does("find", "/etc/systemd", "/usr", "-xdev", "-name", "*dtrain*", "-not", "-path", "*/dtraind.service.d*")
        self.assertEqual(left, "")
        self.assertEqual(self.h1.shows("dtraind", "LoadState")["LoadState"], "not-found")


if __name__ == "__main__":
    Package.hosts = hosts_lab.Hosts(hosts_lab.enter(AT_MOST), 1).begin()
    Package.h1, = Package.hosts.hosts
    main()
