"""Tasks in an image, with podman as a user without rights: what an image must not change (environment, user, exit code, logs, exec,
signals, limits, freezing, what a kill leaves), and what a person is told where there is no image or no podman.

The agent is root's, in a mount and process namespace with an account of its own that has subordinate ids, and with cgroup v2 alone (crun
refuses hybrid hierarchies). Where podman cannot run a container there, the test is skipped with podman's own words.
"""
import contextlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile

import harness
from harness import BIN, alive, until
from registry import Registry

INSIDE = "DTRAIN_IMAGES_INSIDE"
ADA, UID = "dtrain-ada", 23456
IMAGE = "localhost/dtrain-small"
GPUS = 3                        # that look so
SECONDS = 300                   # for all of it
APPLETS = "sh cat dd echo env false id kill ls mkdir nc ps pwd sleep test touch true".split()


def skip(reason):
    print("skipped: " + reason, file=sys.stderr)
    sys.exit(77)


def enter():
    """Runs this script again in namespaces of its own, which end with it."""
    if INSIDE in os.environ:
        return os.environ.pop(INSIDE)
    if os.geteuid() != 0:
        skip("it acts as several accounts, which root alone can")
    for program in ("podman", "newuidmap", "crun", "catatonit", "busybox"):
        if shutil.which(program) is None:
            skip("there is no %s here (apt install podman uidmap catatonit busybox-static)" % program)
    with tempfile.TemporaryDirectory(prefix="dtrain-images-") as top:
        os.chmod(top, 0o755)
        code = subprocess.run(["timeout", "--signal=KILL", str(SECONDS), "unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL",
                                 "--mount-proc", "sh", "-c", '"$@"; exit $?', "init", sys.executable, *sys.argv],
                                env=dict(os.environ, **{INSIDE: top})).returncode
    locks = "/dev/shm/libpod_rootless_lock_%d" % UID
    if os.path.exists(locks):
        os.remove(locks)
    sys.exit(code)


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)


def must(*command):
    done = run(*command)
    if done.returncode != 0:
        raise OSError("%s: exit %d: %s" % (" ".join(command), done.returncode, done.stderr.strip()))
    return done.stdout


def as_ada(*command):
    return ["setpriv", "--reuid=%d" % UID, "--regid=%d" % UID, "--clear-groups", "env", "-i", "-C", "/", "HOME=" + HOME,
            "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "XDG_RUNTIME_DIR=/run/user/%d" % UID, *command]


def own_devices():
    """A /dev with what looks like GPUs, and what enroot needs to show a task its own devices alone, which a container may lack."""
    new = os.path.join(TOP, "dev")
    os.makedirs(new)
    must("mount", "-t", "tmpfs", "-o", "mode=755", "dev", new)
    for name in os.listdir("/dev"):
        there, here = os.path.join("/dev", name), os.path.join(new, name)
        if os.path.islink(there):
            os.symlink(os.readlink(there), here)
            continue
        os.makedirs(here) if os.path.isdir(there) else open(here, "w").close()
        must("mount", "--rbind", there, here)
    open(os.path.join(new, "log"), "a").close()
    os.makedirs(os.path.join(new, "mqueue"), exist_ok=True)
    for number in range(GPUS):
        node = os.path.join(new, "nvidia%d" % number)
        os.mknod(node, stat.S_IFCHR, os.makedev(1, 5))
        os.chmod(node, 0o666)
    must("mount", "--rbind", new, "/dev")


def prepare():
    """The account, the control groups, the runtime directory, the image."""
    for name, line in (("passwd", "%s:x:%d:%d::%s:/bin/sh" % (ADA, UID, UID, HOME)), ("group", "%s:x:%d:" % (ADA, UID)),
                       ("subuid", "%s:3000000:65536" % ADA), ("subgid", "%s:3000000:65536" % ADA)):
        path, own = "/etc/" + name, os.path.join(TOP, name)
        text = ""
        if os.path.exists(path):
            with open(path) as file:
                text = file.read()
        else:
            skip("there is no %s here" % path)
        with open(own, "w") as file:
            file.write(text.rstrip("\n") + "\n" + line + "\n")
        must("mount", "--bind", own, path)
    os.makedirs("/run/user", exist_ok=True)
    must("mount", "-t", "tmpfs", "-o", "mode=755", "images", "/run/user")
    if not os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        must("umount", "--lazy", "--recursive", "/sys/fs/cgroup")
        must("mount", "-t", "cgroup2", "none", "/sys/fs/cgroup")
    with open("/sys/fs/cgroup/cgroup.controllers") as file:
        if "memory" not in file.read().split():         # it belongs to version 1, where dtrain finds it as well
            os.makedirs(os.path.join(TOP, "memory"))
            must("mount", "-t", "cgroup", "-o", "memory", "none", os.path.join(TOP, "memory"))
    own_devices()
    must("mount", "--make-rshared", "/")
    for directory, mode in ((HOME, 0o755), ("/run/user/%d" % UID, 0o700)):
        os.makedirs(directory)
        os.chmod(directory, mode)
        os.chown(directory, UID, UID)
    root = os.path.join(TOP, "root")
    for directory in ("bin", "etc", "tmp", "opt/inside"):
        os.makedirs(os.path.join(root, directory))
    os.chmod(os.path.join(root, "tmp"), 0o1777)
    shutil.copy(shutil.which("busybox"), os.path.join(root, "bin/busybox"))
    for applet in APPLETS:
        os.symlink("busybox", os.path.join(root, "bin", applet))
    must("tar", "-C", root, "-cf", os.path.join(TOP, "small.tar"), ".")
    if run(*as_ada("podman", "--cgroup-manager=cgroupfs", "import", "--change", "ENV=OF_IMAGE=yes",
                   os.path.join(TOP, "small.tar"), IMAGE)).returncode != 0:
        skip("podman cannot import an image here")
    done = run(*as_ada("podman", "--cgroup-manager=cgroupfs", "run", "--rm", "--init", "--cgroups=disabled", "--network=host",
                       "--userns=keep-id", IMAGE, "true"))
    if done.returncode != 0:
        skip("podman cannot run a container here: " + (done.stderr.strip().splitlines() or ["exit %d" % done.returncode])[-1])


class OfAda(harness.SystemTest):
    def start(self):
        os.chmod(self.top, 0o711)
        self.mine = self.path("mine")
        os.makedirs(self.mine)
        os.chown(self.mine, UID, UID)
        self.agent.options += ["--set", "access.users.%s=submit" % ADA, "--set", "tasks.ulimits.nofile=777"]
        self.agent.start()

    def tearDown(self):
        for job in self.agent.ask("jobs"):
            if job["state"] not in harness.FINAL:
                self.ada("cancel", job["name"])
                self.ada("delete", "--force", job["name"])
        until(lambda: "conmon" not in run("ps", "-u", str(UID), "-o", "comm=").stdout, "the end of its containers")

    def ada(self, *arguments, stdin=""):
        """dtrainctl as that user."""
        return subprocess.run(as_ada(os.path.join(BIN, "dtrainctl"), "--agent", self.agent.socket, *arguments), capture_output=True,
                              text=True, input=stdin, timeout=60)

    def begin(self, name, script, image=IMAGE, role=None, **spec):
        document = {"apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": name}, "spec": {
            "image": image, "roles": {"worker": {"command": ["/bin/sh", "-c", script], **(role or {})}}, **spec}}
        return self.ada("submit", "-", stdin=json.dumps(document))

    def accepted(self, *arguments, **more):
        done = self.begin(*arguments, **more)
        self.assertEqual(done.returncode, 0, done.stderr)

    def logs(self, name, *arguments):
        return self.ada("logs", name, *arguments).stdout


class Images(OfAda):
    def pid_inside(self, mark):
        """Of a process with that argument, as the host counts."""
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/cmdline" % name, "rb") as file:
                    arguments = file.read().decode(errors="replace").split("\0")[:-1]
            except OSError:
                continue
            if arguments and arguments[0] == "sleep" and arguments[1:2] == [mark]:
                return int(name)
        return None

    def test_its_surroundings_are_those_of_the_user(self):
        kept = os.path.join(self.mine, "deep", "ckpt")
        self.accepted("hello", "echo hello; id -u; id -g; pwd; "
                      "echo $OF_IMAGE $DTRAIN_TASK $DTRAIN_ATTEMPT $MINE $DTRAIN_IMAGE; echo $PATH; "
                      "echo err >&2; echo x > %s/made; test -d %s && echo x > $TMPDIR/made && echo x > /dev/shm/dtrain-$PPID; "
                      "test ! -e /etc/passwd.d -a ! -e /usr/bin/python3; exit $?" % (self.mine, kept),
                      env={"MINE": "a b"}, requires={"paths": [self.mine]}, checkpoint={"dir": kept})
        self.wait_job("hello", "Succeeded")
        out = self.logs("hello", "worker-0").splitlines()
        self.assertEqual(out[:3], ["hello", str(UID), str(UID)])
        self.assertTrue(out[3].startswith(self.agent.data), out)
        self.assertEqual(out[4], "yes worker-0 1 a b " + IMAGE)
        self.assertNotIn("/usr/local/bin:/usr/bin:/bin", out[5:6], "the image's, or podman's for images that name none")
        self.assertIn("err", out)
        self.assertEqual(os.stat(os.path.join(self.mine, "made")).st_uid, UID)

    def test_it_says_that_it_is_ready(self):
        say = ("import os, socket, time; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); "
               "s.sendto(b'READY=1', chr(0) + os.environ['NOTIFY_SOCKET'][1:]); time.sleep(1000)")
        python = {"command": ["/usr/bin/python3", "-c", say], "notify": True}       # the host's, in the image
        self.accepted("ready", "", role=python, requires={"paths": ["/usr", "/lib", "/lib64"]})
        until(lambda: self.job("ready")["roles"]["worker"]["ready"] == 1, "READY=1")

    def test_ranks_of_one_task_have_a_container_each(self):
        self.accepted("ranks", "echo rank $RANK of $WORLD_SIZE", framework="pytorch", role={"nprocPerNode": 2})
        self.wait_job("ranks", "Succeeded")
        said = [self.logs("ranks", "worker-0", "--rank", rank).strip() for rank in "01"]
        self.assertEqual(said, ["rank 0 of 2", "rank 1 of 2"])

    def test_limits_of_the_host_hold(self):
        self.accepted("limited", "ulimit -n; ulimit -c")
        self.wait_job("limited", "Succeeded")
        self.assertEqual(self.logs("limited", "worker-0").split(), ["777", "0"])

    def test_a_limit_of_memory_holds(self):
        self.accepted("hungry", "exec dd if=/dev/zero of=/dev/null bs=900M count=1",
                      role={"resources": {"memory": "256Mi"}, "restartPolicy": "Never"})
        self.wait_job("hungry", "Failed")
        self.assertIn("out of memory", self.job("hungry")["reason"])

    def test_its_exit_code_is_the_commands(self):
        self.accepted("seven", "exit 7", role={"restartPolicy": "Never"})
        self.wait_job("seven", "Failed")
        self.assertEqual(self.tasks("seven")["worker-0"]["exit"]["code"], 7)

    def test_a_stop_reaches_the_command_and_gives_it_time(self):
        self.accepted("gentle", "trap 'echo stopping; sleep 1; echo x > %s/stopped; exit 0' TERM; echo up; sleep 33333 & wait" % self.mine,
                      requires={"paths": [self.mine]})
        self.wait_task("gentle", "worker-0", state="Running")
        until(lambda: "up" in self.logs("gentle", "worker-0"), "the command to run")
        self.assertEqual(self.ada("cancel", "gentle").returncode, 0)
        self.wait_job("gentle", "Cancelled")
        until(lambda: os.path.exists(os.path.join(self.mine, "stopped")), "the command to have had its time")
        self.assertEqual(self.logs("gentle", "worker-0").count("stopping"), 1, "the signal came once")

    def test_a_kill_leaves_nothing_and_the_next_attempt_begins(self):
        self.accepted("killed", "echo attempt $DTRAIN_ATTEMPT; exec sleep 44444")
        pid = until(lambda: self.pid_inside("44444"), "the command")
        main = self.wait_task("killed", "worker-0", state="Running")["pid"]
        os.kill(main, signal.SIGKILL)
        until(lambda: not alive(pid), "the end of what ran in the image")
        self.wait_task("killed", "worker-0", state="Running", attempt=2)
        self.assertTrue(until(lambda: self.pid_inside("44444"), "the next attempt"))
        # All of its control group, with all of podman's.
        with open("/proc/%d/cgroup" % self.tasks("killed")["worker-0"]["pid"]) as file:
            group = "/sys/fs/cgroup" + file.read().split("::")[-1].strip()
        with open(group + "/cgroup.procs") as file:
            for number in file.read().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(number), signal.SIGKILL)
        self.wait_task("killed", "worker-0", state="Running", attempt=3)
        until(lambda: "attempt 3" in self.logs("killed", "worker-0", "--attempt", "all"), "the third attempt")
        self.assertEqual(self.ada("cancel", "killed").returncode, 0)
        self.wait_job("killed", "Cancelled")
        left = run(*as_ada("podman", "ps", "--all", "--format", "{{.Names}}")).stdout.split()
        self.assertLessEqual(len([name for name in left if name.startswith("dtrain-")]), 1)

    def test_exec_enters_the_image(self):
        self.accepted("entered", "exec sleep 55555")
        self.wait_task("entered", "worker-0", state="Running")
        until(lambda: self.pid_inside("55555"), "the command")
        seen = self.ada("exec", "entered", "worker-0", "--", "/bin/sh", "-c",
                        "id -u; ls /opt; echo $OF_IMAGE $DTRAIN_TASK; ps; cat; exit 5", stdin="given\n")
        self.assertEqual(seen.returncode, 5, seen.stderr)
        for word in (str(UID), "inside", "yes worker-0", "sleep 55555", "given"):
            self.assertIn(word, seen.stdout)
        self.assertEqual(self.ada("exec", "entered", "worker-0", "--", "/bin/sh", "-c", "kill -9 $$").returncode, 128 + signal.SIGKILL)
        self.agent.end()
        self.agent.start()          # adopts the task
        self.assertEqual(self.ada("exec", "entered", "worker-0", "--", "ls", "/opt/inside").returncode, 0)
        self.assertIn("could not execute nosuch: No such file", self.ada("exec", "entered", "worker-0", "--", "nosuch").stderr)

    def test_it_is_in_the_tasks_control_group_and_ends_with_it(self):
        self.accepted("small", "exec sleep 66666", policy={"stopGracePeriod": "1s"})
        pid = until(lambda: self.pid_inside("66666"), "the command")
        with open("/proc/%d/cgroup" % pid) as file, open("/proc/%d/cgroup" % self.tasks("small")["worker-0"]["pid"]) as main:
            group = file.read()
            self.assertEqual(group, main.read(), "all of it is in the task's control group")
        directory = "/sys/fs/cgroup" + group.split("::")[-1].strip()
        self.assertIn("dtrain-", directory)
        with open(directory + "/cgroup.procs") as file:
            inside = {int(number) for number in file.read().split()}
        self.assertIn(pid, inside)
        with open(directory + "/cgroup.freeze", "w") as file:
            file.write("1")

        def frozen():
            with open(directory + "/cgroup.events") as events:
                return "frozen 1" in events.read()
        until(frozen, "all of it to freeze")
        self.agent.do("cancel", "small")
        until(lambda: not alive(pid), "the end of what was frozen")

    def test_an_image_is_pulled_once_and_then_needs_no_network(self):
        pushed = os.path.join(HOME, "pushed")
        must(*as_ada("podman", "--cgroup-manager=cgroupfs", "push", "--quiet", "--format=oci", IMAGE, "dir:" + pushed))
        registry = Registry(pushed)
        image = "127.0.0.1:%d/far" % registry.server_port
        settings = os.path.join(HOME, ".config/containers/registries.conf")
        os.makedirs(os.path.dirname(settings), exist_ok=True)
        with open(settings, "w") as file:
            file.write('[[registry]]\nlocation = "127.0.0.1:%d"\ninsecure = true\n' % registry.server_port)
        self.accepted("far", "echo here", image=image, role={"replicas": 2})
        self.wait_task("far", "worker-0", reason="pulls image " + image)
        registry.open.set()
        self.wait_job("far", "Succeeded")
        asked = registry.asked
        self.accepted("near", "echo here", image=image)
        self.wait_job("near", "Succeeded")
        self.assertEqual(registry.asked, asked)
        self.accepted("lost", "true", image=image + "/nosuch:1")
        self.wait_job("lost", "Failed")
        self.assertIn("image %s/nosuch:1 cannot be pulled on host n1: " % image, self.job("lost")["reason"])
        registry.shutdown()
        registry.server_close()

    def test_a_missing_image_is_a_clear_error(self):
        self.accepted("typo", "true", image="localhost/nosuch")
        self.wait_job("typo", "Failed")
        self.assertIn("image localhost/nosuch is not there on host n1, and no registry has it", self.job("typo")["reason"])

    def test_a_directory_of_the_image_may_be_the_working_directory(self):
        self.accepted("inside", "pwd", workDir="/opt/inside")
        self.wait_job("inside", "Succeeded")
        self.assertEqual(self.logs("inside", "worker-0").strip(), "/opt/inside")


def enroot(*arguments):
    return must(*as_ada("enroot", *arguments))


class InEnroot(Images):
    """The same with enroot, where it is installed (Debian has no package of it): the image is a directory of the user."""
    agent_options = ("--set", "tasks.imageEngine=enroot")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        root, file = os.path.join(TOP, "root"), os.path.join(TOP, "small.sqsh")
        with open(os.path.join(root, "etc/environment"), "w") as environment:
            environment.write("OF_IMAGE=yes\n")
        must("mksquashfs", root, file, "-all-root", "-quiet", "-no-progress")
        settings = re.search("^Config file: (.*)$", enroot("info"), re.M)[1]      # which let a user have a registry without TLS
        with open(settings) as here, open(os.path.join(TOP, "enroot.conf"), "w") as there:
            there.write(here.read() + "\nENROOT_ALLOW_HTTP yes\n")
        must("mount", "--bind", there.name, settings)
        enroot("create", "--name", IMAGE.replace("/", "+"), file)

    def test_it_sees_its_own_devices_alone(self):
        self.assertTrue(os.path.exists("/dev/nvidia0"))
        self.accepted("devices", "ls /dev; echo x >/dev/null; touch /opt/new || echo read-only")
        self.wait_job("devices", "Succeeded")
        seen = self.logs("devices", "worker-0").split()
        self.assertIn("null", seen)
        self.assertNotIn("nvidia0", seen)
        self.assertEqual(seen[-1], "read-only")

    def test_a_variable_arrives_as_it_is(self):
        text = "it's \"$HOME\" `id`\nENROOT_X=1\n"
        self.accepted("text", 'test "$TEXT" = "$(cat %s/text; echo x)" -a -z "$ENROOT_X$DTRAIN_ENROOT_0"' % self.mine,
                      env={"TEXT": text + "x"}, requires={"paths": [self.mine]})
        with open(os.path.join(self.mine, "text"), "w") as file:
            file.write(text)
        self.wait_job("text", "Succeeded")

    def test_a_signal_kills_it_as_on_the_host(self):
        self.accepted("signalled", "kill -9 $$", role={"restartPolicy": "Never"})
        self.wait_job("signalled", "Failed")
        self.assertEqual(self.tasks("signalled")["worker-0"]["exit"]["signal"], "SIGKILL")


class Own(OfAda):
    """The user's own agent: it has no rights and no control groups."""

    def start(self):
        os.chmod(self.top, 0o711)
        os.chown(self.agent.directory, UID, UID)
        self.agent.command = lambda: as_ada(os.path.join(BIN, "dtraind"), "--dev", "--data-dir", self.agent.data, "--run-dir",
                                            self.agent.run)
        self.agent.ctl_command = lambda *arguments: as_ada(os.path.join(BIN, "dtrainctl"), "--agent", self.agent.socket, *arguments)
        self.agent.start()

    def test(self):
        self.accepted("own", "echo hello; exec sleep 77777")
        self.wait_task("own", "worker-0", state="Running")
        until(lambda: "hello" in self.logs("own", "worker-0"), "the command")
        seen = self.ada("exec", "own", "worker-0", "--", "sh", "-c", "ls /opt; exit 3")
        self.assertEqual((seen.returncode, seen.stdout), (3, "inside\n"), seen.stderr)
        self.agent.do("restart", "own", "worker-0")
        self.wait_task("own", "worker-0", state="Running", attempt=2)


class OfManifests(OfAda):
    """Init containers and envFrom of a manifest, in the image of the task."""

    def start(self):
        self.store = self.path("store")
        os.makedirs(self.store)
        for name, text in (("RATE", "0.1\n"), ("HARD", "it's \"a\" $b")):
            with open(os.path.join(self.store, name), "w") as file:
                file.write(text)
        self.agent.options += ["--set", "volumes.store=" + self.store]
        super().start()

    def test(self):
        container = {"name": "pytorch", "image": IMAGE, "workingDir": self.mine, "envFrom": [{"configMapRef": {"name": "store"}}],
                     "command": ["sh", "-c", "cat seed; ls /opt; echo $RATE; echo $HARD; echo $KEY"],
                     "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "store", "key": "RATE"}}}]}
        first = {"name": "first", "image": IMAGE, "command": ["sh", "-c", "echo first $(ls /opt) $(id -u) >> seed"]}
        second = {"name": "second", "image": "localhost/other", "command": ["sh", "-c", "echo second $WORD >> seed"],
                  "env": [{"name": "WORD", "value": "of its own"}], "workingDir": self.mine}
        document = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "sown"}, "spec": {"pytorchReplicaSpecs": {
            "Master": {"replicas": 1, "template": {"spec": {"initContainers": [first, second], "containers": [container]}}}}}}
        done = self.ada("submit", "-", stdin=json.dumps(document))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"initContainers\[1\].*image", "the second has an image of its own, which is named")
        self.wait_job("sown", "Succeeded")
        self.assertEqual(self.logs("sown", "master-0").splitlines(),
                         ["first inside %d" % UID, "second of its own", "inside", "0.1", "it's \"a\" $b", "0.1"])


class Gpus(OfAda):
    """A specification of CDI names what belongs to each GPU: here devices that look so, and a library."""
    agent_options = ("--gpus", str(GPUS))

    def start(self):
        devices = []
        for number in range(GPUS):
            library = os.path.join(TOP, "libgpu%d" % number)
            open(library, "w").close()
            devices.append({"name": "pretended-%d" % number, "containerEdits": {
                "deviceNodes": [{"path": "/dev/nvidia%d" % number}],
                "mounts": [{"hostPath": library, "containerPath": "/opt/libgpu%d" % number, "options": ["ro", "bind"]}]}})
        os.makedirs("/run/cdi", exist_ok=True)      # for podman, /etc/cdi is the other place
        must("mount", "-t", "tmpfs", "cdi", "/run/cdi")
        with open("/run/cdi/nvidia.json", "w") as file:
            json.dump({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}, file)
        super().start()

    def tearDown(self):
        super().tearDown()
        must("umount", "/run/cdi")

    def test(self):
        self.accepted("cards", "cd /dev; echo nvidia*; cd /opt; echo lib*; test -c /dev/nvidia* || exit 3; exec sleep 88888",
                      role={"replicas": 2, "resources": {"gpus": 1}})
        seen = []
        for task in "worker-0", "worker-1":
            self.wait_task("cards", task, state="Running")
            until(lambda: "lib" in self.logs("cards", task), lambda: "the devices of %s; it says %s" % (task, self.logs("cards", task)))
            seen.append(self.logs("cards", task).split())
        self.assertEqual(sorted(seen), [["nvidia0", "libgpu0"], ["nvidia1", "libgpu1"]])


class WithoutEngine(OfAda):
    agent_options = ("--set", "tasks.imageEngine=none")

    def test(self):
        done = self.begin("nowhere", "true")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no host of the cluster has podman or enroot to run image %s in" % IMAGE, done.stderr)
        self.assertIn("tasks.imageFallback: host", done.stderr)


if __name__ == "__main__":
    TOP = enter()
    HOME = os.path.join(TOP, "home")
    prepare()
    if shutil.which("enroot") is None:
        print("There is no enroot here: no InEnroot.", file=sys.stderr)
        del InEnroot
    harness.main()
