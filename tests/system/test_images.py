"""Tasks in an image, with podman as a user without rights: what an image must not change (environment, user, exit code, logs, exec,
signals, limits, freezing, what a kill leaves), and what a person is told where there is no podman. Pulls: test_image_pulls.py.
"""
import contextlib
import json
import os
import shutil
import signal
import sys

import harness
import images_lab as lab
from harness import BIN, alive, until


class Images(lab.OfAda):
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
        self.assertEqual(out[:3], ["hello", str(lab.UID), str(lab.UID)])
        self.assertTrue(out[3].startswith(self.agent.data), out)
        self.assertEqual(out[4], "yes worker-0 1 a b " + lab.IMAGE)
        self.assertNotIn("/usr/local/bin:/usr/bin:/bin", out[5:6], "the image's, or podman's for images that name none")
        self.assertIn("err", out)
        self.assertEqual(os.stat(os.path.join(self.mine, "made")).st_uid, lab.UID)

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
        left = lab.run(*lab.as_ada("podman", "ps", "--all", "--format", "{{.Names}}")).stdout.split()
        self.assertLessEqual(len([name for name in left if name.startswith("dtrain-")]), 1)

    def test_exec_enters_the_image(self):
        self.accepted("entered", "exec sleep 55555")
        self.wait_task("entered", "worker-0", state="Running")
        until(lambda: self.pid_inside("55555"), "the command")
        seen = self.ada("exec", "entered", "worker-0", "--", "/bin/sh", "-c",
                        "id -u; ls /opt; echo $OF_IMAGE $DTRAIN_TASK; ps; cat; exit 5", stdin="given\n")
        self.assertEqual(seen.returncode, 5, seen.stderr)
        for word in (str(lab.UID), "inside", "yes worker-0", "sleep 55555", "given"):
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

    def test_a_missing_image_is_a_clear_error(self):
        self.accepted("typo", "true", image="localhost/nosuch")
        self.wait_job("typo", "Failed")
        self.assertIn("image localhost/nosuch is not there on host n1, and no registry has it", self.job("typo")["reason"])

    def test_a_directory_of_the_image_may_be_the_working_directory(self):
        self.accepted("inside", "pwd", workDir="/opt/inside")
        self.wait_job("inside", "Succeeded")
        self.assertEqual(self.logs("inside", "worker-0").strip(), "/opt/inside")


class InEnroot(lab.InEnroot, Images):
    """The same with enroot, where it is installed (Debian has no package of it)."""

    def test_it_sees_its_own_devices_alone(self):
        self.assertTrue(os.path.exists("/dev/nvidia0"))
        self.accepted("devices", "ls /dev; echo x >/dev/null; touch /opt/new || echo read-only")
        self.wait_job("devices", "Succeeded")
        seen = self.logs("devices", "worker-0").split()
        self.assertIn("null", seen)
        self.assertNotIn("nvidia0", seen)
        self.assertEqual(seen[-1], "read-only")

    def test_a_variable_arrives_as_it_is(self):
        text = "it's \"$lab.HOME\" `id`\nENROOT_X=1\n"
        self.accepted("text", 'test "$TEXT" = "$(cat %s/text; echo x)" -a -z "$ENROOT_X$DTRAIN_ENROOT_0"' % self.mine,
                      env={"TEXT": text + "x"}, requires={"paths": [self.mine]})
        with open(os.path.join(self.mine, "text"), "w") as file:
            file.write(text)
        self.wait_job("text", "Succeeded")

    def test_a_signal_kills_it_as_on_the_host(self):
        self.accepted("signalled", "kill -9 $$", role={"restartPolicy": "Never"})
        self.wait_job("signalled", "Failed")
        self.assertEqual(self.tasks("signalled")["worker-0"]["exit"]["signal"], "SIGKILL")


class Own(lab.OfAda):
    """The user's own agent: it has no rights and no control groups."""

    def start(self):
        os.chmod(self.top, 0o711)
        os.chown(self.agent.directory, lab.UID, lab.UID)
        self.agent.command = lambda: lab.as_ada(os.path.join(BIN, "dtraind"), "--dev", "--data-dir", self.agent.data, "--run-dir",
                                            self.agent.run)
        self.agent.ctl_command = lambda *arguments: lab.as_ada(os.path.join(BIN, "dtrainctl"), "--agent", self.agent.socket, *arguments)
        self.agent.start()

    def test(self):
        self.accepted("own", "echo hello; exec sleep 77777")
        self.wait_task("own", "worker-0", state="Running")
        until(lambda: "hello" in self.logs("own", "worker-0"), "the command")
        seen = self.ada("exec", "own", "worker-0", "--", "sh", "-c", "ls /opt; exit 3")
        self.assertEqual((seen.returncode, seen.stdout), (3, "inside\n"), seen.stderr)
        self.agent.do("restart", "own", "worker-0")
        self.wait_task("own", "worker-0", state="Running", attempt=2)


class OfManifests(lab.OfAda):
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
        container = {"name": "pytorch", "image": lab.IMAGE, "workingDir": self.mine, "envFrom": [{"configMapRef": {"name": "store"}}],
                     "command": ["sh", "-c", "cat seed; ls /opt; echo $RATE; echo $HARD; echo $KEY"],
                     "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "store", "key": "RATE"}}}]}
        first = {"name": "first", "image": lab.IMAGE, "command": ["sh", "-c", "echo first $(ls /opt) $(id -u) >> seed"]}
        second = {"name": "second", "image": "localhost/other", "command": ["sh", "-c", "echo second $WORD >> seed"],
                  "env": [{"name": "WORD", "value": "of its own"}], "workingDir": self.mine}
        document = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "sown"}, "spec": {"pytorchReplicaSpecs": {
            "Master": {"replicas": 1, "template": {"spec": {"initContainers": [first, second], "containers": [container]}}}}}}
        done = self.ada("submit", "-", stdin=json.dumps(document))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"initContainers\[1\].*image", "the second has an image of its own, which is named")
        self.wait_job("sown", "Succeeded")
        self.assertEqual(self.logs("sown", "master-0").splitlines(),
                         ["first inside %d" % lab.UID, "second of its own", "inside", "0.1", "it's \"a\" $b", "0.1"])


class Gpus(lab.OfAda):
    """A specification of CDI names what belongs to each GPU: here devices that look so, and a library."""
    agent_options = ("--gpus", str(lab.GPUS))

    def start(self):
        devices = []
        for number in range(lab.GPUS):
            library = os.path.join(lab.TOP, "libgpu%d" % number)
            open(library, "w").close()
            devices.append({"name": "pretended-%d" % number, "containerEdits": {
                "deviceNodes": [{"path": "/dev/nvidia%d" % number}],
                "mounts": [{"hostPath": library, "containerPath": "/opt/libgpu%d" % number, "options": ["ro", "bind"]}]}})
        os.makedirs("/run/cdi", exist_ok=True)      # for podman, /etc/cdi is the other place
        lab.must("mount", "-t", "tmpfs", "cdi", "/run/cdi")
        with open("/run/cdi/nvidia.json", "w") as file:
            json.dump({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}, file)
        super().start()

    def tearDown(self):
        super().tearDown()
        lab.must("umount", "/run/cdi")

    def test(self):
        self.accepted("cards", "cd /dev; echo nvidia*; cd /opt; echo lib*; test -c /dev/nvidia* || exit 3; exec sleep 88888",
                      role={"replicas": 2, "resources": {"gpus": 1}})
        seen = []
        for task in "worker-0", "worker-1":
            self.wait_task("cards", task, state="Running")
            until(lambda: "lib" in self.logs("cards", task), lambda: "the devices of %s; it says %s" % (task, self.logs("cards", task)))
            seen.append(self.logs("cards", task).split())
        self.assertEqual(sorted(seen), [["nvidia0", "libgpu0"], ["nvidia1", "libgpu1"]])


class WithoutEngine(lab.OfAda):
    agent_options = ("--set", "tasks.imageEngine=none")

    def test(self):
        done = self.begin("nowhere", "true")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no host of the cluster has podman or enroot to run image %s in" % lab.IMAGE, done.stderr)
        self.assertIn("tasks.imageFallback: host", done.stderr)


if __name__ == "__main__":
    lab.begin()
    if shutil.which("enroot") is None:
        print("There is no enroot here: no InEnroot.", file=sys.stderr)
        del InEnroot
    harness.main()
