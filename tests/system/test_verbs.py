"""Each verb of docs/contract.md: what it prints and the exit code that scripts rely on."""
import json
import os
import signal
import subprocess
import time
import unittest

from harness import PATIENCE, SLEEP, SystemTest, main, python, sh, until


class Verbs(SystemTest):
    def follow(self, *arguments):
        """A dtrainctl that streams; its output so far is in the returned list of lines."""
        process = subprocess.Popen(self.agent.ctl_command(*arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        for clean_up in (process.stdout.close, process.stderr.close, process.wait, process.kill):
            self.addCleanup(clean_up)
        return process

    def test_submit_unchanged_other_and_replace(self):
        roles = {"worker": {"replicas": 1, "command": SLEEP}}
        first = self.submit("a", roles)
        self.assertEqual((first["name"], first["generation"] >= 0), ("a", True))
        again = self.agent.ctl("submit", self.job_file("a", roles))
        self.assertEqual(again.returncode, 0)
        self.assertIn("unchanged", again.stdout + again.stderr)
        other = {"worker": {"replicas": 2, "command": SLEEP}}
        self.assertEqual(self.agent.ctl("submit", self.job_file("a", other)).returncode, 5)
        self.assertEqual(self.agent.ctl("submit", "--replace", self.job_file("a", other)).returncode, 5)    # it runs
        self.agent.do("cancel", "a")
        self.wait_job("a", "Cancelled")
        self.agent.do("submit", "--replace", self.job_file("a", other))
        until(lambda: self.job("a")["roles"]["worker"]["desired"] == 2 and self.job("a")["state"] == "Running", "the other job")

    def test_submit_from_stdin_with_set_and_param(self):
        with open(self.job_file("a", {"worker": {"replicas": 1, "command": ["echo", "${param:WORD}"]}})) as file:
            text = file.read()
        done = self.agent.ctl("submit", "-", "--set", "spec.roles.worker.replicas=3", "--param", "WORD=hello", stdin=text)
        self.assertEqual((done.returncode, done.stdout.split()[-1]), (0, "a"), done.stderr)
        self.wait_job("a", "Succeeded")
        self.assertEqual(self.agent.do("logs", "a", "worker-2"), "hello\n")

    def test_generate_name(self):
        document = {"apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"generateName": "sweep-"},
                    "spec": {"framework": "generic", "roles": {"worker": {"replicas": 1, "command": ["true"]}}}}
        path = self.write("g.yaml", json.dumps(document))
        names = {self.agent.ask("submit", path)["name"] for _ in range(3)}
        self.assertEqual(len(names), 3)
        self.assertTrue(all(name.startswith("sweep-") for name in names))

    def test_plan_starts_nothing(self):
        path = self.job_file("a", {"ps": {"replicas": 1, "command": ["x", "{hosts:worker}"]}, "worker": {"replicas": 50, "command": SLEEP}},
                             framework="tensorflow")
        done = self.agent.ctl("plan", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("50 workers", done.stdout + done.stderr)
        self.assertIn("TF_CONFIG", self.agent.ctl("-o", "json", "plan", path).stdout)
        self.assertEqual(self.agent.ctl("submit", "--dry-run", path).returncode, 0)
        self.assertEqual(self.agent.ask("jobs"), [])

    def test_cluster_spec(self):
        self.submit("a", {"ps": {"replicas": 1, "command": SLEEP}, "worker": {"replicas": 2, "command": SLEEP}}, framework="tensorflow")
        self.wait_job("a", "Running")
        self.assertIn("TF_CONFIG", self.agent.do("cluster-spec", "a", "--task", "worker-1"))
        self.assertIn(self.tasks("a")["ps-0"]["address"], self.agent.do("cluster-spec", "a"))

    def test_jobs_filters(self):
        for name, team in (("a", "x"), ("b", "y")):
            document = {"apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": name, "labels": {"team": team}},
                        "spec": {"framework": "generic", "roles": {"worker": {"replicas": 1, "command": ["true"]}}}}
            self.agent.do("submit", self.write(name + ".yaml", json.dumps(document)))
            self.wait_job(name, "Succeeded")
        names = lambda *options: [job["name"] for job in self.agent.ask("jobs", *options)]     # noqa: E731
        self.assertEqual(names("-l", "team=y"), ["b"])
        self.assertEqual(names("--state", "Running"), [])
        self.assertEqual(sorted(names("--state", "Succeeded")), ["a", "b"])
        self.assertEqual(names("--user", "nobody-here"), [])
        self.assertEqual(sorted(job["name"] for job in self.agent.ask("get", "jobs")), ["a", "b"])

    def test_wait(self):
        self.submit("a", {"worker": {"replicas": 1, "command": sh("while [ ! -e %s ]; do sleep 0.02; done" % self.path("go"))}})
        self.assertEqual(self.agent.ctl("wait", "a", "--for", "Running", "--timeout", "%ds" % PATIENCE).returncode, 0)
        self.assertEqual(self.agent.ctl("--timeout", "200ms", "wait", "a", "--for", "Succeeded").returncode, 6)
        waiting = self.follow("wait", "a", "--for", "Finished")
        self.write("go", "")
        self.assertEqual(waiting.wait(PATIENCE), 0)
        self.assertEqual(self.agent.ctl("wait", "a", "--for", "Running").returncode, 0, "it was reached in this run")
        self.assertEqual(self.agent.ctl("wait", "a", "--for", "Failed").returncode, 1)
        self.assertEqual(self.agent.ctl("wait", "nobody", "--for", "Failed").returncode, 3)
        waiting = self.follow("wait", "a", "--for", "deleted")
        time.sleep(0.1)
        self.agent.do("delete", "a")
        self.assertEqual(waiting.wait(PATIENCE), 0)

    def test_logs(self):
        program = ("echo out $DTRAIN_ATTEMPT; echo err $DTRAIN_ATTEMPT >&2; [ $DTRAIN_ATTEMPT = 3 ] && exit 0; exit 1")
        self.submit("a", {"worker": {"replicas": 2, "command": sh(program)}}, policy={"restartBackoff": "0s"})
        self.wait_job("a", "Succeeded")
        logs = lambda *options: sorted(self.agent.do("logs", "a", *options).splitlines())      # noqa: E731
        self.assertEqual(logs("worker-0"), ["err 3", "out 3"])
        self.assertEqual(logs("worker-0", "--attempt", "1"), ["err 1", "out 1"])
        self.assertEqual(logs("worker-0", "--previous"), ["err 2", "out 2"])
        self.assertEqual(logs("worker-0", "--stderr"), ["err 3"])
        self.assertEqual(logs("worker-0", "--attempt", "all"), ["err 1", "err 2", "err 3", "out 1", "out 2", "out 3"])
        self.assertEqual(logs(), ["worker-0 | err 3", "worker-0 | out 3", "worker-1 | err 3", "worker-1 | out 3"])
        self.assertEqual(len(logs("worker-0", "--attempt", "all", "--tail", "2")), 2)
        self.assertRegex(logs("worker-0", "--timestamps")[0], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ")
        self.assertEqual(logs("worker-0", "--since", "2000-01-01T00:00:00.000Z"), ["err 3", "out 3"])
        self.assertEqual(logs("worker-0", "--since", "2999-01-01T00:00:00.000Z"), [])
        self.assertEqual(self.agent.ctl("logs", "a", "worker-9").returncode, 3)
        self.assertEqual(self.agent.ctl("logs", "nobody").returncode, 3)

    def test_logs_follow_over_attempts_to_the_end(self):
        program = ("echo before $DTRAIN_ATTEMPT; while [ ! -e %s.$DTRAIN_ATTEMPT ]; do sleep 0.02; done; "
                   "echo after $DTRAIN_ATTEMPT; [ $DTRAIN_ATTEMPT = 2 ]" % self.path("go"))
        self.submit("a", {"worker": {"replicas": 1, "command": sh(program)}}, policy={"restartBackoff": "0s"})
        self.wait_job("a", "Running")
        follower = self.follow("logs", "-f", "a", "worker-0")
        self.assertEqual(follower.stdout.readline(), "before 1\n")
        self.write("go.1", "")
        self.assertEqual(follower.stdout.readline(), "after 1\n")
        self.assertEqual(follower.stdout.readline(), "before 2\n")
        self.write("go.2", "")
        rest, note = follower.communicate(timeout=PATIENCE)
        self.assertEqual((rest, follower.returncode), ("after 2\n", 0))
        self.assertIn("attempt 2", note)

    def test_exec(self):
        self.submit("a", {"worker": {"replicas": 1, "command": SLEEP}}, env={"MARK": "here"})
        self.wait_job("a", "Running")
        program = "echo $MARK $DTRAIN_TASK; echo oops >&2; cat; exit 7"
        done = self.agent.ctl("exec", "a", "worker-0", "--", "sh", "-c", program, stdin="from stdin\n")
        self.assertEqual(done.stdout, "here worker-0\nfrom stdin\n")
        self.assertEqual((done.stderr.strip(), done.returncode), ("oops", 7))
        self.assertEqual(self.agent.ctl("exec", "a", "worker-5", "--", "true").returncode, 3)
        with_big_output = self.agent.ctl("exec", "a", "worker-0", "--", "seq", "1", "200000")
        self.assertEqual(len(with_big_output.stdout.split()), 200000)
        self.assertEqual(self.job("a")["state"], "Running")

    def test_events(self):
        follower = self.follow("-o", "json", "events", "-f")
        self.submit("a", {"worker": {"replicas": 1, "command": ["true"]}})
        self.wait_job("a", "Succeeded")
        types = []
        while "job.succeeded" not in types:
            event = json.loads(follower.stdout.readline())
            self.assertLessEqual({"seq", "time", "type", "object", "reason", "message"}, set(event))
            types.append(event["type"])
        self.assertIn("task.running", types)
        self.submit("b", {"worker": {"replicas": 1, "command": ["true"]}})
        self.wait_job("b", "Succeeded")
        self.assertEqual({event["object"].split("/")[0] for event in self.events("b")}, {"b"})
        everything = [event["seq"] for event in self.events() if "local" not in event]   # the node's own repeat one
        self.assertEqual(everything, sorted(set(everything)))

    def test_status_nodes_describe_version(self):
        status = self.agent.ask("status")
        self.assertEqual(status["nodes"]["alive"], 1)
        self.assertEqual((status["coordinator"]["node"], status["quorum"]["healthy"], status["stale"]), ("n1", True, False))
        node = self.agent.ask("nodes")[0]
        self.assertEqual((node["name"], node["state"], node["role"]), ("n1", "alive", "coordinator"))
        self.assertGreater(node["memory"]["total_bytes"], 0)
        self.assertEqual(self.agent.ask("describe", "node", "n1")["name"], "n1")
        self.assertRegex(self.agent.do("version"), r"\d+\.\d+\.\d+")
        self.submit("a", {"worker": {"replicas": 1, "command": SLEEP}})
        self.wait_job("a", "Running")
        described = self.agent.ask("describe", "job", "a")
        for key in ("name", "state", "tasks", "spec", "conditions", "restored", "first_fault", "waiting_for"):
            self.assertIn(key, described)
        self.assertEqual(self.agent.ask("status")["jobs"], {"Running": 1})
        self.assertEqual(self.agent.ask("status", "a")["name"], "a")
        for arguments in (("jobs",), ("tasks", "a"), ("describe", "job", "a"), ("nodes",), ("status",), ("events",), ("cluster-spec", "a")):
            for form in ("table", "wide", "yaml"):
                self.assertTrue(self.agent.do("-o", form, *arguments).strip(), (arguments, form))

    def test_usage(self):
        self.assertEqual(self.agent.ctl("doctor", "n1").returncode, 2)     # it takes no node
        self.assertIn("version", self.agent.ctl("top").stderr)
        self.assertEqual(self.agent.ctl("no-such-verb").returncode, 2)
        self.assertEqual(self.agent.ctl("tasks").returncode, 2)
        self.assertEqual(self.agent.ctl("submit", self.path("no-such-file")).returncode, 2)
        self.assertEqual(self.agent.ctl("tasks", "nobody").returncode, 3)
        self.assertEqual(self.agent.ctl("describe", "node", "nobody").returncode, 3)
        for shell in ("bash", "zsh", "fish"):
            self.assertIn("dtrainctl", self.agent.do("completion", shell))
        self.agent.end()
        self.assertEqual(self.agent.ctl("--timeout", "1s", "status").returncode, 4)

    def test_verify(self):
        directory = self.path("ckpt-1")
        self.write("ckpt-1/part", "")
        self.write("ckpt-1/MANIFEST.json", json.dumps({"version": 1, "step": 1, "files": [{"name": "part", "size": 0, "sha256":
                   "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}]}))
        self.assertEqual(self.agent.ctl("verify", directory).returncode, 0)
        self.write("ckpt-1/part", "x")
        self.assertEqual(self.agent.ctl("verify", directory).returncode, 1)
        self.assertEqual(self.agent.ctl("verify", self.path("nothing")).returncode, 3)

    def test_keygen(self):
        key = self.path("cluster.key")
        self.assertEqual(self.agent.ctl("keygen", key).returncode, 0)
        self.assertEqual(os.stat(key).st_mode & 0o7777, 0o600)
        with open(key) as made:
            self.assertEqual(len(made.read().splitlines()), 2)
        self.assertEqual(self.agent.ctl("keygen", key).returncode, 5)
        self.assertEqual(self.agent.ctl("keygen", self.path("no/such/directory")).returncode, 3)
        self.assertEqual(self.agent.ctl("keygen", "--add", key).returncode, 0)
        with open(key) as made:
            self.assertEqual(len(made.read().splitlines()), 3)

    def test_run_detaches_without_a_terminal(self):
        follower = self.follow("run", self.job_file("a", {"worker": {"replicas": 1, "command": python("import time\ntime.sleep(1e6)")}}))
        self.wait_job("a", "Running")
        follower.send_signal(signal.SIGINT)
        self.assertEqual(follower.wait(PATIENCE), 130)
        self.assertEqual(self.job("a")["state"], "Running")
        done = self.agent.ctl("run", "--detach", self.job_file("b", {"worker": {"replicas": 1, "command": SLEEP}}))
        self.assertEqual(done.returncode, 0, done.stderr)
        follower = self.follow("run", "--cancel-on-exit", self.job_file("c", {"worker": {"replicas": 1, "command": SLEEP}}))
        self.wait_job("c", "Running")
        follower.send_signal(signal.SIGINT)
        follower.wait(PATIENCE)
        self.wait_job("c", "Cancelled")


if __name__ == "__main__":
    main()
