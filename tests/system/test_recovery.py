"""A ps or chief dies: halt, the newest checkpoint that verifies, a new generation at new addresses."""
import hashlib
import json
import os
import unittest

from harness import SLEEP, SystemTest, alive, main, sh, until

POLICY = {"restartBackoff": "0s", "failureThreshold": {"count": 0}}


# What Hugging Face's Trainer does with resume_from_checkpoint=True: the directory with the largest number is the newest, whole or not.
# In the steps that are named on the command line the save is broken off, once each, after the file that is named.
# Generation 2 dies before it saves.
TRAINER = """
import json, os, re, struct, sys
directory, last = sys.argv[1], 5
dies = dict(a.split(":") for a in sys.argv[2:])
numbers = [int(n[11:]) for n in os.listdir(directory) if re.fullmatch(r"checkpoint-\\d+", n)]
step = 0
if numbers:
    with open("%s/checkpoint-%d/trainer_state.json" % (directory, max(numbers))) as file:
        step = json.load(file)["global_step"]
header = json.dumps({"w": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}).encode()
files = {"config.json": b"{}", "model.safetensors": struct.pack("<Q", len(header)) + header + b"abcd", "training_args.bin": b"arguments"}
if os.environ["DTRAIN_GENERATION"] == "2":
    os.kill(os.getpid(), 9)
while step < last:
    step += 1
    path = "%s/checkpoint-%d" % (directory, step)
    os.mkdir(path)
    for name, content in dict(files, **{"trainer_state.json": json.dumps({"global_step": step}).encode()}).items():
        with open(path + "/" + name, "wb") as file:
            file.write(content)
        mark = "%s/../died-%d" % (directory, step)
        if dies.get(str(step)) == name and not os.path.exists(mark):
            open(mark, "w").close()
            os.kill(os.getpid(), 9)
"""


class Recovery(SystemTest):
    def start(self):
        super().start()
        self.checkpoints = self.path("checkpoints")
        os.mkdir(self.checkpoints)

    def checkpoint(self, step, content="parameters"):
        """Commits a checkpoint as a trainer does, and waits until the agent has seen it."""
        directory = os.path.join(self.checkpoints, "ckpt-%d" % step)
        os.mkdir(directory + ".tmp")
        data = ("%s of step %d\n" % (content, step)).encode() * 100
        with open(os.path.join(directory + ".tmp", "shard-0"), "wb") as file:
            file.write(data)
        manifest = {"version": 1, "step": step,
                    "files": [{"name": "shard-0", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}]}
        with open(os.path.join(directory + ".tmp", "MANIFEST.json"), "w") as file:
            json.dump(manifest, file)
        os.rename(directory + ".tmp", directory)
        until(lambda: any(c["step"] == step for c in self.agent.ask("checkpoints", "a")), "the agent to see step %d" % step)
        return directory

    def submit_training(self, **policy):
        """ps, chief and workers that only note what they were told, and wait."""
        note = ('echo "$DTRAIN_GENERATION ${DTRAIN_RESTORE_FROM:-scratch} ${DTRAIN_RESTORE_STEP:-none}" >> %s.$DTRAIN_TASK; '
                'exec sleep 1000000' % self.path("told"))
        self.submit("a", {"ps": {"replicas": 2, "command": sh(note)}, "chief": {"replicas": 1, "command": sh(note)},
                          "worker": {"replicas": 2, "command": sh(note)}},
                    framework="tensorflow", checkpoint={"dir": self.checkpoints}, policy=dict(POLICY, **policy))
        self.wait_job("a", "Running")

    def generation(self, number):
        """Waits until all of the generation runs; returns its tasks."""
        until(lambda: self.job("a")["generation"] == number and self.job("a")["state"] == "Running",
              lambda: "generation %d to run: %s" % (number, self.job("a")))
        tasks = self.tasks("a")
        until(lambda: all(self.lines("told." + task) and self.lines("told." + task)[-1].startswith("%d " % number) for task in tasks),
              "every task's note of generation %d" % number)
        return tasks

    def told(self, task="worker-0"):
        return self.lines("told." + task)[-1].split()[1:]

    def types(self):
        return self.event_types("a")

    def test_ps_killed(self):
        self.submit_training()
        before = self.generation(1)
        self.checkpoint(100)
        newest = self.checkpoint(200)
        self.kill_task("a", "ps-0")
        after = self.generation(2)
        for task in after:
            self.assertEqual(self.told(task), [newest, "200"], task)
        self.assertFalse({t["address"] for t in before.values()} & {t["address"] for t in after.values()}, "an old address is used again")
        self.assertFalse(any(alive(task["pid"]) for task in before.values()), "a task of the old generation runs on")
        self.assertEqual({task["attempt"] for task in after.values()}, {2})
        self.assertEqual(self.job("a")["restarts"], 1)
        self.assertEqual(self.agent.ask("describe", "job", "a")["restored"], {"path": newest, "step": 200})
        types = self.types()
        self.assertLess(types.index("job.recovering"), types.index("checkpoint.restored"))
        self.assertEqual(types.count("checkpoint.restored"), 1)

    def test_run_says_what_it_goes_on_from(self):
        self.submit_training()
        self.generation(1)
        newest = self.checkpoint(200)
        self.agent.do("delete", "a", "--force")
        done = self.agent.ctl("run", self.job_file("b", {"worker": {"replicas": 1, "command": ["true"]}}, framework="tensorflow",
                                                   checkpoint={"dir": self.checkpoints}))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("job b: restored step 200 from " + newest, done.stderr.splitlines())

    def test_chief_killed(self):
        self.submit_training()
        self.generation(1)
        newest = self.checkpoint(5)
        self.kill_task("a", "chief-0")
        self.generation(2)
        self.assertEqual(self.told("ps-1"), [newest, "5"])

    def test_worker_needs_none(self):
        self.submit_training()
        self.generation(1)
        self.checkpoint(5)
        self.kill_task("a", "worker-1")
        self.wait_task("a", "worker-1", attempt=2, state="Running")
        until(lambda: len(self.lines("told.worker-1")) == 2, "the worker's second note")
        self.assertEqual(self.told("worker-1"), ["scratch", "none"])
        self.assertEqual(self.job("a")["generation"], 1)

    def test_none_yet(self):
        self.submit_training()
        self.generation(1)
        self.kill_task("a", "ps-1")
        self.generation(2)
        self.assertEqual(self.told(), ["scratch", "none"])
        self.assertIsNone(self.agent.ask("describe", "job", "a")["restored"])

    def test_newest_damaged(self):
        """Truncated, or one bit flipped: the one before is taken, an event says so, the damaged one is set aside."""
        self.submit_training()
        self.generation(1)
        good, flipped, cut = self.checkpoint(1), self.checkpoint(2), self.checkpoint(3)
        with open(os.path.join(flipped, "shard-0"), "r+b") as file:
            file.seek(17)
            byte = file.read(1)[0]
            file.seek(17)
            file.write(bytes([byte ^ 1]))
        os.truncate(os.path.join(cut, "shard-0"), 100)
        self.kill_task("a", "ps-0")
        self.generation(2)
        self.assertEqual(self.told(), [good, "1"])
        damaged = [event for event in self.events("a") if event["type"] == "checkpoint.damaged"]
        self.assertGreaterEqual(len(damaged), 2)
        self.assertTrue(any("ckpt-3" in event["message"] for event in damaged))
        self.assertFalse(os.path.exists(cut))
        self.assertFalse(os.path.exists(flipped))
        kept = [name for name in os.listdir(self.checkpoints) if "ckpt-3" in name or "ckpt-2" in name]
        self.assertEqual(len(kept), 2, "quarantined, not deleted: %s" % os.listdir(self.checkpoints))

    def test_all_lost_waits_for_a_person(self):
        self.submit_training()
        self.generation(1)
        only = self.checkpoint(7)
        until(lambda: [c["state"] for c in self.agent.ask("checkpoints", "a", "--verify")] == ["verified"], "a verified checkpoint")
        os.truncate(os.path.join(only, "shard-0"), 3)
        self.kill_task("a", "ps-0")
        until(lambda: "from-scratch" in self.agent.ask("describe", "job", "a")["waiting_for"], "the job to say what it waits for")
        self.assertNotEqual(self.job("a")["state"], "Running")
        self.agent.do("restart", "a", "--from-scratch")
        until(lambda: self.job("a")["state"] == "Running", "the job from scratch")
        until(lambda: self.told("ps-0") == ["scratch", "none"] and len(self.lines("told.ps-0")) == 2, "a ps from scratch")

    def test_no_progress_takes_an_older_one(self):
        self.submit_training()
        self.generation(1)
        older, newer = self.checkpoint(10), self.checkpoint(20)
        for generation, expected in ((2, newer), (3, newer), (4, older)):
            self.kill_task("a", "ps-0")
            self.generation(generation)
            self.assertEqual(self.told()[0], expected, "generation %d" % generation)

    def test_lineage(self):
        """What a stale branch wrote beyond the point of its successor never comes back, however large its step."""
        self.submit_training()
        self.generation(1)
        self.checkpoint(10)
        beyond = self.checkpoint(30)
        os.truncate(os.path.join(beyond, "shard-0"), 1)
        self.kill_task("a", "ps-0")
        self.generation(2)
        newer = self.checkpoint(20)
        self.kill_task("a", "ps-0")
        self.generation(3)
        self.assertEqual(self.told(), [newer, "20"])

    def test_unfinished_is_ignored(self):
        self.submit_training()
        self.generation(1)
        good = self.checkpoint(1)
        os.mkdir(os.path.join(self.checkpoints, "ckpt-9.tmp"))
        os.mkdir(os.path.join(self.checkpoints, "ckpt-8"))      # no manifest
        self.kill_task("a", "ps-0")
        self.generation(2)
        self.assertEqual(self.told(), [good, "1"])
        self.assertTrue(os.path.isdir(os.path.join(self.checkpoints, "ckpt-9.tmp")))

    def train(self, name, *deaths, restarts=3, **checkpoint):
        script = self.path("trainer.py")
        with open(script, "w") as file:
            file.write(TRAINER)
        self.submit(name, {"worker": {"replicas": 1, "command": ["/usr/bin/python3", script, self.checkpoints, *deaths]}},
                    framework="pytorch", checkpoint=dict(checkpoint, dir=self.checkpoints), policy=dict(POLICY, backoffLimit=restarts))

    def test_a_save_of_the_trainer_that_was_broken_off_is_moved_away(self):
        self.train("a", "1:training_args.bin", "3:config.json")
        self.wait_job("a", "Succeeded")
        self.assertEqual(self.job("a")["restarts"], 3)
        self.assertEqual(set(os.listdir(self.checkpoints)), {"checkpoint-%d" % n for n in range(1, 6)} |
                         {"quarantined-1.checkpoint-%d" % n for n in (1, 3)})
        damaged = [event["reason"] for event in self.events("a") if event["type"] == "checkpoint.damaged"]
        self.assertEqual(damaged, 2 * ["trainer_state.json is missing: it is not finished"])

    def test_a_first_save_that_may_be_the_trainers_is_said(self):
        """It stays, since nothing says whose it is, and the job fails on it. What the event advises helps."""
        self.train("a", "1:config.json", restarts=2)
        self.wait_job("a", "Failed")
        self.assertEqual(os.listdir(self.checkpoints), ["checkpoint-1"])
        said = [event["reason"] for event in self.events("a") if event["type"] == "checkpoint.unrecognised"]
        self.assertEqual(len(said), 1, said)
        self.assertTrue(said[0].startswith("checkpoint-1 in %s has no trainer_state.json: " % self.checkpoints), said)
        self.assertIn("set checkpoint.format: huggingface, or remove it", self.agent.do("describe", "job", "a"))
        self.train("b", format="huggingface")
        self.wait_job("b", "Succeeded")
        self.assertIn("quarantined-1.checkpoint-1", os.listdir(self.checkpoints))
        os.remove(os.path.join(self.checkpoints, "checkpoint-5/trainer_state.json"))
        verified = self.agent.ctl("-o", "json", "verify", self.checkpoints)
        self.assertEqual(verified.returncode, 5)
        self.assertEqual([(c["state"], c["defect"]) for c in json.loads(verified.stdout)],
                         [("incomplete", "trainer_state.json is missing: it is not finished")] + 4 * [("verified", "")])

    def test_restore_never(self):
        note = sh('echo "${DTRAIN_RESTORE_FROM:-scratch}" >> %s; exec sleep 1000000' % self.path("told"))
        self.submit("a", {"ps": {"replicas": 1, "command": note}, "worker": {"replicas": 1, "command": SLEEP}}, framework="tensorflow",
                    checkpoint={"dir": self.checkpoints, "restore": "never"}, policy=POLICY)
        self.wait_job("a", "Running")
        self.checkpoint(1)
        self.kill_task("a", "ps-0")
        until(lambda: self.lines("told") == ["scratch", "scratch"], "two starts from scratch")

    def test_backoff_limit_counts_recoveries(self):
        self.submit_training(backoffLimit=2)
        self.generation(1)
        self.kill_task("a", "ps-0")
        self.generation(2)
        self.assertEqual(self.job("a")["restarts"], 1)
        for _ in range(2):
            if self.job("a")["state"] != "Failed":
                self.kill_task("a", "ps-0")
                until(lambda: self.job("a")["state"] == "Failed" or self.job("a")["generation"] == 3, "the consequence")
        self.wait_job("a", "Failed")

    def test_agent_killed_in_a_recovery(self):
        self.submit_training()
        self.generation(1)
        newest = self.checkpoint(4)
        for number in range(6):
            self.kill_task("a", "ps-%d" % (number % 2))
            self.agent.end()
            self.agent.start()
            self.generation(number + 2)
            newest = self.checkpoint(5 + number)                # progress, so that the newest stays the right one
        self.assertEqual(self.job("a")["restarts"], 6)
        self.assertTrue(newest)


if __name__ == "__main__":
    main()
