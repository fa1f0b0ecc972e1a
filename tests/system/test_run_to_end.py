"""Jobs come to their end, and the end is the right one: who decides success, who is ended, what `run` answers."""
import json
import os
import pwd
import re
import unittest

from harness import SLEEP, SOURCE, SystemTest, alive, main, python, sh, until


class RunToEnd(SystemTest):
    def test_generic_needs_every_task(self):
        self.submit("a", {"worker": {"replicas": 3, "command": sh("echo $DTRAIN_INDEX >> %s; exit 0" % self.path("ran"))}})
        job = self.wait_job("a", "Succeeded")
        self.assertEqual(sorted(self.lines("ran")), ["0", "1", "2"])
        self.assertEqual(job["roles"]["worker"]["succeeded"], 3)
        self.assertEqual(job["restarts"], 0)
        self.assertEqual({task["exit"]["code"] for task in self.tasks("a").values()}, {0})

    def test_chief_decides_and_the_others_are_ended(self):
        self.submit("a", {"ps": {"replicas": 2, "command": SLEEP},
                          "chief": {"replicas": 1, "command": sh("while [ ! -e %s ]; do sleep 0.02; done" % self.path("go"))},
                          "worker": {"replicas": 2, "command": SLEEP}}, framework="tensorflow")
        self.wait_job("a", "Running")
        pids = [task["pid"] for task in self.tasks("a").values()]
        self.write("go", "")
        self.wait_job("a", "Succeeded")
        until(lambda: not any(alive(pid) for pid in pids), "the end of every task")
        until(lambda: all(task["state"] in ("Succeeded", "Failed", "Lost") for task in self.tasks("a").values()),
              lambda: "final task states: %s" % self.tasks("a"))
        self.assertEqual(self.tasks("a")["chief-0"]["state"], "Succeeded")

    def test_clean_pod_policy_none_leaves_tasks(self):
        chief = sh("while [ ! -e %s ]; do sleep 0.02; done" % self.path("go"))
        self.submit("a", {"chief": {"replicas": 1, "command": chief}, "worker": {"replicas": 1, "command": SLEEP}},
                    framework="tensorflow", policy={"cleanPodPolicy": "None"})
        self.wait_job("a", "Running")
        self.write("go", "")
        self.wait_job("a", "Succeeded")
        worker = self.tasks("a")["worker-0"]
        self.assertEqual(worker["state"], "Running")
        self.assertTrue(alive(worker["pid"]))
        self.agent.do("delete", "a", "--force")
        until(lambda: not alive(worker["pid"]), "the end of what the job left")

    def test_worker_0_decides_without_a_chief(self):
        self.submit("a", {"ps": {"replicas": 1, "command": SLEEP},
                          "worker": {"replicas": 2, "command": sh("[ $DTRAIN_INDEX = 0 ] || exec sleep 1000000")}},
                    framework="tensorflow")
        self.wait_job("a", "Succeeded")

    def test_all_workers_policy(self):
        wait = 'while [ ! -e %s ]; do sleep 0.02; done' % self.path("go")
        self.submit("a", {"ps": {"replicas": 1, "command": SLEEP},
                          "worker": {"replicas": 2, "command": sh("[ $DTRAIN_INDEX = 0 ] || %s" % wait)}},
                    framework="tensorflow", policy={"successPolicy": "AllWorkers"})
        self.wait_task("a", "worker-0", state="Succeeded")
        self.assertNotEqual(self.job("a")["state"], "Succeeded")
        self.write("go", "")
        self.wait_job("a", "Succeeded")

    def test_ps_that_exits_0_starts_no_recovery(self):
        wait = 'while [ ! -e %s ]; do sleep 0.02; done' % self.path("go")
        self.submit("a", {"ps": {"replicas": 2, "command": sh("[ $DTRAIN_INDEX = 1 ] || exec sleep 1000000")},
                          "chief": {"replicas": 1, "command": sh(wait)}}, framework="tensorflow")
        self.wait_task("a", "ps-1", state="Succeeded")
        self.write("go", "")
        job = self.wait_job("a", "Succeeded")
        self.assertEqual((job["generation"], job["restarts"]), (1, 0))

    def test_a_failure_without_a_restart_fails_the_job(self):
        self.submit("a", {"worker": {"replicas": 2, "restartPolicy": "Never",
                                     "command": sh("[ $DTRAIN_INDEX = 1 ] && { echo broken pipe >&2; exit 3; }; exec sleep 1000000")}})
        job = self.wait_job("a", "Failed")
        self.assertIn("worker-1", job["reason"])
        described = self.agent.ask("describe", "job", "a")
        self.assertEqual(described["first_fault"]["task"], "worker-1")
        self.assertEqual(described["first_fault"]["exit"]["code"], 3)
        self.assertIn("broken pipe", described["first_fault"]["stderr_tail"])
        self.assertEqual(self.tasks("a")["worker-1"]["exit"]["code"], 3)

    def test_run_follows_to_the_end(self):
        done = self.agent.ctl("run", self.job_file("good", {"worker": {"replicas": 2, "command": ["echo", "hello there"]}}))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("hello there", done.stdout)
        self.assertEqual({task["state"] for task in self.tasks("good").values()}, {"Succeeded"})
        done = self.agent.ctl("run", self.job_file("bad", {"worker": {"replicas": 1, "restartPolicy": "Never", "command": ["false"]}}))
        self.assertEqual(done.returncode, 1, done.stderr)
        done = self.agent.ctl("run", "--worker", "2", "--name", "short", "--", "true")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.job("short")["roles"]["worker"]["desired"], 2)
        package = os.path.dirname(self.write("package/words", "of the package\n"))
        done = self.agent.ctl("run", "--package", package, "--", "cat", "words")
        self.assertEqual((done.returncode, done.stdout), (0, "worker-0 | of the package\n"), done.stderr)
        done = self.agent.ctl("checkpoints", "short")
        self.assertIn("job short names no directory of checkpoints, so none are looked for; checkpoint: {dir: ", done.stderr)

    def test_tf_config(self):
        write = "printf '%%s' \"$TF_CONFIG\" > %s.$DTRAIN_TASK" % self.path("config")
        self.submit("a", {"ps": {"replicas": 2, "command": sh(write + "; exec sleep 1000000")},
                          "chief": {"replicas": 1, "command": sh(write + "; sleep 0.3")},
                          "worker": {"replicas": 2, "command": sh(write + "; exec sleep 1000000")},
                          "evaluator": {"replicas": 1, "command": sh(write + "; exec sleep 1000000")}}, framework="tensorflow")
        self.wait_job("a", "Succeeded")

        def config(task):
            with open(self.path("config." + task)) as file:
                return json.load(file)
        worker = config("worker-1")
        self.assertEqual(worker["task"], {"type": "worker", "index": 1})
        self.assertEqual(sorted(worker["cluster"]), ["chief", "ps", "worker"])
        self.assertEqual([len(worker["cluster"][role]) for role in ("chief", "ps", "worker")], [1, 2, 2])
        self.assertEqual(worker["cluster"], config("ps-0")["cluster"])
        self.assertIn("evaluator", config("evaluator-0")["cluster"])
        addresses = [address for role in worker["cluster"].values() for address in role]
        self.assertEqual(len(set(addresses)), 5)
        self.assertEqual({address.split(":")[0] for address in addresses}, {self.ip})
        self.assertTrue(all(20000 <= int(address.split(":")[1]) <= 29999 for address in addresses))

    def test_environment_directory_and_package(self):
        self.write("package/hello.txt", "from the package")
        self.write("package/sub/data", "x")
        report = python("import json, os, sys; open(%r, 'w').write(json.dumps({'env': dict(os.environ), 'cwd': os.getcwd(), "
                        "'stdin': os.readlink('/proc/self/fd/0'), 'file': open('hello.txt').read(), "
                        "'write': os.access('.', os.W_OK), 'umask': os.umask(0), 'argv': sys.argv[1:]}))" % self.path("report"))
        self.submit("a", {"worker": {"replicas": 1, "command": report + ["{task.name}", "{count:worker}", "{{count:worker}}", "{x}"]}},
                    package=self.path("package"), env={"FLAG": True, "NUMBER": 3, "WHO": "{task.index}"})
        self.wait_job("a", "Succeeded")
        with open(self.path("report")) as file:
            seen = json.load(file)
        self.assertEqual(seen["file"], "from the package")
        self.assertEqual((seen["stdin"], seen["write"], seen["umask"]), ("/dev/null", True, 0o022))
        self.assertEqual(seen["argv"], ["worker-0", "1", "{count:worker}", "{x}"])
        expected = {"DTRAIN_JOB": "a", "DTRAIN_TASK": "worker-0", "DTRAIN_ROLE": "worker", "DTRAIN_INDEX": "0", "DTRAIN_NODE": "n1",
                    "DTRAIN_GENERATION": "1", "DTRAIN_ATTEMPT": "1", "PYTHONUNBUFFERED": "1", "FLAG": "true", "NUMBER": "3",
                    "WHO": "0", "CUDA_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}
        self.assertEqual({name: seen["env"].get(name) for name in expected}, expected)
        # The whole of it is what docs/job-file.md promises: nothing is missing, and nothing is there besides.
        with open(os.path.join(SOURCE, "docs", "job-file.md")) as file:
            section = file.read().split("## Environment of a task")[1].split("The job's")[0]
        promised = set(re.findall(r"`([A-Z][A-Z_]+)(?:=[^`]*)?`", section))
        sometimes = {"DTRAIN_CHECKPOINT_DIR", "DTRAIN_RESTORE_FROM", "DTRAIN_RESTORE_STEP", "CUDA_DEVICE_ORDER"}
        self.assertEqual(set(seen["env"]) - {"FLAG", "NUMBER", "WHO"}, promised - sometimes)
        entry = pwd.getpwuid(os.getuid())
        self.assertEqual([seen["env"][name] for name in ("HOME", "SHELL", "USER", "LOGNAME", "LANG")],
                         [entry.pw_dir, entry.pw_shell or "/bin/sh", entry.pw_name, entry.pw_name, "C.UTF-8"])
        self.assertFalse(os.path.samefile(os.path.dirname(self.path("package/x")), seen["cwd"]), "it ran in the user's own directory")

    def test_temporary_files_of_a_killed_task_go_with_the_job(self):
        leaves = python("import os, signal, tempfile; made = tempfile.mkdtemp(); open(made + '/sample', 'w').write('x'); "
                        "print(made); os.kill(os.getpid(), signal.SIGKILL)")
        self.submit("a", {"worker": {"replicas": 1, "command": leaves}}, policy={"backoffLimit": 1})
        self.wait_job("a", "Failed")
        made = self.agent.do("logs", "a", "worker-0", "--attempt", "all").split()
        self.assertEqual((len(made), len({os.path.dirname(path) for path in made})), (2, 1), "both attempts have the same TMPDIR")
        until(lambda: not os.path.exists(os.path.dirname(made[0])), "the end of %s" % os.path.dirname(made[0]))

    def test_a_package_keeps_its_times_and_is_the_same_without_them(self):
        made = self.write("package/train.py", "import os, shutil, tempfile\nprint(os.stat('train.py').st_mtime)\n"
                          "with tempfile.TemporaryDirectory() as top: shutil.make_archive(top + '/snapshot', 'zip', '.')\n")
        os.utime(made, (1_600_000_000, 1_600_000_000))
        roles = {"worker": {"command": ["/usr/bin/python3", "train.py"]}}
        self.submit("a", roles, package=self.path("package"), workDir=".", policy={"backoffLimit": 0})
        self.wait_job("a", "Succeeded")
        self.assertEqual(self.agent.do("logs", "a", "worker-0"), "1600000000.0\n")
        os.utime(made, (1_700_000_000, 1_700_000_000))      # a checkout made anew
        again = self.agent.ctl("submit", self.path("jobs/a.yaml"))
        self.assertEqual((again.returncode, "unchanged" in again.stderr + again.stdout), (0, True), again)
        self.write("package/train.py", "print('other')\n")
        self.assertEqual(self.agent.ctl("submit", self.path("jobs/a.yaml")).returncode, 5)

    def test_order_of_start(self):
        note = "date +%%s%%N >> %s.$DTRAIN_ROLE; exec sleep 1000000" % self.path("started")
        self.submit("a", {role: {"replicas": count, "command": sh(note)} for role, count in (("worker", 2), ("chief", 1), ("ps", 2))},
                    framework="tensorflow")
        self.wait_job("a", "Running")
        until(lambda: [len(self.lines("started." + role)) for role in ("ps", "chief", "worker")] == [2, 1, 2], "every task's own note")
        started = {role: [task["started_at"] for task in self.tasks("a").values() if task["role"] == role]
                   for role in ("ps", "chief", "worker")}
        self.assertLessEqual(max(started["ps"]), min(started["chief"]))
        self.assertLessEqual(max(started["chief"]), min(started["worker"]))


if __name__ == "__main__":
    main()
