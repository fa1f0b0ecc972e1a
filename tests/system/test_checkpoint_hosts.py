"""Checkpoints of a job on several hosts: it goes on elsewhere from the newest that any host has.

Agents on one machine share a disk. Where each is to have its own, it runs in a mount namespace of its own, in which its directory is
mounted over the one that the job names: the same path, other files. That needs root.
"""
import hashlib
import io
import json
import os
import shutil
import signal
import struct
import unittest
import zipfile

import test_hosts
from harness import until

# Says what it was given to go on from, as it finds it on its host.
COMMAND = ["sh", "-c", 'echo "$DTRAIN_GENERATION $DTRAIN_ROLE-$DTRAIN_INDEX $DTRAIN_NODE '
           '$(test -z "$DTRAIN_RESTORE_FROM" || cat "$DTRAIN_RESTORE_FROM/weights.bin")" >> "$0"; exec sleep 1000']
OWN = 'mount --bind "$0" "$1" && shift && exec "$@"'


class CheckpointHosts(test_hosts.Hosts):
    own = True          # a directory for each host
    restore_wait = "60s"

    def make(self, *arguments, **options):
        member = super().make(*arguments, **options)
        member.options = ["--set", "timing.lease=3s", "--set", "timing.downGrace=1s", "--set", "timing.agentGrace=5s",
                          "--set", "timing.restoreWait=" + self.restore_wait]
        os.makedirs(self.path("ckpt"), exist_ok=True)
        if self.own:
            os.makedirs(self.disk(member.name), exist_ok=True)
            command = member.command
            as_root = [] if os.geteuid() == 0 else ["sudo", "-n", "--preserve-env"]
            member.command = lambda: [*as_root, "unshare", "--mount", "--propagation", "private", "sh", "-c", OWN,
                                      self.disk(member.name), self.path("ckpt"), *command()]
        return member

    def disk(self, node):
        return self.path("disk-" + node) if self.own else self.path("ckpt")

    def submitted(self, framework="tensorflow", first="ps-0", roles={"ps": 1, "worker": 2}):
        """A parameter server and two workers, one on each host; the agents, and that of the first task."""
        agents = self.three()
        role = {"command": [*COMMAND, self.path("said")]}
        agents[0].do("submit", self.write("j.json", json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": "j"},
            "spec": {"framework": framework, "policy": {"placement": "spread"}, "checkpoint": {"dir": self.path("ckpt")},
                     "roles": {name: {"replicas": count, **role} for name, count in roles.items()}}})))
        tasks = self.running(agents[0], "j")
        self.assertEqual({t["node"] for t in tasks.values()}, {"a1", "a2", "a3"})
        return agents, next(a for a in agents if a.name == tasks[first]["node"])

    def commit(self, agents, node, step):
        """A checkpoint, as a trainer on that host writes it; returns when the ledger knows."""
        path = os.path.join(self.disk(node), "step-%d" % step)
        weights = ("weights of step %d" % step).encode()
        os.mkdir(path + ".tmp")
        with open(path + ".tmp/weights.bin", "wb") as file:
            file.write(weights)
        with open(path + ".tmp/MANIFEST.json", "w") as file:
            json.dump({"version": 1, "step": step, "files": [
                {"name": "weights.bin", "size": len(weights), "sha256": hashlib.sha256(weights).hexdigest()}]}, file)
        os.rename(path + ".tmp", path)
        asked = next(a for a in agents if a.process.poll() is None)
        until(lambda: any(c["step"] == step and c["state"] == "verified" for c in asked.ask("checkpoints", "j")),
              lambda: "step %d to be verified: %s" % (step, asked.ask("checkpoints", "j")))

    def goes_on(self, agents, lost, step, seconds=60):
        left = [a for a in agents if a is not lost]
        until(lambda: (d := left[0].ask("describe", "job", "j"))["state"] == "Running" and d["generation"] == 2,
              lambda: "generation 2 to run: %s %s" % (left[0].ask("jobs"), self.tasks_at(left[0], "j")), seconds)
        self.assertEqual(left[0].ask("describe", "job", "j")["restored"]["step"], step)
        tasks = self.running(left[0], "j")
        self.assertEqual({t["node"] for t in tasks.values()}, {a.name for a in left})
        until(lambda: self.said_by(2).keys() == tasks.keys(), lambda: "all tasks to say what they found: %s" % self.said_by(2))
        self.assertEqual(self.said_by(2), {t: "weights of step %d" % step for t in tasks}, "each finds it on its host")
        return left

    def said_by(self, wanted):
        """What the tasks of that generation have said so far."""
        with open(self.path("said")) as file:
            said = [line.split(" ", 3) for line in file.read().splitlines()]
        return {task: text for generation, task, node, text in said if generation == str(wanted)}


def torch_file(text):
    """One file as torch.save writes it, as far as its zip says: that is what is verified."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", "\x80\x02}.")
        archive.writestr("archive/data/0", text)
    return out.getvalue()


class SharesTest(CheckpointHosts):
    """Each rank writes its share of a checkpoint to its own host's disk: torch.distributed.checkpoint without a shared directory."""
    COMMAND = ["sh", "-c", 'echo "$DTRAIN_GENERATION $DTRAIN_ROLE-$DTRAIN_INDEX $DTRAIN_NODE '
               '$(test -z "$DTRAIN_RESTORE_FROM" || ls -A "$DTRAIN_RESTORE_FROM" | tr "\\n" " ")" >> "$0"; exec sleep 1000']

    def write_share(self, node, step, rank, ranks):
        path = os.path.join(self.disk(node), "step_%d" % step)
        os.makedirs(path)
        with open(os.path.join(path, "__%d_0.distcp" % rank), "wb") as file:
            file.write(torch_file("weights of rank %d in step %d" % (rank, step)))
        if rank:
            return
        names = b"(" + b"".join(b"\x8c\x0d__%d_0.distcp\x94K\1" % r for r in range(ranks)) + b"u."
        with open(os.path.join(path, ".metadata"), "wb") as file:
            file.write(b"\x80\4\x95" + struct.pack("<Q", len(names)) + names)

    def shown(self, agent, step, state):
        def found():
            return next((c for c in agent.ask("checkpoints", "j") if c["step"] == step and c["state"] == state), None)
        until(found, lambda: "step %d to be %s: %s" % (step, state, agent.ask("checkpoints", "j")))
        return found()

    def three_ranks(self):
        agents = self.three()
        agents[0].do("submit", self.write("j.json", json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": "j"},
            "spec": {"framework": "pytorch", "policy": {"placement": "spread"}, "checkpoint": {"dir": self.path("ckpt")},
                     "roles": {"worker": {"replicas": 3, "command": [*self.COMMAND, self.path("said")]}}}})))
        tasks = self.running(agents[0], "j")
        nodes = [tasks["worker-%d" % r]["node"] for r in range(3)]
        self.assertEqual(set(nodes), {"a1", "a2", "a3"})
        return agents, nodes, tasks

    def test_what_is_shown_is_true_after_a_recovery_and_a_flipped_bit(self):
        agents, nodes, tasks = self.three_ranks()
        steps = [10 * (i + 1) for i in range(6)]    # the ledger notes the names of the newest 4
        for step in steps:
            for rank, node in enumerate(nodes):
                self.write_share(node, step, rank, 3)
            self.shown(agents[0], step, "together")
        before = {c["step"]: c for c in agents[0].ask("checkpoints", "j")}
        for step in (steps[0], steps[-1]):
            path = os.path.join(self.disk(nodes[2]), "step_%d" % step, "__2_0.distcp")
            with open(path, "rb") as file:
                whole = file.read()
            with open(path, "wb") as file:
                file.write(whole.replace(b"weights of", b"Weights of"))
            shown = {c["step"]: c for c in agents[0].ask("checkpoints", "j", "--verify")}
            self.assertEqual({s for s, c in shown.items() if c["state"] != "together"}, {step})
            if shown[step]["state"] == "damaged":
                self.assertRegex(shown[step]["defect"], "host %s: .*__2_0.distcp" % nodes[2])
            else:   # the host has read it in the background meanwhile, and said so
                self.assertEqual(shown[step]["state"], "incomplete")
                damage = [e["reason"] for e in agents[0].ask("events", "j") if e["type"] == "checkpoint.damaged"]
                self.assertRegex(damage[-1], "the share on host %s is damaged: .*__2_0.distcp" % nodes[2])
            with open(path, "wb") as file:
                file.write(whole)
            self.shown(agents[0], step, "together")
        os.kill(tasks["worker-1"]["pid"], signal.SIGKILL)
        until(lambda: (d := agents[0].ask("describe", "job", "j"))["state"] == "Running" and d["generation"] == 2,
              lambda: "generation 2 to run: %s" % agents[0].ask("jobs"), 60)
        self.shown(agents[0], steps[-1], "verified")
        # Told of after all that hosts found when the generation began.
        for rank, node in enumerate(nodes):
            self.write_share(node, 100, rank, 3)
        self.shown(agents[0], 100, "together")
        after = {c["step"]: c for c in agents[0].ask("checkpoints", "j")}
        for step in steps[:-1]:
            for key in ("state", "bytes", "time", "generation"):
                self.assertEqual(after[step][key], before[step][key], (step, key))

    def test_it_goes_on_from_the_newest_that_is_whole_together(self):
        agents, nodes, tasks = self.three_ranks()
        for rank, node in enumerate(nodes):
            self.write_share(node, 100, rank, 3)
        together = self.shown(agents[0], 100, "together")
        for rank, node in enumerate(nodes):
            self.assertIn("%s has %s" % (node, "__%d_0.distcp" % rank if rank else ".metadata and 1 more"), together["defect"])
        for rank in (0, 1):     # the third died before it wrote
            self.write_share(nodes[rank], 200, rank, 3)
        self.assertIn("__2_0.distcp is missing: ", self.shown(agents[0], 200, "incomplete")["defect"])
        os.kill(tasks["worker-1"]["pid"], signal.SIGKILL)
        until(lambda: (d := agents[0].ask("describe", "job", "j"))["state"] == "Running" and d["generation"] == 2,
              lambda: "generation 2 to run: %s" % agents[0].ask("jobs"), 60)
        self.assertEqual(agents[0].ask("describe", "job", "j")["restored"]["step"], 100)
        all_of_it = ".metadata __0_0.distcp __1_0.distcp __2_0.distcp"
        until(lambda: len(self.said_by(2)) == 3, lambda: "all tasks to say what they found: %s" % self.said_by(2))
        self.assertEqual({t: s.strip() for t, s in self.said_by(2).items()}, {"worker-%d" % r: all_of_it for r in range(3)})
        self.shown(agents[0], 100, "verified")
        for rank, node in enumerate(nodes):
            self.assertEqual(sorted(os.listdir(self.disk(node))), ["step_100"] + (["step_200.quarantined-1"] if rank < 2 else []))


class SharedDirectoryTest(CheckpointHosts):
    own = False

    def test_it_goes_on_elsewhere_from_the_newest(self):
        agents, lost = self.submitted()
        self.commit(agents, lost.name, 100)
        self.kill_host(lost)
        left = self.goes_on(agents, lost, 100)
        self.assertEqual(os.listdir(self.path("ckpt")), ["step-100"])
        self.assertNotIn("checkpoint.copied", left[0].log() + left[1].log())


class OwnDirectoriesTest(CheckpointHosts):
    def test_a_host_that_lacks_it_gets_a_copy(self):
        agents, lost = self.submitted()
        kept, other = [a for a in agents if a is not lost]
        self.commit(agents, kept.name, 100)
        self.assertEqual(os.listdir(self.disk(other.name)), [])
        self.kill_host(lost)
        self.goes_on(agents, lost, 100)
        self.assertEqual(sorted(os.listdir(self.disk(other.name) + "/step-100")), ["MANIFEST.json", "weights.bin"])
        self.assertEqual(os.listdir(self.disk(other.name)), ["step-100"], "nothing else is left")
        self.assertIn("event=checkpoint.copied", other.log())


class RestoreWaitTest(CheckpointHosts):
    restore_wait = "8s"

    def test_the_next_older_after_the_wait_and_the_steps_are_named(self):
        agents, lost = self.submitted()
        kept = next(a for a in agents if a is not lost)
        self.commit(agents, kept.name, 100)
        self.commit(agents, lost.name, 200)
        self.kill_host(lost)
        until(lambda: "its newest checkpoint, of step 200, is on %s" % lost.name in kept.ask("jobs")[0]["reason"],
              lambda: "that it waits: %s" % kept.ask("jobs"))
        self.goes_on(agents, lost, 100)
        reasons = [json.loads(line)["reason"] for line in kept.do("-o", "json", "events", "j").splitlines()]
        self.assertTrue(any("steps 101 to 200 are given up: they are on " + lost.name in r for r in reasons), reasons)

    def test_the_host_of_rank_0_is_lost_with_its_disk(self):
        """The newest checkpoint went with it; one of the other ranks' hosts has the one before, which goes to the third, too."""
        agents, lost = self.submitted("pytorch", "worker-0", {"worker": 3})
        kept = next(a for a in agents if a is not lost)
        self.commit(agents, kept.name, 100)
        self.commit(agents, lost.name, 200)
        self.kill_host(lost)
        shutil.rmtree(self.disk(lost.name))
        self.goes_on(agents, lost, 100)


if __name__ == "__main__":
    unittest.main()
