"""Images that are fetched: what a person sees of a pull, how an image may be named, and what is told where it cannot be had. The registry
is on this host. And images that are not as usual.
"""
import hashlib
import os
import re
import shutil
import sys

import harness
import images_lab as lab
from harness import until
from registry import Registry


def push(directory):
    """An image whose layer the user does not have."""
    with open(os.path.join(lab.TOP, "root/opt/inside/of-far"), "wb") as file:
        file.write(os.urandom(1 << 20))
    lab.must("tar", "-C", os.path.join(lab.TOP, "root"), "-cf", os.path.join(lab.TOP, "far.tar"), ".")
    for what in (("import", os.path.join(lab.TOP, "far.tar"), "localhost/far"),
                 ("push", "--format=oci", "localhost/far", "dir:" + directory), ("rmi", "localhost/far")):
        lab.must(*lab.as_ada("podman", "--cgroup-manager=cgroupfs", *what))


class Pulls(lab.OfAda):
    login = "podman login"

    def start(self):
        super().start()
        self.pushed = os.path.join(lab.HOME, "pushed")
        if not os.path.exists(self.pushed):
            push(self.pushed)
        self.registry = Registry(self.pushed)
        self.addCleanup(self.registry.server_close)
        self.addCleanup(self.registry.shutdown)
        self.image = "127.0.0.1:%d/far" % self.registry.server_port
        settings = os.path.join(lab.HOME, ".config/containers/registries.conf")
        os.makedirs(os.path.dirname(settings), exist_ok=True)
        with open(settings, "w") as file:
            file.write('[[registry]]\nlocation = "127.0.0.1:%d"\ninsecure = true\n' % self.registry.server_port)

    def open(self):
        self.registry.open.set()
        self.registry.rest.set()

    def test_an_image_is_pulled_once_and_then_needs_no_network(self):
        self.accepted("far", "echo here", image=self.image, role={"replicas": 2})
        self.wait_task("far", "worker-0", reason="pulls image " + self.image)
        self.registry.open.set()
        told = "pulls image %s: [0-9.]+ [KM]iB fetched in [0-9]+ s" % re.escape(self.image)
        until(lambda: re.fullmatch(told, self.tasks("far")["worker-1"]["reason"]), "how far the pull is")
        self.registry.rest.set()
        self.wait_job("far", "Succeeded")
        asked = self.registry.asked
        self.accepted("near", "echo here", image=self.image)
        self.wait_job("near", "Succeeded")
        self.assertEqual(self.registry.asked, asked)

    def test_it_may_be_named_by_tag_or_digest(self):
        self.open()
        with open(os.path.join(self.pushed, "manifest.json"), "rb") as file:
            digest = "@sha256:" + hashlib.sha256(file.read()).hexdigest()
        for job, name in ("tag", ":1.2"), ("digest", digest), ("both", ":1.2" + digest):
            self.accepted(job, "echo $DTRAIN_IMAGE", image=self.image + name)
            self.wait_job(job, "Succeeded")
            self.assertEqual(self.logs(job, "worker-0").strip(), self.image + name)

    def test_one_that_cannot_be_had_says_what_to_do(self):
        self.open()
        for job, name, what in ("lost", "/nosuch:1", "correct its name"), ("locked", "/private:1", self.login):
            self.accepted(job, "true", image=self.image + name)
            self.wait_job(job, "Failed")
            reason = self.job(job)["reason"]
            self.assertIn("image %s cannot be pulled on host n1: " % (self.image + name), reason)
            self.assertIn(what, reason)


class Unusual(lab.OfAda):
    """What an image says of its program, user and places is not asked; and what it may lack."""

    def made(self, name, files, *changes):
        """An image with these files alone, of a name and a content each."""
        top = self.path(name)
        for path, content in files.items():
            os.makedirs(os.path.dirname(os.path.join(top, path)), exist_ok=True)
            with open(os.path.join(top, path), "wb") as file:
                file.write(content)
            os.chmod(file.name, 0o755)
        os.chmod(top, 0o755)
        lab.must("tar", "-C", top, "-cf", top + ".tar", ".")
        os.chmod(top + ".tar", 0o644)
        lab.must(*lab.as_ada("podman", "--cgroup-manager=cgroupfs", "import", *(w for c in changes for w in ("--change", c)), top + ".tar",
                             "localhost/" + name))
        return "localhost/" + name

    def test_its_entry_point_user_and_directories_are_not_asked(self):
        with open(shutil.which("busybox"), "rb") as file:
            busybox = file.read()
        image = self.made("opinions", {"bin/busybox": busybox, "data/x": b"", "opt/x": b""}, 'ENTRYPOINT ["/bin/busybox", "false"]',
                          'CMD ["false"]', "USER 4711", "WORKDIR /opt", "VOLUME /data", "ENV HOME=/opt")
        script = "id -u; pwd; echo $HOME; touch /new || echo read-only; touch here; exec sleep 99999"
        run = {"command": ["/bin/busybox", "sh", "-c", script]}
        self.accepted("opinions", "", image=image, role=run)
        until(lambda: self.logs("opinions", "worker-0").count("\n") >= 4, "its words")
        out = [line for line in self.logs("opinions", "worker-0").splitlines() if "touch:" not in line]
        self.assertEqual((out[0], out[1], out[3]), (str(lab.UID), out[2], "read-only"))
        self.assertTrue(out[1].startswith(self.agent.data), out)
        self.kill_task("opinions", "worker-0")
        until(lambda: self.logs("opinions", "worker-0", "--attempt", "2"), "the next attempt in its container")
        self.assertEqual(self.ada("cancel", "opinions").returncode, 0)
        self.wait_job("opinions", "Cancelled")
        until(lambda: lab.run(*lab.as_ada("podman", "volume", "ls", "--quiet")).stdout == "", "the end of its volumes")

    def test_one_for_another_architecture_says_so(self):
        with open(shutil.which("busybox"), "rb") as file:
            busybox = bytearray(file.read())
        busybox[18:20] = (243).to_bytes(2, "little")        # RISC-V
        image = self.made("foreign", {"bin/sh": bytes(busybox)})
        self.accepted("foreign", "true", image=image, role={"restartPolicy": "Never"})
        self.wait_job("foreign", "Failed")
        self.assertIn("Exec format error", self.logs("foreign", "worker-0"))
        self.assertIn("Exec format error", self.ada("describe", "job", "foreign").stdout)

    def test_one_without_a_shell_runs_its_program(self):
        with open(shutil.which("busybox"), "rb") as file:
            image = self.made("bare", {"bin/busybox": file.read()})
        self.accepted("bare", "", image=image, role={"command": ["/bin/busybox", "echo", "bare"]})
        self.wait_job("bare", "Succeeded")
        self.assertEqual(self.logs("bare", "worker-0").strip(), "bare")
        self.accepted("shell", "true", image=image, role={"restartPolicy": "Never"})
        self.wait_job("shell", "Failed")
        self.assertIn("No such file or directory", self.logs("shell", "worker-0"))


class PullsOfEnroot(lab.InEnroot, Pulls):
    login = ".config/enroot/.credentials"


if __name__ == "__main__":
    lab.begin()
    if shutil.which("enroot") is None:
        print("There is no enroot here: no PullsOfEnroot.", file=sys.stderr)
        del PullsOfEnroot
    harness.main()
