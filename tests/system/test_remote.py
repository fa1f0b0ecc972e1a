"""dtrainctl from another machine: two agents of one cluster at addresses of their own, asked over the network by keys that stand for users.

The accounts are Debian's own (base-passwd), as no test makes users.
"""
import hashlib
import json
import os
import pwd
import signal
import subprocess
import sys
import time

import harness
from harness import BIN, PATIENCE, Member, SystemTest, make_key, until

ANNE, OPS, EVE = "games", "mail", "nobody"      # submits; operates; may only look
DONE, USAGE, UNREACHABLE, REFUSED = 0, 2, 4, 5
PORT = 7402                                     # for clients: gossip + 2
BIG = 6 << 20                                   # bytes of a package: many windows of the bridge
SOON = 15                                       # seconds within which what cannot be reached is said; --timeout is longer

CHECK = """import hashlib, os
data = open("data", "rb").read()
print("whole" if hashlib.sha256(data).hexdigest() == os.environ["WANTED"] else "damaged", flush=True)
"""


class Remote(SystemTest):
    def start(self):
        os.chmod(self.top, 0o755)
        self.key = make_key(self.path("cluster.key"))
        self.public = {user: self.client_key(user) for user in (ANNE, OPS, EVE, "root", "stranger")}
        self.allow({user: self.public[user] for user in (ANNE, OPS, EVE)})
        self.agent = self.member("n1", self.ip)
        self.other = self.member("n2", "127.18.%d.%d" % (os.getpid() % 250, 1 + os.getpid() // 250 % 250), self.ip)
        until(lambda: self.agent.states() == {"n1": "alive", "n2": "alive"}, "both to know each other")
        for agent in (self.agent, self.other):
            until(lambda: "event=clients.listening" in agent.log(), "the door of " + agent.name)

    def member(self, name, ip, *joins):
        agent = Member(self.top, name, ip, self.key, joins)
        agent.options = ["--config", self.path("dtraind.yaml")]
        os.chmod(agent.directory, 0o755)
        agent.start()
        self.addCleanup(lambda: agent.process.poll() is None and agent.end())
        return agent

    def key_file(self, user):
        return self.path("keys", user + ".key")

    def client_key(self, user, cluster_key=None):
        """Makes one and answers its public half, as the line that is printed says it."""
        os.makedirs(self.path("keys"), exist_ok=True)
        made = subprocess.run([os.path.join(BIN, "dtrainctl"), "keygen", "--client", self.key_file(user), "--cluster-key",
                               cluster_key or self.key], capture_output=True, text=True, check=True)
        public, whose = made.stdout.split(": ")
        self.assertEqual((len(public), whose), (64, "USER\n"))
        return public

    def allow(self, keys, **users):
        access = {"keys": {public: user for user, public in keys.items()}, "users": {ANNE: "submit", OPS: "operate", **users}}
        return self.write("dtraind.yaml", json.dumps({"access": access}))

    def reload(self, agent):
        before = agent.log().count("event=config.reloaded")
        agent.process.send_signal(signal.SIGHUP)
        until(lambda: agent.log().count("event=config.reloaded") > before, "the configuration to be read again")

    # ---- as somebody elsewhere

    def command(self, user, *arguments, agent=None, port=PORT, key=None):
        return [os.path.join(BIN, "dtrainctl"), "--agent", "%s:%d" % ((agent or self.agent).ip, port), "--key-file",
                key or self.key_file(user), *arguments]

    def as_(self, user, *arguments, stdin="", **how):
        return subprocess.run(self.command(user, *arguments, **how), capture_output=True, text=True, timeout=2 * PATIENCE, input=stdin,
                              cwd="/")

    def allowed(self, user, *arguments, **how):
        done = self.as_(user, *arguments, **how)
        self.assertEqual(done.returncode, DONE, (user, arguments, done))
        return done.stdout

    def refused(self, user, *arguments, because, code=REFUSED, **how):
        begun = time.monotonic()
        done = self.as_(user, *arguments, **how)
        self.assertEqual((done.returncode, done.stdout), (code, ""), (user, arguments, done))
        self.assertIn(because, done.stderr)
        self.assertLess(time.monotonic() - begun, SOON, "said when it was known")

    def job_text(self, name, command, **spec):
        return json.dumps({"apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": name}, "spec": {
            "framework": "generic", "roles": {"worker": {"replicas": 1, "command": command, "restartPolicy": "Never"}}, **spec}})

    def begin(self, name, command, **spec):
        self.assertEqual(self.allowed(ANNE, "submit", "-", stdin=self.job_text(name, command, **spec)).strip(), name)
        until(lambda: self.agent.ask("tasks", name)[0]["state"] == "Running", name + " to run")

    def follow(self, user, *arguments, agent=None):
        process = subprocess.Popen(self.command(user, *arguments, agent=agent), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        return process

    # ---- tests

    def test_a_users_day(self):
        self.begin("hers", ["sh", "-c", "echo begun; until test -e %s; do sleep 0.05; done; echo done" % self.path("go")])
        for agent in (self.agent, self.other):
            jobs = json.loads(self.allowed(ANNE, "-o", "json", "jobs", agent=agent))
            self.assertEqual([(job["name"], job["state"]) for job in jobs], [("hers", "Running")])
            self.assertEqual(self.allowed(ANNE, "exec", "hers", "worker-0", "--", "id", "-un", agent=agent).strip(), ANNE)
        upper = self.allowed(ANNE, "exec", "hers", "worker-0", "--", "tr", "a-z", "A-Z", stdin="said from afar\n")
        self.assertEqual(upper, "SAID FROM AFAR\n")
        lines = self.allowed(ANNE, "exec", "hers", "worker-0", "--", "seq", "1", "200000").split()
        self.assertEqual((len(lines), lines[-1]), (200000, "200000"))
        log = self.follow(ANNE, "logs", "-f", "hers", "worker-0", agent=self.other)
        self.assertEqual(log.stdout.readline(), "begun\n")
        self.write("go", "")
        self.assertEqual(log.stdout.read(), "done\n")
        self.assertEqual(log.wait(PATIENCE), DONE)
        self.allowed(ANNE, "wait", "hers", "--for", "Succeeded")
        self.allowed(ANNE, "delete", "hers")
        self.assertEqual(self.agent.ask("jobs"), [])

    def test_zeromq_is_loaded_for_other_machines_alone(self):
        linked = subprocess.run(["ldd", os.path.join(BIN, "dtraind")], capture_output=True, text=True, check=True).stdout
        library = next(line.split(" => ")[1].split()[0] for line in linked.splitlines() if "libzmq" in line)
        become_root = [] if os.geteuid() == 0 else ["--map-root-user"]
        without = ["unshare", *become_root, "--mount", "sh", "-c", 'mount --bind /dev/null "$0" && exec "$@"', library]
        here = subprocess.run([*without, *self.agent.ctl_command("nodes")], capture_output=True, text=True)
        self.assertEqual((here.returncode, here.stderr), (DONE, ""))
        there = subprocess.run([*without, *self.command(ANNE, "nodes")], capture_output=True, text=True)
        self.assertEqual((there.returncode, there.stdout), (1, ""))
        self.assertRegex(there.stderr, r"^dtrainctl: could not go on: .*; install libzmq5, .*\n$")

    def test_a_package_from_afar(self):
        data = os.urandom(BIG)
        self.write("package/check.py", CHECK)
        with open(self.path("package", "data"), "wb") as file:
            file.write(data)
        job = self.write("job.yaml", self.job_text("packed", ["/usr/bin/python3", "check.py"], package=self.path("package"),
                                                   env={"WANTED": hashlib.sha256(data).hexdigest()}))
        done = self.as_(ANNE, "run", job, agent=self.other)
        self.assertEqual((done.returncode, done.stdout), (DONE, "worker-0 | whole\n"), done)

    def test_roles_are_those_of_the_user(self):
        self.begin("hers", harness.SLEEP, env={"TOKEN": "secret"})
        for arguments in (["cancel", "hers"], ["logs", "hers"], ["exec", "hers", "worker-0", "--", "true"], ["drain", "n1"], ["leave"]):
            with self.subTest(arguments):
                self.refused(EVE, *arguments, because="administrator")
        self.refused(EVE, "submit", "-", stdin=self.job_text("mine", ["true"]), because="only look")
        self.assertNotIn("secret", self.allowed(EVE, "describe", "job", "hers"))
        self.refused(ANNE, "drain", "n1", because="only operators may")
        self.refused(OPS, "exec", "hers", "worker-0", "--", "true", because="it belongs to " + ANNE)
        self.allowed(OPS, "drain", "n1")
        self.allowed(OPS, "undrain", "n1")
        self.assertIn("event=access.refused user=%s uid=%d" % (EVE, pwd.getpwnam(EVE).pw_uid), self.agent.log())
        self.allowed(OPS, "cancel", "hers")

    def test_who_is_not_let_in(self):
        self.refused("stranger", "jobs", because="could not reach agent %s:%d: it does not know your key; " % (self.ip, PORT))
        self.assertIn("event=net.refused reason=unknown-client-key", self.agent.log())
        # The line that is asked for makes it known.
        self.refused("stranger", "jobs", because="`%s: YOUR_NAME` under access.keys" % self.public["stranger"])
        self.client_key("elsewhere", make_key(self.path("other-cluster.key")))
        self.refused("elsewhere", "jobs", because="serves with no key of your key file", code=UNREACHABLE)
        self.refused(ANNE, "jobs", port=7400, because="gossip + 2", code=UNREACHABLE)
        self.refused(ANNE, "jobs", port=7, because="could not reach agent %s:7: Connection refused; " % self.ip, code=UNREACHABLE)
        cluster = self.as_(ANNE, "jobs", key=self.key)
        self.assertIn("it is the key of a cluster", cluster.stderr)
        os.chmod(self.key_file(ANNE), 0o640)
        self.refused(ANNE, "jobs", because="others than its owner may access it")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DTRAIN_")}
        bare = subprocess.run([os.path.join(BIN, "dtrainctl"), "--agent", "%s:%d" % (self.ip, PORT), "jobs"], capture_output=True,
                              text=True, env=environment, timeout=PATIENCE)
        self.assertEqual(bare.returncode, USAGE, bare)
        self.assertIn("--key-file", bare.stderr)
        environment.update(DTRAIN_AGENT="%s:%d" % (self.ip, PORT), DTRAIN_KEY_FILE=self.key_file(OPS))
        told = subprocess.run([os.path.join(BIN, "dtrainctl"), "jobs"], capture_output=True, text=True, env=environment, timeout=PATIENCE)
        self.assertEqual(told.returncode, DONE, told)

    def test_a_key_that_is_taken_back_is_cut_off(self):
        self.begin("hers", ["sh", "-c", "echo begun; exec sleep 1000000"])
        log = self.follow(ANNE, "logs", "-f", "hers", "worker-0")
        self.assertEqual(log.stdout.readline(), "begun\n")
        self.allow({user: self.public[user] for user in (OPS, EVE)})
        self.reload(self.agent)
        self.assertEqual(log.wait(PATIENCE), REFUSED)
        self.assertIn("it does not know your key", log.stderr.read())
        self.refused(ANNE, "jobs", because="it does not know your key")
        self.allowed(OPS, "jobs")
        self.allowed(ANNE, "jobs", agent=self.other)        # which was not told
        self.allow({user: self.public[user] for user in (ANNE, OPS, EVE)})
        self.reload(self.agent)
        self.allowed(ANNE, "jobs")
        self.assertEqual(self.agent.ask("tasks", "hers")[0]["state"], "Running")

    def test_users_that_are_not_here_and_root(self):
        keys = {user: self.public[user] for user in (ANNE, OPS)}
        self.allow({**keys, "no-such-user": self.public["stranger"], "root": self.public["root"]})
        self.reload(self.agent)
        self.refused("stranger", "jobs", because="no-such-user, whom this host does not know")
        self.refused("root", "jobs", because="`root: operate` under access.users")
        self.allow({**keys, "root": self.public["root"]}, root="operate")
        self.reload(self.agent)
        self.allowed("root", "drain", "n2")
        self.allowed("root", "undrain", "n2")

    def test_an_agent_that_comes_back_is_found_again(self):
        self.begin("hers", ["sh", "-c", "echo begun; until test -e %s; do sleep 0.05; done; echo done" % self.path("go")])
        log = self.follow(ANNE, "logs", "-f", "hers", "worker-0")
        self.assertEqual(log.stdout.readline(), "begun\n")
        self.agent.end()
        self.agent.start()
        self.write("go", "")
        self.assertEqual(log.stdout.read(), "done\n")
        self.assertEqual(log.wait(PATIENCE), DONE)

    def test_a_new_key_of_the_cluster(self):
        ctl = os.path.join(BIN, "dtrainctl")
        subprocess.run([ctl, "keygen", "--add", self.key], check=True, capture_output=True)
        with open(self.key) as file:
            head, old, new = file.read().splitlines()
        for agent in (self.agent, self.other):
            self.reload(agent)
        self.allowed(ANNE, "jobs")          # the old one serves
        with open(self.key, "w") as file:
            file.write("\n".join((head, new, old, "")))
        self.reload(self.agent)
        self.refused(ANNE, "jobs", because="serves with no key of your key file", code=UNREACHABLE)
        renewed = subprocess.run([ctl, "keygen", "--client", "--add", self.key_file(ANNE), "--cluster-key", self.key], check=True,
                                 capture_output=True, text=True)
        self.assertEqual(renewed.stdout, self.public[ANNE] + ": USER\n")
        self.allowed(ANNE, "jobs")
        self.allowed(ANNE, "jobs", agent=self.other)        # which serves with the old one still


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skipped: its jobs run as several accounts, which root alone can start", file=sys.stderr)
        sys.exit(77)
    harness.main()
