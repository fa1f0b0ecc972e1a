"""Who may do what: accounts with different roles at one agent of root, and tasks that try more than is theirs.

The accounts are Debian's own (base-passwd), as no test makes users.
"""
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys

import harness
from harness import BIN, PATIENCE, Agent, SystemTest, until

ANNE, BOB, OPS, EVE = "games", "news", "mail", "nobody"     # both submit; operates; may only look
ACCESS = "%s=submit,%s=submit,%s=operate" % (ANNE, BOB, OPS)
REFUSED, DONE = 5, 0


class Accounts(SystemTest):
    """Helpers: an agent of root, and what those accounts do at it."""
    agent_options = ("--set", "access.users=" + ACCESS)

    def start(self):
        os.chmod(self.top, 0o755)
        os.makedirs(self.agent.directory, exist_ok=True)
        os.chmod(self.agent.directory, 0o755)
        self.bin = self.path("bin")
        os.makedirs(self.bin)
        shutil.copy(os.path.join(BIN, "dtrainctl"), self.bin)
        os.chmod(os.path.join(self.bin, "dtrainctl"), 0o755)
        super().start()

    def as_(self, user, *arguments, stdin=b""):
        account = pwd.getpwnam(user)
        return subprocess.run([os.path.join(self.bin, "dtrainctl"), "--agent", self.agent.socket, *arguments], user=account.pw_uid,
                              group=account.pw_gid, extra_groups=[], capture_output=True, timeout=PATIENCE, input=stdin, cwd="/")

    def job(self, name, command, **spec):
        return json.dumps({"apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": name}, "spec": {
            "framework": "generic", "roles": {"worker": {"replicas": 1, "command": command, "restartPolicy": "Never"}}, **spec}}).encode()

    def refused(self, user, *arguments, because="", stdin=b""):
        done = self.as_(user, *arguments, stdin=stdin)
        self.assertEqual((done.returncode, done.stdout), (REFUSED, b""), (user, arguments, done))
        self.assertIn(because, done.stderr.decode())

    def allowed(self, user, *arguments, stdin=b""):
        done = self.as_(user, *arguments, stdin=stdin)
        self.assertEqual(done.returncode, DONE, (user, arguments, done))
        return done.stdout.decode()

    def begin(self, name, command, user=ANNE, **spec):
        self.allowed(user, "submit", "-", stdin=self.job(name, command, **spec))
        return until(lambda: next(task for task in self.agent.ask("tasks", name) if task["state"] == "Running"), name + " to run")

    def tries(self, script):
        """What a task of hers prints that tries it, and its exit code; all that it may know is in its environment."""
        name = "try-%d" % len(self.agent.ask("jobs"))
        env = {"CTL": os.path.join(self.bin, "dtrainctl"), "SOCKET": self.agent.socket, "DATA": self.agent.data, "TOP": self.top}
        self.allowed(ANNE, "submit", "-", stdin=self.job(name, ["sh", "-c", script], env=env))
        self.ended(name)
        return next(task for task in self.agent.ask("tasks", name))["exit"], self.agent.do("logs", name, "worker-0")

    def ended(self, name, *states):
        return until(lambda: next(job for job in self.agent.ask("jobs") if job["name"] == name and
                                  job["state"] in (states or ("Succeeded", "Failed"))),
                     lambda: "%s to end: %s" % (name, self.agent.ask("jobs")))

    def of_the_agent(self, *names):
        """Paths of what the agent keeps now, for who cannot list its directories, but may guess."""
        paths = [os.path.join(top, name) for top, _, found in os.walk(self.agent.data) for name in found]
        paths = [path for path in paths if not names or os.path.basename(path) in names]
        self.assertTrue(paths)
        return self.write("paths", "".join(path + "\n" for path in paths))


class Roles(Accounts):
    def test_who_may_only_look(self):
        self.begin("hers", harness.SLEEP, env={"TOKEN": "secret"})
        submit = self.job("mine", ["true"])
        for arguments, stdin in ((["submit", "-"], submit), (["plan", "-"], submit), (["run", "-"], submit),
                                 (["cancel", "hers"], b""), (["delete", "hers"], b""), (["suspend", "hers"], b""),
                                 (["restart", "hers"], b""), (["scale", "hers", "worker=3"], b""), (["rerun", "hers"], b""),
                                 (["logs", "hers"], b""), (["exec", "hers", "worker-0", "--", "true"], b""),
                                 (["cluster-spec", "hers"], b""), (["checkpoints", "hers"], b""), (["drain", "n1"], b""),
                                 (["undrain", "n1"], b""), (["leave"], b""), (["forget-node", "n1"], b""), (["recover-quorum"], b"")):
            with self.subTest(arguments):
                self.refused(EVE, *arguments, stdin=stdin, because="administrator")
        for arguments in (["jobs"], ["tasks", "hers"], ["status"], ["nodes"], ["events"], ["describe", "job", "hers"]):
            with self.subTest(arguments):
                self.assertNotIn("secret", self.allowed(EVE, *arguments))
        self.assertEqual(self.agent.ask("jobs")[0]["state"], "Running")
        self.assertIn("event=access.refused user=%s" % EVE, self.agent.log())

    def test_who_submits_steers_what_is_hers(self):
        self.begin("hers", harness.SLEEP)
        self.agent.do("submit", self.write("roots.yaml", self.job("roots", harness.SLEEP).decode()))
        for arguments in (["cancel", "roots"], ["logs", "roots"], ["exec", "roots", "worker-0", "--", "true"]):
            with self.subTest(arguments):
                self.refused(ANNE, *arguments, because="it belongs to root")
        self.refused(ANNE, "submit", "--replace", "-", stdin=self.job("roots", ["true"]))
        self.refused(ANNE, "drain", "n1", because="only operators may")
        self.assertEqual(self.allowed(ANNE, "exec", "hers", "worker-0", "--", "id", "-un").strip(), ANNE)
        self.allowed(ANNE, "cancel", "hers")
        # Her environment says who she is to her task, not to the agent.
        self.begin("sly", harness.SLEEP, env={"USER": "root"})
        self.assertEqual(int(self.allowed(ANNE, "exec", "sly", "worker-0", "--", "id", "-u")), pwd.getpwnam(ANNE).pw_uid)

    def test_who_operates_steers_all_but_enters_nothing(self):
        self.begin("hers", ["sh", "-c", "echo here; exec sleep 1000000"])
        until(lambda: self.allowed(OPS, "logs", "hers", "worker-0") == "here\n", "her log")
        self.refused(OPS, "exec", "hers", "worker-0", "--", "true", because="it belongs to " + ANNE)
        self.allowed(OPS, "drain", "n1")
        self.allowed(OPS, "undrain", "n1")
        self.allowed(OPS, "cancel", "hers")
        self.refused(OPS, "recover-quorum", because="coordinat")    # may, but there is no need

    def test_a_role_changes_without_a_restart(self):
        config = self.write("dtraind.yaml", "access: {users: {%s: submit}}\n" % EVE)
        agent = Agent(self.top, "n2", self.ip[:-1] + "251" if self.ip.endswith("0") else self.ip + "0", "--config", config)
        agent.ip = "127.19.%d.%d" % (os.getpid() % 250, 1 + os.getpid() // 250 % 250)
        agent.options += ["--listen", agent.ip + ":7400", "--advertise", agent.ip]
        os.chmod(agent.directory, 0o755)
        agent.start()
        self.addCleanup(lambda: agent.process.poll() is None and agent.end())
        self.agent, first = agent, self.agent
        self.addCleanup(lambda: first.process.poll() is None and first.end())
        self.allowed(EVE, "submit", "-", stdin=self.job("first", ["true"]))
        self.write("dtraind.yaml", "access: {users: {}}\n")
        agent.process.send_signal(signal.SIGHUP)
        until(lambda: "event=config.reloaded" in agent.log(), "the configuration to be read again")
        self.refused(EVE, "submit", "-", because="only look", stdin=self.job("second", ["true"]))
        event, = (event for event in self.events() if event["type"] == "audit.access")
        me = pwd.getpwuid(os.getuid())
        self.assertEqual(event["message"], "node=n2 user=%s uid=%d at=n2 outcome=accepted" % (me.pw_name, me.pw_uid))
        self.assertEqual(event["reason"], "%s: submit -> none of their own" % EVE)

    # ---- who did what

    def audits(self):
        return [(event["type"], event["object"], event["message"]) for event in self.events()
                if event["type"].startswith("audit.") or event["type"] == "access.refused"]

    def test_each_change_says_who_made_it(self):
        hers, ops = ("user=%s uid=%d at=n1 outcome=accepted" % (name, pwd.getpwnam(name).pw_uid) for name in (ANNE, OPS))
        self.begin("hers", harness.SLEEP)
        self.allowed(ANNE, "exec", "hers", "worker-0", "--", "true")
        self.allowed(ANNE, "restart", "hers")
        for _ in range(10):
            self.refused(EVE, "cancel", "hers")
        self.refused(ANNE, "drain", "n1")
        self.allowed(OPS, "drain", "n1", "--reason", "disk")
        self.allowed(OPS, "undrain", "n1")
        self.allowed(OPS, "delete", "hers", "--force")
        said = self.audits()
        for wanted in (("audit.submit", "hers", "job=hers " + hers), ("audit.exec", "hers/worker-0", "job=hers task=hers/worker-0 " + hers),
                       ("audit.restart", "hers", "job=hers " + hers), ("audit.drain", "n1", "node=n1 " + ops),
                       ("audit.undrain", "n1", "node=n1 " + ops), ("audit.delete", "hers", "job=hers " + ops)):
            self.assertEqual(said.count(wanted), 1, (wanted, said))
            self.assertIn(" event=%s %s" % (wanted[0], wanted[2]), self.agent.log())
        # However often she tries it is one event, so that no other goes for it.
        refused = [(who, message) for type, who, message in said if type == "access.refused"]
        self.assertEqual(sorted(who for who, _ in refused), sorted((ANNE, EVE)))
        self.assertIn("user=%s uid=%d at=n1 outcome=refused count=" % (EVE, pwd.getpwnam(EVE).pw_uid), dict(refused)[EVE])

    # ---- what a task tries

    def test_a_task_reaches_no_agent(self):
        for how in ("$CTL --agent $SOCKET jobs", "setsid $CTL --agent $SOCKET cancel hers",
                    # Its parent is gone, and it leads a session of its own.
                    "setsid -f sh -c '$CTL --agent $SOCKET jobs; echo exit $?' > out 2>&1; "
                    "until grep -q exit out; do sleep 0.05; done; cat out; grep -q 'exit 0' out"):
            with self.subTest(how):
                exit_, said = self.tries(how)
                self.assertNotEqual(exit_.get("code"), 0, said)
                self.assertIn("inside a task", said)
        self.assertEqual(self.agent.do("exec", self.running_one(), "worker-0", "--", "true"), "")

    def test_one_user_does_not_take_all_connections(self):
        crowd = subprocess.Popen([sys.executable, "-c", """
import socket, sys
crowd = []
for _ in range(700):
    crowd.append(socket.socket(socket.AF_UNIX))
    crowd[-1].connect(sys.argv[1])
print("there", flush=True)
sys.stdin.read()
""", self.agent.socket], user=pwd.getpwnam(EVE).pw_uid, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/")
        self.addCleanup(lambda: (crowd.kill(), crowd.communicate()))
        self.assertEqual(crowd.stdout.readline(), b"there\n")
        until(lambda: b"128 of yours are open" in self.as_(EVE, "jobs").stderr, "she is refused more")
        self.allowed(ANNE, "jobs")
        self.agent.do("jobs")

    def running_one(self):
        self.agent.do("submit", self.write("alive.yaml", self.job("alive", harness.SLEEP).decode()))
        until(lambda: self.agent.ask("tasks", "alive")[0]["state"] == "Running", "alive to run")
        return "alive"

    def test_a_task_reads_nothing_that_is_not_its_own(self):
        secret = self.write("secret.sh", "echo top secret; exec sleep 1000000\n")
        self.agent.do("submit", self.write("roots.yaml", self.job("roots", ["sh", secret]).decode()))
        until(lambda: self.agent.do("logs", "roots", "worker-0") == "top secret\n", "the other job's log")
        paths = self.of_the_agent()
        with open(paths) as file:
            kept = file.read()
        for name in ("dtrain.db\n", "/log.", "/launch\n"):
            self.assertIn(name, kept)
        exit_, said = self.tries("while read -r f; do cat \"$f\" > /dev/null 2>&1 && echo CAN READ $f; done < %s; echo looked" % paths)
        self.assertEqual(said, "looked\n")

    def test_a_task_touches_no_other_task(self):
        self.agent.do("submit", self.write("roots.yaml", self.job("roots", harness.SLEEP).decode()))
        other = until(lambda: next(t for t in self.agent.ask("tasks", "roots") if t["state"] == "Running"), "roots to run")
        with open("/proc/%d/stat" % other["pid"]) as file:
            shim = int(file.read().rsplit(")", 1)[1].split()[1])
        paths = self.of_the_agent("shim.sock", "notify")
        reach = self.write("reach.py", "import socket\nfor path in open(%r).read().split():\n"
                           "  for kind in (socket.SOCK_SEQPACKET, socket.SOCK_DGRAM, socket.SOCK_STREAM):\n"
                           "    try: socket.socket(socket.AF_UNIX, kind).connect(path); print('REACHED', path)\n"
                           "    except OSError as error: print(type(error).__name__)\n" % paths)
        exit_, said = self.tries("kill -9 %d; kill -9 %d; kill -9 $PPID; python3 %s; echo tried" % (other["pid"], shim, reach))
        self.assertTrue(said.endswith("tried\n"), said)
        self.assertNotIn("REACHED", said)
        self.assertGreaterEqual(said.count("PermissionError\n"), 3, said)
        self.assertEqual(said.count("not permitted"), 3, said)
        self.assertTrue(harness.alive(other["pid"]) and harness.alive(shim))

    def test_modes_of_what_the_agent_keeps(self):
        self.begin("hers", ["sh", "-c", "echo here; exec sleep 1000000"])
        until(lambda: self.agent.do("logs", "hers", "worker-0") == "here\n", "her log")
        open_to_others = []
        for top, directories, files in os.walk(self.agent.data):
            for name in files:
                info = os.stat(os.path.join(top, name))
                if info.st_mode & 0o077 and "work" not in top.split(os.sep):
                    open_to_others.append((os.path.join(top, name), stat.filemode(info.st_mode)))
        self.assertEqual(open_to_others, [])


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skipped: it acts as several accounts, which root alone can", file=sys.stderr)
        sys.exit(77)
    harness.main()
