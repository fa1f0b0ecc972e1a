"""Hosts with a systemd of their own, for tests of what is installed: systemd-nspawn over this machine's own files.

Everything lies in the namespaces that enter() makes, and ends with them: call that first. Each host is an overlay of the
machine's root in memory, so its programs and packages are this machine's and what it writes is its own. Hosts hang on one bridge,
10.78.0.K each, and know each other as h1, h2, ... Control groups are left outside, empty: enter()
takes them away.
"""
import errno
import os
import shutil
import signal
import subprocess
import sys
import time

import agents_lab
from harness import BIN

PATIENCE = 60       # seconds a condition may take on a loaded machine
CANNOT = 77         # exit code of a test that cannot run on this machine (cmake/tests.cmake)
MEMORY = "400m"     # of what one host writes
INIT = """#!/bin/sh
# Controllers of version 1 come read-only from nspawn; they show this host's own part alone.
for c in /sys/fs/cgroup/*; do mountpoint -q "$c" && mount -o remount,bind,rw "$c"; done
exec /lib/systemd/systemd "$@"
"""
# Of the machine underneath: nothing that starts with it starts with a host.
FOREIGN = ("etc/systemd/system", "etc/init.d", "var/log/journal", "var/lib/dtrain", "etc/dtrain", "run")
MASKED = ("systemd-logind.service", "systemd-networkd.service", "systemd-resolved.service", "systemd-timesyncd.service",
          "systemd-udevd.service", "getty.target", "apt-daily.timer", "apt-daily-upgrade.timer", "man-db.timer", "fstrim.timer",
          "e2scrub_all.timer", "dpkg-db-backup.timer", "logrotate.timer", "systemd-tmpfiles-clean.timer")


# Words of mount, ip and systemd-nspawn where this machine does not let us, or its kernel cannot. All else is a failure of the test.
NOT_HERE = ("not permitted", "ermission denied", "Read-only file system", "must be superuser", "unknown filesystem type", "not supported")


class CannotBoot(Exception):
    """No host can be had on this machine."""


def does(what, *command):
    """A step of setting up, on this machine."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        refused(what, done.stderr.strip())


def refused(what, words):
    raise (CannotBoot if any(known in words for known in NOT_HERE) else AssertionError)("%s: %s" % (what, words))


def cannot(why):
    print("this machine boots no host, so nothing is shown: %s" % why, file=sys.stderr)
    sys.exit(CANNOT)


def enter(seconds):
    """agents_lab.enter() with what hosts leave behind taken away. Ends the test where namespaces are not for us to make."""
    if agents_lab.INSIDE not in os.environ:
        as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
        if as_root and shutil.which("sudo") is None:
            cannot("root is needed")
        done = subprocess.run([*as_root, "unshare", "--net", "--pid", "--mount", "--fork", "true"], capture_output=True, text=True)
        if done.returncode != 0:
            cannot("root and its rights are needed: " + done.stderr.strip())
    return agents_lab.enter(seconds, clean_up)


def groups_of_this():
    """Where this process is in each hierarchy of control groups: {mount point: directory}."""
    own = {}
    with open("/proc/self/cgroup") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            own[controllers] = path
    found = {}
    with open("/proc/self/mountinfo") as file:
        for line in file:
            left, right = line.split(" - ")
            kind, _, options = right.split()[:3]
            root, mount = left.split()[3:5]
            for controllers, path in own.items():
                if root == "/" and ((kind == "cgroup2" and not controllers) or (kind == "cgroup" and controllers and
                                    set(controllers.split(",")) <= set(options.split(",")))):
                    found[mount] = mount + path.rstrip("/")
    return found


def clean_up(directory):
    """After the hosts of the lab in this directory have ended: takes their control groups away."""
    names = [os.path.join(own, os.path.basename(directory)) for own in groups_of_this().values()]
    for _ in range(100):
        for top in names:
            for path, _, _ in os.walk(top, topdown=False):
                try:
                    os.rmdir(path)
                except OSError:
                    pass        # busy yet, or gone
        if not any(os.path.isdir(top) for top in names):
            return
        time.sleep(0.05)


class Host:
    def __init__(self, lab, number):
        self.lab, self.name, self.ip = lab, "h%d" % number, "10.78.0.%d" % number
        self.directory = os.path.join(lab.directory, self.name)
        self.root = os.path.join(self.directory, "root")
        self.console = os.path.join(self.directory, "console.log")
        self.process = self.leader = None

    # -- its life

    def make(self):
        memory = os.path.join(self.directory, "memory")
        os.makedirs(memory)
        does("memory for a host", "mount", "-t", "tmpfs", "-o", "mode=755,size=" + MEMORY, "host", memory)
        upper, work = os.path.join(memory, "upper"), os.path.join(memory, "work")
        for path in (upper, work, self.root):
            os.mkdir(path)
        does("an overlay of this machine's files", "mount", "-t", "overlay", "-o", "lowerdir=/,upperdir=%s,workdir=%s" % (upper, work),
             "host", self.root)
        for path in FOREIGN:
            shutil.rmtree(self.path(path), ignore_errors=True)
            os.makedirs(self.path(path), exist_ok=True)
        os.rmdir(self.path("var/log/journal"))      # the journal lies in memory
        for unit in MASKED:
            os.symlink("/dev/null", self.path("etc/systemd/system", unit))
        os.symlink("/lib/systemd/system/multi-user.target", self.path("etc/systemd/system/default.target"))
        self.write("/etc/hostname", self.name + "\n")
        self.write("/etc/fstab", "")
        self.write("/etc/machine-id", os.urandom(16).hex() + "\n")
        self.write("/etc/hosts", "127.0.0.1 localhost\n" + "".join("10.78.0.%d h%d\n" % (k, k) for k in range(1, self.lab.count + 1)))
        self.write("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 0\n", 0o755)     # containers often forbid services
        self.write("/sbin/lab-init", INIT, 0o755)
        for path in self.lab.shared:
            os.makedirs(self.path(path), exist_ok=True)
            does("a directory that is this machine's too", "mount", "--bind", path, self.path(path))

    def boot(self):
        groups = []
        for mount, own in groups_of_this().items():
            path = os.path.join(own, self.lab.mark, self.name)
            os.makedirs(path, exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):     # version 1: a new group has none
                for directory in (os.path.dirname(path), path):
                    target = os.path.join(directory, name)
                    if mount.endswith("cpuset") and os.path.exists(target):
                        with open(os.path.join(os.path.dirname(directory), name)) as file, open(target, "w") as to:
                            to.write(file.read())
            groups.append(os.path.join(path, "cgroup.procs"))
        enter = "".join("echo 0 > '%s' || exit 1\n" % group for group in groups)
        nspawn = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--directory=" + self.root, "--machine=" + self.name,
                  "--hostname=" + self.name, "--network-bridge=lab0", "--capability=all", "--resolv-conf=off", "--timezone=off",
                  "--link-journal=no", "--console=pipe", "--kill-signal=SIGRTMIN+4", "/sbin/lab-init", "systemd.show_status=0"]
        environment = {"PATH": os.environ["PATH"], "SYSTEMD_SECCOMP": "0"}
        with open(self.console, "a") as console:
            self.process = subprocess.Popen(["sh", "-c", enter + 'exec "$@"', "sh", *nspawn], stdin=subprocess.DEVNULL, stdout=console,
                                            stderr=console, env=environment)

    def wait(self):
        def leader():
            if self.process.poll() is not None:
                refused("systemd-nspawn ended with %d" % self.process.returncode, self.said())
            with open("/proc/%d/task/%d/children" % (self.process.pid, self.process.pid)) as file:
                found = file.read().split()
            if not found:
                return False
            with open("/proc/%s/comm" % found[0]) as file:
                return file.read().strip() == "systemd" and int(found[0])
        self.leader = self.lab.until(leader, lambda: "systemd of %s; it said: %s" % (self.name, self.said()))
        self.lab.until(lambda: self.tries("systemctl", "is-system-running").stdout.strip() in ("running", "degraded"),
                       lambda: "%s to be up; %s; it said: %s" % (self.name, self.tries("systemctl", "list-jobs").stdout, self.said()))
        for step in (["addr", "add", self.ip + "/24", "dev", "host0"], ["link", "set", "host0", "up"], ["link", "set", "lo", "up"]):
            self.does("ip", *step)

    def cut(self):
        """A power cut: everything in it is gone at once; what it wrote stays. boot() and wait() bring it back."""
        os.kill(self.leader, signal.SIGKILL)
        self.process.wait(PATIENCE)

    def reboot(self):
        """As a person does it: all services are stopped in order."""
        self.tries("systemctl", "--no-block", "poweroff")
        self.process.wait(PATIENCE)
        self.boot()
        self.wait()

    def said(self):
        with open(self.console, errors="replace") as file:
            return file.read()[-1500:].strip()

    # -- files and commands in it

    def path(self, *parts):
        return os.path.join(self.root, *(part.lstrip("/") for part in parts))

    def write(self, path, text, mode=0o644):
        target = self.path(path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.islink(target):
            os.remove(target)
        with open(target, "w") as file:
            file.write(text)
        os.chmod(target, mode)

    def tries(self, *command, given=""):
        """A command inside, by root; the caller judges."""
        return subprocess.run(["nsenter", "--target", str(self.leader), "--all", "--", *command], capture_output=True, text=True,
                              errors="replace", input=given, timeout=120)

    def does(self, *command, given=""):
        """The output of a command that must succeed."""
        done = self.tries(*command, given=given)
        if done.returncode != 0:
            raise OSError("%s: %s: exit %d: %s %s" % (self.name, " ".join(command), done.returncode, done.stdout[-500:],
                                                      done.stderr[-1500:]))
        return done.stdout

    def shows(self, unit, *names):
        """Properties of a unit, as systemctl show has them."""
        text = self.does("systemctl", "show", unit, "--property", ",".join(names))
        return dict(line.split("=", 1) for line in text.splitlines())

    def status(self):
        """The line that the agent shows for people."""
        return self.shows("dtraind", "StatusText")["StatusText"]

    def install(self, package):
        with open(package, "rb") as file, open(self.path("/root", os.path.basename(package)), "wb") as to:
            to.write(file.read())
        # The index of manual pages is not what is tested, and takes as long as all the rest. Nobody is there to be asked about files.
        self.does("dpkg", "--install", "--no-triggers", "--force-unsafe-io", "/root/" + os.path.basename(package))

    def journal(self, unit):
        return self.does("journalctl", "--no-pager", "--unit", unit, "--output", "cat")


class Hosts:
    """`count` hosts, up and running. `shared`: directories that they have under the same path as this machine, not below /tmp."""

    def __init__(self, directory, count, shared=()):
        self.directory, self.count, self.mark, self.shared = directory, count, os.path.basename(directory), shared
        self.hosts = [Host(self, number) for number in range(1, count + 1)]

    def begin(self):
        """Boots them. Where that cannot be done on this machine the test ends, and says why."""
        try:
            self.boot()
        except CannotBoot as error:
            cannot(error)
        return self

    def package(self, revision):
        """Path of the package made of what is built. Each revision has another default configuration."""
        place = os.path.join(self.directory, "package-%d" % revision)
        done = subprocess.run(["cpack", "-G", "DEB", "-B", place, "-D", "CPACK_DEBIAN_PACKAGE_RELEASE=%d" % revision,
                               "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip"], cwd=os.path.dirname(BIN), capture_output=True, text=True)
        found = [name for name in os.listdir(place) if name.endswith(".deb")] if done.returncode == 0 else []
        if len(found) != 1:
            raise AssertionError("cpack made %s: %s %s" % (found, done.stdout[-2000:], done.stderr[-2000:]))
        package, tree = os.path.join(place, found[0]), os.path.join(place, "tree")
        subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True)
        with open(os.path.join(tree, "usr/share/dtrain/dtraind.yaml"), "a") as file:
            file.write("# revision %d\n" % revision)
        subprocess.run(["dpkg-deb", "-Zgzip", "-z1", "--build", tree, package], check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(tree)
        return package

    def boot(self):
        if shutil.which("systemd-nspawn") is None:
            raise CannotBoot("systemd-nspawn is not installed (package systemd-container)")
        try:
            os.makedirs("/run/systemd/nspawn", exist_ok=True)
            does("memory for systemd-nspawn", "mount", "-t", "tmpfs", "hosts", "/run/systemd/nspawn")   # what it keeps of containers
            for step in (["link", "add", "lab0", "type", "bridge", "stp_state", "0", "forward_delay", "0"], ["link", "set", "lab0", "up"]):
                does("a bridge", "ip", *step)
            for host in self.hosts:
                host.make()
                host.boot()
        except OSError as error:        # directories or control groups are not for us to make
            if error.errno not in (errno.EPERM, errno.EACCES, errno.EROFS):
                raise
            raise CannotBoot(str(error)) from error
        for host in self.hosts:
            host.wait()

    @staticmethod
    def until(condition, what, seconds=PATIENCE):
        end, why = time.monotonic() + seconds, ""
        while time.monotonic() < end:
            try:
                value = condition()
                if value:
                    return value
            except (OSError, ValueError, KeyError, IndexError) as error:
                why = "%s: %s" % (type(error).__name__, error)
            time.sleep(0.05)
        raise AssertionError("not within %d s: %s%s" % (seconds, what() if callable(what) else what, why and "; " + why))
