"""A host for tests of tasks in images, with podman as a user without rights: the agent is root's, in a mount and process namespace with an
account of its own that has subordinate ids, and with cgroup v2 alone (crun refuses hybrid hierarchies). Where podman cannot run a container
there, the test is skipped with podman's own words. A test script begins with begin().
"""
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile

import harness
from harness import BIN, until

INSIDE = "DTRAIN_IMAGES_INSIDE"
ADA, UID = "dtrain-ada", 23456
IMAGE = "localhost/dtrain-small"
GPUS = 3                        # that look so
TOP = HOME = ""                 # of all files here, of that user
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


class InEnroot:
    """Of a test that runs with enroot: the image is a directory of the user."""
    agent_options = ("--set", "tasks.imageEngine=enroot")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if os.path.exists(os.path.join(TOP, "enroot.conf")):
            return
        root, file = os.path.join(TOP, "root"), os.path.join(TOP, "small.sqsh")
        with open(os.path.join(root, "etc/environment"), "w") as environment:
            environment.write("OF_IMAGE=yes\n")
        must("mksquashfs", root, file, "-all-root", "-quiet", "-no-progress")
        # In which a user may have a registry without TLS.
        settings = re.search("^Config file: (.*)$", must(*as_ada("enroot", "info")), re.M)[1]
        with open(settings) as here, open(os.path.join(TOP, "enroot.conf"), "w") as there:
            there.write(here.read() + "\nENROOT_ALLOW_HTTP yes\n")
        must("mount", "--bind", there.name, settings)
        must(*as_ada("enroot", "create", "--name", IMAGE.replace("/", "+"), file))


def begin():
    global TOP, HOME
    TOP = enter()
    HOME = os.path.join(TOP, "home")
    prepare()
