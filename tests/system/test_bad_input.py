"""Bad input of every kind: a clear error each time, and an agent that lives on."""
import os
import socket
import sqlite3
import struct
import subprocess
import unittest

from harness import PATIENCE, SLEEP, Agent, SystemTest, alive, main, until

HEAD = "apiVersion: dtrain/v1\nkind: Job\nmetadata: {name: x}\nspec:\n  framework: tensorflow\n  roles:\n"
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    "%s: &%s [%s]\n" % (chr(98 + i), chr(98 + i), ",".join(["*" + chr(97 + i)] * 9)) for i in range(9))

# name -> (file, a word that the error must hold)
BAD_FILES = {
    "a word for a number": (HEAD + "    worker: {replicas: two, command: [x]}\n", "spec.roles.worker.replicas"),
    "a list for a map": (HEAD + "    worker: [1, 2]\n", "spec.roles.worker"),
    "an unknown key": (HEAD + "    worker: {replica: 2, command: [x]}\n", "replicas"),
    "an unknown key below policy": (HEAD + "    worker: {command: [x]}\n  policy: {backoffLimits: 3}\n", "backoffLimit"),
    "two chiefs": (HEAD + "    chief: {replicas: 2, command: [x]}\n", "chief"),
    "0 replicas": (HEAD + "    worker: {replicas: 0, command: [x]}\n", "replicas"),
    "-1 replicas": (HEAD + "    worker: {replicas: -1, command: [x]}\n", "replicas"),
    "4e9 replicas": (HEAD + "    worker: {replicas: 4000000000, command: [x]}\n", "replicas"),
    "no command": (HEAD + "    worker: {replicas: 1}\n", "command"),
    "a null in a command": (HEAD + "    worker: {command: [x, null]}\n", "command"),
    "an unknown template": (HEAD + "    worker: {command: [x, '{hosts:pss}']}\n", "hosts:pss"),
    "a bad name": (HEAD.replace("name: x", 'name: "../../etc"') + "    worker: {command: [x]}\n", "name"),
    "a bad duration": (HEAD + "    worker: {command: [x], watchdog: 3 weeks}\n", "watchdog"),
    "a bad quantity": (HEAD + "    worker: {command: [x], resources: {memory: 8 apples}}\n", "memory"),
    "an unknown framework": (HEAD.replace("tensorflow", "tensorflou") + "    worker: {command: [x]}\n", "tensorflow"),
    "another version": (HEAD.replace("dtrain/v1", "dtrain/v9") + "    worker: {command: [x]}\n", "apiVersion"),
    "not yaml": ("{{{{", ""),
    "nothing": ("", ""),
    "a list": ("- 1\n- 2\n", ""),
    "an alias bomb": (BOMB, ""),
    "deep nesting": ("[" * 100000, ""),
    "10 MB": (HEAD + "    worker: {command: ['%s']}\n" % ("x" * 10_000_000), ""),
    "many nodes": (HEAD + "    worker: {command: [%s]}\n" % ",".join(["x"] * 200_000), ""),
}


class BadInput(SystemTest):
    def lives(self):
        self.assertEqual(self.agent.ctl("status").returncode, 0, "the agent does not answer:\n" + self.agent.log()[-2000:])
        self.assertIsNone(self.agent.process.poll())

    def test_job_files(self):
        for name, (text, word) in BAD_FILES.items():
            with self.subTest(name):
                done = self.agent.ctl("submit", self.write("bad.yaml", text))
                self.assertEqual(done.returncode, 2, done.stderr[-300:])
                self.assertIn(word, done.stderr)
                self.assertTrue(done.stderr.strip())
        binary = self.path("binary.yaml")
        with open(binary, "wb") as file:
            file.write(os.urandom(8192))
        self.assertEqual(self.agent.ctl("submit", binary).returncode, 2)
        self.assertEqual(self.agent.ask("jobs"), [])
        self.lives()

    def test_every_mistake_at_once_with_its_line(self):
        text = HEAD + ("    worker:\n      replica: 2\n      command: [x]\n"
                       "    chief:\n      replicas: 2\n      command: [x]\n      notyfy: 1\n")
        path = self.write("bad.yaml", text)
        errors = self.agent.ctl("submit", path).stderr.splitlines()
        for line, word in ((8, "replica"), (11, "replicas"), (13, "notify")):
            self.assertTrue(any(error.startswith("%s:%d: " % (path, line)) and word in error for error in errors), (line, errors))

    def test_packages(self):
        roles = {"worker": {"replicas": 1, "command": ["true"]}}
        done = self.agent.ctl("submit", self.job_file("a", roles, package="/no/such/package"))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("/no/such/package", done.stderr)
        self.write("package/file", "text")
        os.mkfifo(self.path("package", "pipe"))                 # must not block the client
        done = self.agent.ctl("submit", self.job_file("b", roles, package=self.path("package")), timeout=PATIENCE)
        self.assertIn(done.returncode, (0, 2), done.stderr)
        self.lives()

    def connect(self):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(PATIENCE)
        connection.connect(self.agent.socket)
        self.addCleanup(connection.close)
        return connection

    def closed(self, connection):
        """Reads to the end: the agent may say why before it closes."""
        try:
            while connection.recv(65536):
                pass
        except ConnectionError:
            pass
        return True

    def test_control_socket(self):
        junk = self.connect()
        junk.sendall(b"\xff" * 10000)
        self.assertTrue(self.closed(junk))
        huge = self.connect()
        huge.sendall(struct.pack("<I", 1 << 30) + b"x" * 1000)
        self.assertTrue(self.closed(huge))
        for body in (b"", b"\x00", b"\xc1" * 50, b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\x91" * 5000, os.urandom(300)):
            broken = self.connect()
            try:
                broken.sendall(struct.pack("<I", len(body)) + body)
                broken.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            self.assertTrue(self.closed(broken), body[:20])
        half = self.connect()
        half.sendall(struct.pack("<I", 1000) + b"x" * 10)       # and nothing more
        self.lives()
        half.close()
        silent = [self.connect() for _ in range(100)]
        self.lives()
        del silent
        with open("/proc/%d/status" % self.agent.process.pid) as file:
            memory = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
        self.assertLess(memory, 200 << 10, "junk made the agent use %d kB" % memory)

    def test_too_many_connections(self):
        crowd = []
        for _ in range(700):
            try:
                crowd.append(self.connect())
            except OSError:
                break
        for connection in crowd:
            connection.close()
        until(lambda: self.agent.ctl("status", timeout=10).returncode == 0, "an answer after the crowd has gone")

    def ends_with_a_reason(self, agent, *words):
        agent.spawn()
        self.assertNotEqual(agent.process.wait(PATIENCE), 0)
        log = agent.log()
        for word in words:
            self.assertIn(word, log)
        self.assertIn("could not", log)
        return agent.process.returncode

    def test_second_agent_on_the_data_directory(self):
        second = Agent(self.top, "n2", self.ip.rsplit(".", 1)[0] + ".254")
        second.data = self.agent.data
        self.ends_with_a_reason(second, self.agent.data)
        self.lives()

    def test_port_taken(self):
        holder = socket.socket()
        self.addCleanup(holder.close)
        other = "127.19.%d.%d" % (os.getpid() // 250 % 250, 1 + os.getpid() % 250)
        holder.bind((other, 7400))
        holder.listen()
        self.ends_with_a_reason(Agent(self.top, "n3", other), "7400")
        self.lives()

    def test_newer_data_directory(self):
        self.agent.end()
        databases = [os.path.join(directory, name) for directory, _, names in os.walk(self.agent.data) for name in names
                     if open(os.path.join(directory, name), "rb").read(15) == b"SQLite format 3"]
        self.assertEqual(len(databases), 1)
        with sqlite3.connect(databases[0]) as database:
            version = database.execute("PRAGMA user_version").fetchone()[0]
            self.assertGreater(version, 0)
            database.execute("PRAGMA user_version = %d" % (version + 1000))
        database.close()
        with open(databases[0], "rb") as file:
            before = file.read()
        again = Agent(self.top, "n1", self.ip)
        again.log_path += ".newer"
        self.ends_with_a_reason(again, "version")
        with open(databases[0], "rb") as file:
            self.assertEqual(file.read(), before, "the newer data was touched")

    def test_bad_configuration(self):
        for options, word in ((("--set", "tasks.lunch=direct"), "launch"), (("--listen", "nowhere"), "nowhere"),
                              (("--set", "network.taskPorts=9-1"), "taskPorts"), (("--config", self.path("none.yaml")), "none.yaml")):
            with self.subTest(options):
                agent = Agent(self.top, "bad", "127.0.0.9", *options)
                agent.log_path = self.path("bad-%s.log" % word)
                agent.spawn()
                self.assertNotEqual(agent.process.wait(PATIENCE), 0)
                self.assertIn(word, agent.log())
        check = subprocess.run([self.agent.command()[0], "--check-config"], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(check.returncode, 0, check.stderr)


class FullDisk(SystemTest):
    """The data directory lies on a file system of 4 MiB that somebody else fills."""

    def start(self):
        # A mount name space of its own: seen by this agent only, and gone with it.
        os.makedirs(self.agent.data)
        root = [] if os.geteuid() == 0 else ["--map-root-user"]
        self.agent.prefix = ["unshare", "--mount", *root, "sh", "-c",
                             'mount -t tmpfs -o size=4m none "$0" && exec "$@"', self.agent.data]
        self.agent.start()

    def test_full_disk(self):
        self.submit("before", {"worker": {"replicas": 1, "command": SLEEP}})
        self.wait_job("before", "Running")
        pid = self.tasks("before")["worker-0"]["pid"]
        fill = ["nsenter", "--target", str(self.agent.process.pid), "--mount", "--user", "--preserve-credentials"]
        if os.geteuid() == 0:
            fill = ["nsenter", "--target", str(self.agent.process.pid), "--mount"]
        subprocess.run([*fill, "sh", "-c", "cat /dev/zero > %s/filler" % self.agent.data], stderr=subprocess.DEVNULL, timeout=PATIENCE)
        refused = None
        for number in range(2000):                              # blocks that were already allocated take some more
            done = self.agent.ctl("submit", self.job_file("j%d" % number, {"worker": {"replicas": 1, "command": SLEEP}}))
            if done.returncode != 0:
                refused = done
                break
        self.assertIsNotNone(refused, "2000 submits fit onto a full disk")
        self.assertIn(refused.returncode, (4, 5))
        self.assertIn("could not", refused.stderr)
        self.assertTrue(alive(pid), "a full disk ended a task")
        until(lambda: "space" in self.agent.log().lower() or "full" in self.agent.log().lower(), "the agent to name the cause")


class FailingDisk(SystemTest):
    """Writes fail behind the first bytes of a file, as with EIO: what the kernel says is EFBIG, which is not for want of space."""

    def start(self):
        self.agent.prefix = ["env", "--ignore-signal=XFSZ"]
        self.agent.start()

    def test_after_a_failed_write_all_is_written_anew(self):
        self.submit("before", {"worker": {"replicas": 1, "command": SLEEP}})
        self.wait_job("before", "Running")
        pid = self.tasks("before")["worker-0"]["pid"]
        agent = self.agent.process
        subprocess.run(["prlimit", "--pid", str(agent.pid), "--fsize=4096:unlimited"], check=True, timeout=PATIENCE)
        self.agent.ctl("submit", self.job_file("lost", {"worker": {"replicas": 1, "command": SLEEP}}))
        self.assertEqual(agent.wait(PATIENCE), 74)
        note = os.path.join(self.agent.run, "disk-failed")
        self.assertTrue(os.path.exists(note))
        self.assertTrue(alive(pid), "a failed disk ended a task")
        self.agent.start()
        self.assertIn(" event=store.rewritten ", self.agent.log())
        self.assertFalse(os.path.exists(note))
        self.wait_job("before", "Running")
        self.assertEqual(self.tasks("before")["worker-0"]["pid"], pid)
        self.submit("after", {"worker": {"replicas": 1, "command": SLEEP}})
        self.wait_job("after", "Running")


if __name__ == "__main__":
    main()
