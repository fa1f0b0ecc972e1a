"""Packages on other hosts: three agents, a package handed in at one, tasks on all, and sources that go while they are read.

In namespaces of its own: links are cut here.
"""
import hashlib
import os
import subprocess
import unittest

import agents_lab
import test_relay
from harness import PATIENCE, until

AT_MOST = 400                   # seconds for all tests
BIG = 96 << 20                  # bytes of a package whose way takes a while
BEGUN = 1 << 20                 # bytes by which a fetch is under way
CHECK = """
import hashlib, os, time
digest = hashlib.sha256(open("data", "rb").read()).hexdigest()
print(digest, flush=True)
if digest == os.environ["WANTED"]: time.sleep(1e6)
"""


class PackagesTest(test_relay.Cuttable):
    def package(self, size):
        """Its spec, for a job whose tasks check what they find in it and then stay."""
        self.write("package/check.py", CHECK)
        data = hashlib.shake_128(b"data").digest(1 << 20) * (size >> 20) or b"little"
        with open(self.path("package", "data"), "wb") as file:
            file.write(data)
        return {"package": self.path("package"), "env": {"WANTED": hashlib.sha256(data).hexdigest()}}

    def checked(self, name, workers, size):
        return self.spread(name, workers, ["/usr/bin/python3", "-u", "check.py"], **self.package(size))

    def blobs(self, agent):
        """Name -> (inode, bytes): whole ones under their digests, those on their way as .upload-*."""
        found = {}
        directory = os.path.join(agent.data, "blobs")
        for name in os.listdir(directory):
            try:
                info = os.stat(os.path.join(directory, name))
            except FileNotFoundError:
                continue
            found[name] = (info.st_ino, info.st_size)
        return found

    def whole(self, agent):
        return {name for name in self.blobs(agent) if not name.startswith(".")}

    def partial(self, agent):
        return next((blob for name, blob in self.blobs(agent).items() if name.startswith(".upload")), None)

    def test_submitted_at_one_it_runs_on_all(self):
        agents = self.three()
        agents[1].do("submit", self.checked("wide", 3, 3 << 20))
        tasks = self.running(agents[0], "wide")
        self.assertEqual({t["node"] for t in tasks.values()}, {"a1", "a2", "a3"})
        for agent in agents:
            self.assertEqual(self.whole(agent), self.whole(agents[1]))

    def test_the_source_is_killed_once_the_job_is_acknowledged(self):
        agents = self.three()
        agents[0].do("submit", self.checked("left", 3, 3 << 20))
        self.kill_host(agents[0])
        def on_the_others():
            tasks = self.tasks_at(agents[1], "left")
            return len(tasks) == 3 and all(t["state"] == "Running" and t["node"] != "a1" for t in tasks.values())
        until(on_the_others, lambda: "its tasks on a2 and a3; seen: %s" % self.tasks_at(agents[1], "left"), 2 * PATIENCE)
        self.assertEqual(self.whole(agents[1]), self.whole(agents[2]))

    def test_a_cut_link_is_gone_on_with(self):
        agents = self.three()
        submit = subprocess.Popen(agents[0].ctl_command("submit", self.checked("cut", 3, BIG)), stdout=subprocess.PIPE)
        self.addCleanup(lambda: (submit.poll() is None and submit.kill(), submit.communicate()))
        until(lambda: (p := self.partial(agents[2])) and p[1] > BEGUN, "the way of the package")
        before = self.partial(agents[2])
        with self.briefly_away(agents[2]):
            during = self.partial(agents[2])
        self.assertIsNotNone(before, "it was there before the cut: a larger one is needed")
        self.assertIsNotNone(during, "it was there before the cut: a larger one is needed")
        self.assertEqual(during[0], before[0])
        self.running(agents[0], "cut")
        # On a slow machine its tasks may run before that, on the two others.
        until(lambda: self.whole(agents[2]) == self.whole(agents[0]), lambda: "the package: %s" % self.blobs(agents[2]), 2 * PATIENCE)
        self.assertEqual(self.blobs(agents[2])[next(iter(self.whole(agents[0])))][0], before[0], "begun anew")
        self.assertEqual(submit.wait(PATIENCE), 0)
        self.assertNotIn("package.damaged", agents[2].log())

    def test_a_source_that_dies_is_gone_on_from_by_another(self):
        agents = self.three()
        blocked = self.away(agents[2])
        with blocked:
            until(lambda: agents[0].states()["a3"] == "dead", "its absence", 60)
            agents[0].do("submit", self.checked("two", 3, BIG))
            self.assertEqual(self.whole(agents[1]), self.whole(agents[0]))
        until(lambda: (p := self.partial(agents[2])) and p[1] > BEGUN, "the way of the package", 60)
        inode = self.partial(agents[2])[0]
        self.kill_host(agents[0])
        until(lambda: self.whole(agents[2]) == self.whole(agents[1]), "the package", 2 * PATIENCE)
        self.assertEqual(self.blobs(agents[2])[next(iter(self.whole(agents[1])))][0], inode, "begun anew")
        self.assertRegex(agents[2].log(), r"event=package\.fetched .*from=a2")

    def test_without_a_majority_it_is_not_acknowledged(self):
        agents = self.three()
        job = self.checked("lone", 1, 3 << 20)
        for agent in agents[1:]:
            self.kill_host(agent)
        until(lambda: agents[0].states() == {"a1": "alive", "a2": "dead", "a3": "dead"} or
              set(agents[0].states().values()) == {"alive", "down"}, "their absence", 60)
        refused = agents[0].ctl("submit", job)
        self.assertNotEqual(refused.returncode, 0)
        self.assertRegex(refused.stderr, r"could not submit job: its package is on 1 of 3 voters, and is to be on 2: host a[23] is ")


if __name__ == "__main__":
    agents_lab.enter(AT_MOST)
    unittest.main(verbosity=2)
