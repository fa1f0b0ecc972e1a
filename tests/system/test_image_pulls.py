"""Images that are fetched: what a person sees of a pull, how an image may be named, and what is told where it cannot be had. The registry
is on this host.
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


class PullsOfEnroot(lab.InEnroot, Pulls):
    login = ".config/enroot/.credentials"


if __name__ == "__main__":
    lab.begin()
    if shutil.which("enroot") is None:
        print("There is no enroot here: no PullsOfEnroot.", file=sys.stderr)
        del PullsOfEnroot
    harness.main()
