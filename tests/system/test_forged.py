"""Requests that no dtrainctl makes, names that lead elsewhere, and words in the name of others. Beside test_roles.py and test_isolation.py;
docs/security.md has the whole list."""
import hashlib
import io
import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tarfile

import control_wire
import harness
import test_isolation
import test_roles
from harness import alive, until
from test_roles import ANNE, BOB, EVE, OPS


class Requests(test_isolation.Attempts):
    """What a person asks, by whatever program."""

    def start(self):
        super().start()
        self.script = shutil.copy(control_wire.__file__, self.top)

    def asks(self, account, type_, **fields):
        """(number of the message, what it says) of the answer to a request of that account."""
        account = pwd.getpwnam(account)
        done = subprocess.run(["/usr/bin/python3", self.script, self.agent.socket], user=account.pw_uid, group=account.pw_gid,
                              extra_groups=[], input=control_wire.request(type_, **fields), capture_output=True, timeout=harness.PATIENCE)
        self.assertTrue(done.stdout, done.stderr)
        return control_wire.answer(done.stdout)

    def is_refused(self, account, type_, because, **fields):
        number, said = self.asks(account, type_, **fields)
        self.assertEqual(number, control_wire.ERROR, said)
        self.assertIn(because, said[b"errors"][0][b"message"].decode())

    def test_who_she_says_that_she_is(self):
        """The kernel's word counts; a request has no place for another."""
        pid, _, _ = self.his()
        for name in (BOB, "root"):
            her = {"user": name, "uid": pwd.getpwnam(name).pw_uid, "caller": {"user": name, "uid": pwd.getpwnam(name).pw_uid}}
            self.is_refused(ANNE, control_wire.ACTION, "it belongs to " + BOB, action=control_wire.CANCEL, job="his", **her)
            self.is_refused(ANNE, control_wire.LOGS, "it belongs to " + BOB, job="his", task="worker-0", **her)
            self.is_refused(ANNE, control_wire.EXEC, "it belongs to " + BOB, job="his", task="worker-0", command=["id"], **her)
            done = self.as_(ANNE, "submit", "-", stdin=self.job("sly", ["id"], user=name))
            self.assertEqual(done.returncode, 2, done)
            self.assertIn("user", done.stderr.decode())
        self.assertTrue(alive(pid))

    def test_what_only_agents_ask_each_other(self):
        """Packages and checkpoints of others, by their names."""
        self.write("package/secret", "his alone")
        self.his("exec sleep 1000000", package=self.path("package"))
        digest, = os.listdir(os.path.join(self.agent.data, "blobs"))
        job = self.agent.ask("describe", "job", "his")
        self.assertNotIn(digest, self.allowed(ANNE, "-o", "json", "describe", "job", "his"))
        for type_, fields in ((control_wire.GET_BLOB, {"digest": digest}), (control_wire.KEEP_BLOB, {"digest": digest, "host": "n1"}),
                              (control_wire.ASK_CHECKPOINT, {"ask": 2, "job": job.get("id", 1), "dir": "/root", "info": b""}),
                              (control_wire.GET_CHECKPOINT, {"job": job.get("id", 1), "info": b""})):
            self.is_refused(ANNE, type_, "only other agents may ask", **fields)

    def test_a_digest_is_no_right(self):
        """Who names another's package in a job gets nothing of it; who has all of its bytes does, as they are."""
        self.write("package/secret", "his alone")
        self.his("exec sleep 1000000", package=self.path("package"))
        digest, = os.listdir(os.path.join(self.agent.data, "blobs"))
        told = [self.allowed(user, "-o", "json", "events") for user in (ANNE, EVE)]
        for text in told:
            self.assertIn("audit.package", text)
            self.assertNotIn(digest, text)
        self.begin("hers", ["sleep", "1000000"])
        self.is_refused(ANNE, control_wire.ACTION, "has not given package " + digest[:12], action=control_wire.RESTART, job="hers",
                        package_digest=digest)
        self.assertEqual(self.asks(ANNE, control_wire.HAS_BLOB, digest=digest)[1][b"present"], False, "nor is she told that it is there")
        self.allowed(ANNE, "submit", "-", stdin=self.job("same", ["cat", "secret"], package=self.path("package")))
        self.ended("same", "Succeeded")
        self.assertEqual(os.listdir(os.path.join(self.agent.data, "blobs")), [digest])
        self.assertEqual(self.asks(ANNE, control_wire.HAS_BLOB, digest=digest)[1][b"present"], True)

    def test_what_is_kept_under_a_false_name(self):
        """A package's name is the digest of its bytes, and a name of nothing else."""
        good = hashlib.blake2b(b"hers", digest_size=32).hexdigest()
        self.is_refused(EVE, control_wire.PUT_BLOB, "only look", digest=good, bytes=b"hers", last=True)
        self.is_refused(ANNE, control_wire.PUT_BLOB, "what arrived has digest " + good, digest="0" * 64, bytes=b"hers", last=True)
        for name in ("../" * 21 + "x", "../../../etc/passwd", "/etc/passwd", "", good.upper(), good + "\0"):
            for type_, fields in ((control_wire.PUT_BLOB, {"bytes": b"hers", "last": True}), (control_wire.HAS_BLOB, {})):
                self.is_refused(ANNE, type_, "is not 64 hex digits", digest=name, **fields)
        self.assertEqual(os.listdir(os.path.join(self.agent.data, "blobs")), [])

    def test_a_package_with_ways_out_of_it(self):
        """Made by hand, as dtrainctl makes none."""
        _, copy, _ = self.his()
        before, work = self.state_of(copy), os.path.dirname(copy)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
            def member(name, type_=tarfile.REGTYPE, link="", text=b"hers", mode=0o6777):
                info = tarfile.TarInfo(name)
                info.type, info.linkname, info.mode, info.uid, info.devmajor, info.devminor = type_, link, mode, 0, 1, 1
                info.size = len(text) if type_ == tarfile.REGTYPE else 0
                archive.addfile(info, io.BytesIO(text) if info.size else None)
            member("ordinary")
            member("../out")
            member(copy + "/out")
            member("link", tarfile.SYMTYPE, copy)
            member("link/kept")
            member("top", tarfile.SYMTYPE, work)
            member("top/out")
            member("hard", tarfile.LNKTYPE, copy + "/kept")
            member("memory", tarfile.CHRTYPE)
        digest = hashlib.blake2b(packed.getvalue(), digest_size=32).hexdigest()
        self.begin("hers", harness.SLEEP)
        number, said = self.asks(ANNE, control_wire.PUT_BLOB, digest=digest, bytes=packed.getvalue(), last=True)
        self.assertNotEqual(number, control_wire.ERROR, said)
        number, said = self.asks(ANNE, control_wire.ACTION, action=control_wire.RESTART, job="hers", package_digest=digest)
        self.assertNotEqual(number, control_wire.ERROR, said)
        self.assertIn("cannot be unpacked", until(lambda: (r := self.agent.ask("describe", "job", "hers")) and
                                                  "cannot be unpacked" in json.dumps(r) and json.dumps(r), "the package to be refused"))
        self.assertEqual(self.state_of(copy), before)
        for top, below, names in os.walk(work):
            for name in below + names:
                info = os.lstat(os.path.join(top, name))
                self.assertNotIn(name, ("out", "memory"), top)
                self.assertFalse(stat.S_ISCHR(info.st_mode) or (info.st_uid == 0 and info.st_mode & 0o6000), (top, name))

    def test_names_that_lead_elsewhere_or_forge_lines(self):
        self.his()
        forged = "x\ntime=2001-01-01T00:00:00.000Z level=error event=forged"
        for name in ("../../../etc/passwd", "his/../his", forged, "\x1b[2Jx", "\u009b2Jx", "x" * 5000, "*", "his "):
            for arguments in (["cancel", name], ["logs", name], ["logs", "his", name], ["exec", name, "worker-0", "--", "true"],
                              ["delete", name], ["describe", "job", name], ["checkpoints", name], ["cluster-spec", name],
                              ["wait", name, "--for", "deleted"]):
                done = self.as_(ANNE, *arguments)
                self.assertIn(done.returncode, (2, 3, 5) if arguments[0] != "wait" else (0, 2, 3, 5), (arguments, done))
                self.assertNotRegex(done.stderr + done.stdout, rb"\x1b|\xc2\x9b|\ntime=")
            self.assertEqual(self.as_(ANNE, "submit", "-", stdin=self.job(name, ["true"])).returncode, 2)
        self.allowed(OPS, "drain", "n1", "--reason", forged)
        self.assertIn("event=forged", self.agent.do("-o", "json", "events") + self.agent.log() + self.agent.do("describe", "node", "n1"))
        for text in (self.agent.log(), self.agent.do("nodes"), self.agent.do("events"), self.agent.do("describe", "node", "n1")):
            self.assertEqual([line for line in text.splitlines() if line.startswith("time=2001")], [])

    def test_what_a_task_shows_of_itself(self):
        """Goes to the terminals of others, as of an operator: no escape sequence does."""
        say = ("import os, socket, time\nsocket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto("
               "'STATUS=\\x1b]0;mine\\x07\\x1b[2J\\x9b2J\\u202e here'.encode(), os.environ['NOTIFY_SOCKET'])\ntime.sleep(1e6)")
        self.begin("shows", harness.python(say))
        until(lambda: "here" in self.agent.ask("tasks", "shows")[0]["status"], "what it says")
        for verb in (["tasks", "shows"], ["-o", "wide", "tasks", "shows"], ["describe", "job", "shows"], ["status", "shows"], ["jobs"]):
            self.assertNotRegex(self.allowed(OPS, *verb).encode(), rb"\x1b|\x07|\xc2\x9b")
        self.assertIn("here", self.allowed(OPS, "tasks", "shows"))

    def test_an_account_that_is_none(self):
        """A number without a name, and root where it is not let."""
        for user in (54321, 0):
            self.agent.end()
            self.agent.options += ["--set", "tasks.allowRoot=false", "--set", "access.default=submit"]
            self.agent.start()
            done = subprocess.run([os.path.join(self.bin, "dtrainctl"), "--agent", self.agent.socket, "submit", "-"], user=user, group=user,
                                  extra_groups=[], capture_output=True, timeout=harness.PATIENCE, input=self.job("whose", ["id"]), cwd="/")
            self.assertEqual((done.returncode, done.stdout), (test_roles.REFUSED, b""), done)
        self.assertEqual(self.agent.ask("jobs"), [])


class Forged(test_isolation.Attempts):
    def start(self):
        # So long that its sockets have names that all may send to.
        self.agent.data = os.path.join(self.agent.directory, "d" * 100)
        super().start()

    def test_words_in_the_name_of_others(self):
        """READY=1, from somebody else's task: it is not ready."""
        go = self.path("go")
        says = ("import os, socket, time\nwhile not os.path.exists(%r): time.sleep(0.02)\n"
                "name = b'\\0' + os.environ['NOTIFY_SOCKET'][1:].encode()\n"
                "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'STATUS=himself', name)\n"
                "time.sleep(1e6)\n" % go)
        job = json.loads(self.job("his", harness.python(says)))
        job["spec"]["roles"]["worker"].update(notify=True)
        self.allowed(BOB, "submit", "-", stdin=json.dumps(job).encode())
        pid = until(lambda: self.agent.ask("tasks", "his")[0]["pid"], "his task")
        with open("/proc/%d/environ" % pid) as file:
            name = next(text for text in file.read().split("\0") if text.startswith("NOTIFY_SOCKET=")).split("=", 1)[1]
        self.assertTrue(name.startswith("@"), name)
        said = self.attempt("with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:\n"
                            "  for text in (b'READY=1', b'STATUS=forged', b'READY=1\\nSTATUS=forged'):\n"
                            "    tried(text, s.sendto, text, b'\\0' + facts['name'][1:].encode())\n", name=name)
        self.assertEqual(sum(line.startswith("DID") for line in said), 3, "it could be tried: %s" % said)
        self.write("go", "")
        # What came before his own words was heard before them.
        until(lambda: self.agent.ask("tasks", "his")[0]["status"] == "himself", lambda: "his words: %s" % self.agent.ask("tasks", "his"))
        self.assertEqual(next(j for j in self.agent.ask("jobs") if j["name"] == "his")["roles"]["worker"]["ready"], 0)


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skipped: it acts as several accounts, which root alone can", file=sys.stderr)
        sys.exit(77)
    harness.main()
