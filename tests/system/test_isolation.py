"""What a task, or a person, tries that is not theirs to do. Beside test_roles.py; docs/security.md has the whole list.

The accounts are test_roles.py's; the agent is root's. A task of hers (ANNE's) tries, what is his (BOB's) must stay as it is. What is tried
does no harm beyond the test where it succeeds.
"""
import hashlib
import json
import os
import pwd
import re
import signal
import stat
import sys

import harness
import test_roles
from harness import alive, until
from test_roles import ANNE, BOB

SECRET = "DTRAIN_TEST_SECRET"           # in the agent's environment
# What each attempt begins with: `tried` says what came of it, and the last line that all were made.
PRELUDE = """
import ctypes, errno, json, os, socket, sys
facts = json.load(open(sys.argv[1]))
libc = ctypes.CDLL(None, use_errno=True)
def tried(what, do, *arguments):
    try:
        done = do(*arguments)
        print('DID', what, arguments, repr(done)[:80])
    except (OSError, ValueError) as error:
        print('no', errno.errorcode.get(getattr(error, 'errno', None) or 0, error), what)
def call(function, *arguments):
    ctypes.set_errno(0)
    done = function(*[ctypes.c_void_p(a) if isinstance(a, int) else a for a in arguments])
    if done < 0: raise OSError(ctypes.get_errno(), 'refused')
    return done
def system(number, *arguments): return call(libc.syscall, number, *arguments)
def read(path):
    with open(path, 'rb', buffering=0) as file: return file.read(16)
"""


def parent_of(pid):
    with open("/proc/%d/stat" % pid) as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])


class Attempts(test_roles.Accounts):
    """Helpers."""

    def start(self):
        self.agent.options += ["--key-file", harness.make_key(self.path("cluster.key"))]
        os.environ[SECRET] = "the agent's alone"
        self.addCleanup(os.environ.pop, SECRET)
        super().start()

    def attempt(self, code, **facts):
        """The lines that a task of hers prints that runs this, all attempts made. Whose success is none of its business: 'DID'."""
        script, told = self.write("attempt.py", PRELUDE + code + "\nprint('all tried')\n"), self.write("facts.json", json.dumps(facts))
        _, said = self.tries("exec /usr/bin/python3 -u %s %s 2>&1" % (script, told))
        lines = said.splitlines()
        self.assertEqual(lines[-1:], ["all tried"], said)
        return lines[:-1]

    def all_fail(self, code, *allowed, **facts):
        """Each attempt is refused, as missing rights are."""
        lines = self.attempt(code, **facts)
        self.assertTrue(lines, "nothing was tried")
        self.assertEqual([line for line in lines if line.split()[:2] not in [["no", word] for word in ("EPERM", "EACCES", *allowed)]], [])
        return lines

    def his(self, command="echo his secret; echo model > kept; exec sleep 1000000", **spec):
        """His task, its working copy, and the directory of its logs and sockets."""
        task = self.begin("his", ["sh", "-c", command], user=BOB, **spec)
        copy = os.readlink("/proc/%d/cwd" % task["pid"])
        until(lambda: "secret" not in command or self.agent.do("logs", "his", "worker-0"), "his log")
        top = os.path.join(self.agent.data, "tasks")
        name, = (name for name in os.listdir(top) if name.split(".")[0] == os.path.basename(copy))
        return task["pid"], copy, os.path.join(top, name)

    def belongs_to(self, user, *parts):
        """A directory that is this account's, for all to look into."""
        path = self.path(*parts)
        os.makedirs(path)
        os.chown(path, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        return path

    @staticmethod
    def state_of(top):
        """All that can be said of a tree without reading it twice."""
        found = {}
        for directory, below, names in os.walk(top):
            for path in [directory, *(os.path.join(directory, name) for name in below + names)]:
                info, content = os.lstat(path), b""
                if stat.S_ISREG(info.st_mode):
                    with open(path, "rb") as file:
                        content = file.read()
                found[path] = (info.st_mode, info.st_uid, info.st_gid, info.st_ino, info.st_nlink, content)
        return found


class Isolation(Attempts):
    # ---- a task and the agent

    def test_the_key_and_the_memory_of_the_agent(self):
        agent = self.agent.process.pid
        key = self.path("cluster.key")
        paths = [key, "/proc/%d/root%s" % (agent, key), os.path.join(self.agent.data, "dtrain.db")]
        for path in paths:
            with open(path, "rb") as file:
                self.assertTrue(file.read(1), "there for who may")
        paths += ["/proc/%d/%s" % (agent, name) for name in ("environ", "mem", "maps", "auxv", "syscall", "stack", "io")]
        paths += ["/proc/%d/fd/%s" % (agent, name) for name in os.listdir("/proc/%d/fd" % agent)]
        said = self.all_fail("for path in facts['paths'] + ['/proc/%d/environ' % os.getppid(), '/proc/%d/mem' % os.getppid()]:\n"
                             "  tried(path, read, path)\n", paths=paths)
        self.assertEqual(len(said), len(paths) + 2)

    def test_the_environment_of_the_agent(self):
        with open("/proc/%d/environ" % self.agent.process.pid) as file:
            self.assertIn(SECRET, file.read())
        for lines in (self.attempt("for name in sorted(os.environ): print(name, os.environ[name])"),
                      self.allowed(ANNE, "exec", self.hers(), "worker-0", "--", "env").splitlines()):
            self.assertTrue(any("DTRAIN_TASK" in line for line in lines), lines)
            self.assertEqual([line for line in lines if SECRET in line or "the agent's alone" in line], [])

    def hers(self):
        self.begin("hers", harness.SLEEP)
        return "hers"

    def test_descriptors_groups_and_capabilities_of_the_agent(self):
        look = ("for fd in range(3, 1024):\n"
                "  try: print('open', os.readlink('/proc/self/fd/%d' % fd))\n"
                "  except OSError: pass\n"
                "print('groups', sorted(set(os.getgroups())), os.getresuid(), os.getresgid())\n"
                "for line in open('/proc/self/status'):\n"
                "  if line[:6] in ('CapInh', 'CapPrm', 'CapEff', 'CapAmb'): print(*line.split())\n")
        account = pwd.getpwnam(ANNE)
        alone = ["groups %s %s %s" % ([account.pw_gid], (account.pw_uid,) * 3, (account.pw_gid,) * 3),
                 *("Cap%s: %016x" % (kind, 0) for kind in ("Inh", "Prm", "Eff", "Amb"))]
        self.assertEqual(self.attempt(look), alone)
        script = self.path("attempt.py")
        inside = self.allowed(ANNE, "exec", self.hers(), "worker-0", "--", "/usr/bin/python3", script, self.path("facts.json"))
        self.assertEqual(inside.splitlines(), [*alone, "all tried"])

    def test_rights_of_root(self):
        said = self.all_fail(
            "tried('setuid', os.setuid, 0); tried('setgid', os.setgid, 0); tried('setgroups', os.setgroups, [0])\n"
            "tried('nice', os.nice, -1); tried('fifo', os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))\n"
            "tried('chroot', os.chroot, '/'); tried('device', os.mknod, 'memory', 0o20600, os.makedev(1, 1))\n"
            "tried('mounts', system, 272, 0x00020000); tried('hostname', system, 272, 0x04000000)\n"     # namespaces to do it in
            "tried('kernel log', read, '/dev/kmsg')\n"
            "def spare():\n"
            "  with open('/proc/self/oom_score_adj', 'w') as file: file.write('-1000')\n"
            "tried('spare', spare)\n", "ENOENT")
        self.assertEqual(len(said), 11)

    def test_it_leaves_no_control_group(self):
        """Nor thaws itself, nor takes its limits away."""
        said = self.all_fail("""
mounts = [line.split() for line in open('/proc/self/mounts') if line.split()[2] in ('cgroup', 'cgroup2')]
for line in open('/proc/self/cgroup'):
    _, controllers, path = line.rstrip().split(':', 2)
    for _, mount, kind, options, *_ in mounts:
        if (kind == 'cgroup2') != (not controllers) or not set(filter(None, controllers.split(','))) <= set(options.split(',')): continue
        here = path
        while True:
            for name in ('cgroup.procs', 'tasks', 'cgroup.threads', 'cgroup.freeze', 'cgroup.kill', 'freezer.state', 'memory.max',
                         'pids.max', 'memory.limit_in_bytes', 'devices.allow', 'cgroup.subtree_control', 'release_agent'):
                file = mount + here.rstrip('/') + '/' + name
                if os.path.exists(file): tried(file, os.open, file, os.O_WRONLY)
            below = mount + here.rstrip('/') + '/mine'
            if os.path.isdir(mount + here): tried(below, lambda: (os.mkdir(below), os.rmdir(below)))
            if here in ('', '/'): break
            here = os.path.dirname(here)
""", "EROFS")
        self.assertGreater(len(said), 2)

    def test_names_where_the_agent_makes_its_own(self):
        """Links in the way of what the agent, which is root, will write; its socket replaced."""
        pid, copy, logs = self.his()
        directories = [os.path.dirname(copy), self.agent.data, os.path.dirname(logs), logs, self.agent.run, copy,
                       os.path.join(self.agent.data, "blobs"), self.agent.directory]
        before = self.state_of(copy), self.state_of(logs), sorted(os.listdir(self.agent.run))
        said = self.all_fail("for d in facts['directories']:\n"
                             "  for name in ('9', '.9.origin', '.9.partial', 'log.9', 'exit', 'control.sock'):\n"
                             "    tried(d, os.symlink, '/etc/passwd', d + '/mine-' + name); tried(d, os.mkdir, d + '/' + name)\n"
                             "for path in facts['paths']:\n"
                             "  for do in (os.unlink, os.rmdir): tried(path, do, path)\n"
                             "  tried(path, os.rename, path, 'taken'); tried(path, os.chmod, path, 0o777)\n"
                             "  tried(path, os.chown, path, os.getuid(), -1)\n",
                             "EEXIST", "ENOTDIR", "ENOTEMPTY", "EXDEV", directories=directories, paths=[self.agent.socket, copy, logs])
        self.assertEqual(len(said), len(directories) * 12 + 15)
        self.assertEqual((self.state_of(copy), self.state_of(logs), sorted(os.listdir(self.agent.run))), before)
        self.assertTrue(alive(pid))

    def test_the_port_of_the_agents(self):
        """In plain, as who has no key."""
        greeting = (b"\xff" + b"\0" * 7 + b"\x01\x7f\x03\x01NULL").ljust(64, b"\0")
        greeting += b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06DEALER"
        said = self.attempt("for port in (7400, 7401):\n"
                            "  with socket.create_connection((facts['ip'], port), timeout=30) as connection:\n"
                            "    got = 0\n"
                            "    try:\n"
                            "      connection.sendall(bytes.fromhex(facts['greeting']))\n"
                            "      while piece := connection.recv(4096): got += len(piece)\n"
                            "    except ConnectionError: pass\n"
                            "    print(got)\n", ip=self.ip, greeting=greeting.hex())
        self.assertEqual(len(said), 2)
        for got in said:    # its own greeting, and perhaps that this is refused
            self.assertLess(int(got), 100)
        self.assertEqual(list(self.agent.ask("nodes")[0]["name"]), list("n1"))

    def test_a_flood_of_output_is_bounded(self):
        self.agent.end()
        self.agent.options += ["--set", "tasks.logs.fileSize=64Ki", "--set", "tasks.logs.files=2"]
        self.agent.start()
        exit_, said = self.tries("seq 1 300000")
        self.assertTrue(said.endswith("\n300000\n"), said[-100:])
        kept = [os.stat(os.path.join(top, name)) for top, _, names in os.walk(os.path.join(self.agent.data, "tasks"))
                for name in names if name.startswith("log.")]
        self.assertLess(sum(info.st_blocks * 512 for info in kept), 300 << 10)

    # ---- a task and others' tasks

    def test_debuggers_and_limits_on_others(self):
        pid, _, _ = self.his()
        victims = [pid, parent_of(pid), self.agent.process.pid]
        said = self.all_fail("""
for pid in facts['victims'] + [os.getppid()]:
    tried('attach', call, libc.ptrace, 16, pid, 0, 0)
    tried('seize', call, libc.ptrace, 0x4206, pid, 0, 0)
    here = (ctypes.c_size_t * 2)(ctypes.addressof(ctypes.create_string_buffer(8)), 8)
    there = (ctypes.c_size_t * 2)(0x10000, 8)
    tried('read', system, 310, pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    tried('write', system, 311, pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    tried('its descriptors', lambda: system(438, os.pidfd_open(pid), 1, 0))
    tried('limit', system, 302, pid, 6, ctypes.byref((ctypes.c_ulong * 2)(0, 0)), None)
    tried('urgency', os.setpriority, os.PRIO_PROCESS, pid, 19)
    tried('processors', os.sched_setaffinity, pid, {0})
    for name in ('root', 'cwd', 'exe', 'fd/1'): tried(name, os.readlink, '/proc/%d/%s' % (pid, name))
""", victims=victims)
        self.assertEqual(len(said), 12 * (len(victims) + 1))
        self.assertTrue(all(alive(pid) for pid in victims))

    def test_files_and_logs_of_others(self):
        _, copy, logs = self.his()
        before = self.state_of(copy), self.state_of(logs).keys()
        paths = [copy + "/kept", *(logs + "/" + name for name in os.listdir(logs))]
        self.assertIn(logs + "/log.0", paths)
        said = self.all_fail("for path in facts['paths']:\n"
                             "  tried(path, read, path); tried(path, os.open, path, os.O_WRONLY); tried(path, os.unlink, path)\n"
                             "  tried(path, os.link, path, 'mine'); tried(path, os.truncate, path, 0)\n"
                             "for path in facts['directories']:\n"
                             "  tried(path, os.listdir, path); tried(path, os.open, path + '/new', os.O_CREAT | os.O_WRONLY)\n",
                             "ENXIO", "EXDEV", "EINVAL", paths=paths, directories=[copy, logs])
        self.assertEqual(len(said), 5 * len(paths) + 4)
        self.assertEqual((self.state_of(copy), self.state_of(logs).keys()), before)

    def test_a_package_that_others_use_too(self):
        """The same files, once on the host: her copy is hers, the package is nobody's to change."""
        script = self.write("package/train.sh", "echo as it was\n")
        os.chmod(script, 0o666)
        package = {"package": self.path("package")}
        changes = ["sh", "-c", "echo echo changed > train.sh && chmod 777 train.sh"]
        self.allowed(ANNE, "submit", "-", stdin=self.job("changes", changes, **package))
        self.ended("changes", "Succeeded")
        blob, = os.listdir(os.path.join(self.agent.data, "blobs"))
        self.all_fail("tried('package', read, facts['blob']); tried('write', os.open, facts['blob'], os.O_WRONLY)\n"
                      "tried('mode', os.chmod, facts['blob'], 0o666)", blob=os.path.join(self.agent.data, "blobs", blob))
        self.allowed(BOB, "submit", "-", stdin=self.job("uses", ["sh", "train.sh"], **package))
        self.ended("uses", "Succeeded")
        self.assertEqual(self.agent.do("logs", "uses", "worker-0"), "as it was\n")

    def test_a_working_directory_of_others(self):
        _, copy, _ = self.his()
        before = self.state_of(copy)
        for number, path in enumerate((copy, "/root", self.agent.data + "/blobs")):
            name = "in%d" % number
            self.allowed(ANNE, "submit", "-", stdin=self.job(name, ["pwd"], workDir=path))
            self.assertIn("cannot be entered", self.ended(name, "Failed")["reason"])
        self.assertEqual(self.state_of(copy), before)

    # ---- the agent, which is root, where links and names lead it

    def checkpoint(self, directory, step, name="shard", content=b"weights"):
        """One of his, as a training leaves it; `name`: of its only file, as the manifest says."""
        files = [{"name": name, "size": len(content), "sha256": hashlib.sha256(b"weights").hexdigest()}]
        path = os.path.join(directory, "step-%d" % step)
        os.makedirs(path)
        for file, text in (("shard", content), ("MANIFEST.json", json.dumps({"version": 1, "step": step, "files": files}).encode())):
            with open(os.path.join(path, file), "wb") as to:
                to.write(text)

    def test_checkpoints_of_others_are_not_moved_nor_removed(self):
        """She may read his directory. The agent looks at it for her, and does there what she may."""
        directory = self.belongs_to(BOB, "checkpoints")
        for step in (1, 2, 3):
            self.checkpoint(directory, step)
        self.checkpoint(directory, 4, content=b"damaged")
        self.checkpoint(directory, 5, name="../../cluster.key")
        before = self.state_of(directory)
        os.symlink(directory, self.path("link"))
        for number, where in enumerate((directory, self.path("link"))):
            name = "deletes%d" % number
            job = json.loads(self.job(name, harness.SLEEP, checkpoint={"dir": where, "keep": 1, "format": "manifest"}))
            job["spec"].update(framework="tensorflow", roles={role: {"replicas": 1, "command": harness.SLEEP} for role in ("ps", "worker")})
            self.allowed(ANNE, "submit", "-", stdin=json.dumps(job).encode())
            tasks = until(lambda: (t := {t["task"]: t for t in self.agent.ask("tasks", name)}) and
                          {x["state"] for x in t.values()} == {"Running"} and t, name + " to run")
            removed = r"event=checkpoint.not-removed .*step-[12]"
            until(lambda: len(re.findall(removed, self.agent.log())) >= 2 * (number + 1), "its attempts to delete what is too much")
            os.kill(tasks["ps-0"]["pid"], signal.SIGKILL)        # so that the newest are verified, and the damaged one is to be moved away
            restored = until(lambda: self.agent.ask("describe", "job", name)["restored"], "what it goes on from")
            self.assertEqual(restored["step"], 3)
            self.assertEqual(self.state_of(directory), before)
        self.assertIn("event=checkpoint.not-moved", self.agent.log())

    def test_links_in_what_is_deleted(self):
        directory = self.belongs_to(BOB, "models")
        self.checkpoint(directory, 1)
        self.checkpoint(self.belongs_to(ANNE, "own"), 2)
        before = self.state_of(directory)
        # Hers to write, so that only who follows links does harm: all of it may be removed by root.
        self.allowed(ANNE, "submit", "-", stdin=self.job("links", ["sh", "-c", (
            "ln -s %s there; ln -s /etc/passwd file; mkdir -p a/b; ln -s ../../.. a/b/up; chmod 0 a/b; pwd; ln -s %s 'a/-rf'") % (
                directory, directory)]))
        self.ended("links", "Succeeded")
        copy = self.agent.do("logs", "links", "worker-0").strip()
        self.assertTrue(os.path.islink(os.path.join(copy, "there")))
        self.allowed(ANNE, "delete", "links")
        until(lambda: not os.path.lexists(copy), "the copy to be removed")
        self.assertEqual(self.state_of(directory), before)
        self.assertTrue(os.path.exists("/etc/passwd") and os.path.isdir(os.path.dirname(copy)))

    def test_her_environment_reaches_no_helper_of_the_agent(self):
        """The programs that unpack and remove, found by PATH."""
        mine, mark = self.belongs_to(ANNE, "mine"), self.path("marks")
        os.mkdir(mark)
        os.chmod(mark, 0o777)
        for program in ("tar", "rm", "chmod", "sh", "env"):
            path = self.write("mine/" + program, "#!/bin/sh\n/usr/bin/id -u > %s/%s\n" % (mark, program))
            os.chmod(path, 0o755)
        self.write("package/file", "text")
        env = {"PATH": mine, "TAR_OPTIONS": "--to-command=%s/sh" % mine, "BASH_ENV": mine + "/sh", "ENV": mine + "/sh",
               "IFS": "/", "LD_LIBRARY_PATH": mine, "PYTHONPATH": mine}
        self.allowed(ANNE, "submit", "-", stdin=self.job("poison", ["/bin/cat", "file"], package=self.path("package"), env=env))
        self.ended("poison", "Succeeded")
        self.allowed(ANNE, "delete", "poison")
        until(lambda: not [name for name in os.listdir(self.agent.data + "/work")], "the copy to be removed")
        self.assertEqual(os.listdir(mark), [])

    def test_a_notify_command_is_hers(self):
        told = self.belongs_to(ANNE, "told")
        self.allowed(ANNE, "submit", "-", stdin=self.job("tells", ["true"], notify={
            "command": ["/bin/sh", "-c", "id -u > %s/new; id -G >> %s/new; env >> %s/new; mv %s/new %s/all" % ((told,) * 5)],
            "on": ["Succeeded"]}))
        until(lambda: os.path.exists(told + "/all"), "the command to have run")
        with open(told + "/all") as file:
            uid, groups, *environment = file.read().splitlines()
        account = pwd.getpwnam(ANNE)
        self.assertEqual((int(uid), groups.split()), (account.pw_uid, [str(account.pw_gid)]))
        self.assertEqual([line for line in environment if SECRET in line], [])

    def test_what_a_notify_command_leaves_is_ended(self):
        """In a session of its own, and not in the agent's control group."""
        told = self.belongs_to(ANNE, "told")
        leaves = ("setsid sh -c 'cat /proc/self/cgroup > {0}/group; echo $$ > {0}/new; mv {0}/new {0}/pid; exec sleep 1000000' & "
                  "while [ ! -e {0}/pid ]; do :; done").format(told)
        self.allowed(ANNE, "submit", "-", stdin=self.job("tells", harness.SLEEP, notify={"command": ["/bin/sh", "-c", leaves],
                                                                                         "on": ["Running"]}))
        until(lambda: os.path.exists(told + "/pid"), "the command to have run")
        with open(told + "/pid") as file:
            pid = int(file.read())
        with open(told + "/group") as file, open("/proc/%d/cgroup" % self.agent.process.pid) as agent:
            self.assertNotEqual(file.read(), agent.read())
        until(lambda: not alive(pid), "its end")


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skipped: it acts as several accounts, which root alone can", file=sys.stderr)
        sys.exit(77)
    harness.main()
