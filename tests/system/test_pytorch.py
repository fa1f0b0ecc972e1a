"""PyTorch jobs on three agents: what each rank finds, where its output goes, and what follows a death. The ranks here are small scripts
that meet as env:// does, so that each death is exact; examples/ddp trains with PyTorch itself."""
import os
import re
import signal
import textwrap
import unittest

import harness
import ranks
import test_hosts
from harness import until

# What a rank does at which step of which generation is in its arguments: "2:5:1:exit 3" = rank 2, step 5, generation 1.
GANG = ranks.MEET + textwrap.dedent("""
    steps = int(sys.argv[1])
    acts = {tuple(map(int, a.split(":")[:3])): a.split(":")[3] for a in sys.argv[2:]}
    def out(text): print("rank %d: %s" % (rank, text), flush=True)
    out("LOCAL_RANK=%(LOCAL_RANK)s LOCAL_WORLD_SIZE=%(LOCAL_WORLD_SIZE)s GROUP_RANK=%(GROUP_RANK)s" % os.environ)
    meet()
    for number in range(steps):
        act = acts.get((rank, number, generation), "").split()
        if act[:1] == ["exit"]: print("rank %d gives up" % rank, file=sys.stderr, flush=True); os._exit(int(act[1]))
        if act[:1] == ["kill"]: os.kill(os.getpid(), int(act[1]))
        if act[:1] == ["hang"]:
            while True: time.sleep(1000)
        step()
        if number == 0: out("first step, generation %d" % generation)
    out("done")
    """)


STOPPED = "was stopped (SIGSTOP) and did not go on"


class Pytorch(test_hosts.Hosts):
    def gang(self, name, *arguments, steps=10, workers=2, nproc=2, role=None, **spec):
        script = self.write("gang.py", GANG)
        role = {"replicas": workers, "nprocPerNode": nproc, "command": ["python3", script, str(steps), *arguments], **(role or {})}
        return self.write(name + ".json", harness.json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"framework": "pytorch", "policy": {"placement": "spread"}, "roles": {"worker": role}, **spec}}))

    def test_ranks_meet_and_each_has_its_log(self):
        agents = self.three()
        agents[0].do("submit", self.gang("meets"))
        self.assertEqual(self.ended(agents[0], "meets")["restarts"], 0)
        whole = agents[1].do("logs", "meets").splitlines()
        for task in range(2):
            for local in range(2):
                rank = 2 * task + local
                prefix = "worker-%d.%d | rank %d: " % (task, local, rank)
                self.assertIn(prefix + "LOCAL_RANK=%d LOCAL_WORLD_SIZE=2 GROUP_RANK=%d" % (local, task), whole)
                self.assertIn(prefix + "done", whole)
                own = agents[2].do("logs", "meets", "worker-%d" % task, "--rank", str(local)).splitlines()
                self.assertEqual({line.split(":")[0] for line in own}, {"rank %d" % rank})
        self.assertIn("worker-1.0 | rank 2: done", agents[0].do("logs", "meets", "worker-1").splitlines())
        self.assertEqual(agents[0].do("logs", "meets", "worker-1.0").splitlines()[-1], "rank 2: done")
        refused = agents[0].ctl("logs", "meets", "worker-1", "--rank", "2")
        self.assertEqual(refused.returncode, 3, refused)
        self.assertIn("could not read logs: task worker-1 has ranks 0 to 1", refused.stderr)
        self.assertEqual(agents[0].ctl("logs", "meets", "--rank", "1").returncode, 2)

    def test_ranks_of_a_launcher_have_no_logs_of_their_own(self):
        agents = self.three()
        launcher = self.write("torchrun", "#!/bin/sh\nexec sleep 1000\n")
        os.chmod(launcher, 0o755)
        agents[0].do("submit", self.gang("starts", workers=1, role={"command": [launcher]}))
        self.running(agents[0], "starts", 1)
        refused = agents[0].ctl("logs", "starts", "worker-0", "--rank", "1")
        self.assertEqual(refused.returncode, 3, refused)
        self.assertIn("could not read logs: the command of task worker-0 starts its ranks itself", refused.stderr)

    def test_a_dead_rank_costs_one_restart_and_is_named(self):
        agents = self.three()
        agents[0].do("submit", self.gang("heals", "3:5:1:kill 9", "0:4:2:exit 3"))
        job = self.ended(agents[0], "heals")
        self.assertEqual((job["generation"], job["restarts"]), (3, 2))
        fault = agents[0].ask("describe", "job", "heals")["first_fault"]    # of the newest generation that has one
        self.assertEqual((fault["task"], fault["rank"], fault["cause"], fault["generation"]), ("worker-0", 0, "exit code 3", 2), fault)
        tasks = self.tasks_at(agents[0], "heals")
        for local in range(2):
            log = agents[1].do("logs", "heals", "worker-0", "--attempt", "all", "--rank", str(local))
            self.assertEqual(re.findall(r"first step, generation (\d)", log), ["1", "2", "3"])
        self.assertEqual({t["attempt"] for t in tasks.values()}, {3})

    def test_the_words_of_the_rank_that_failed_first_are_shown(self):
        agents = self.three()
        agents[0].do("submit", self.gang("fails", "2:3:1:exit 7", policy={"placement": "spread", "backoffLimit": 0}))
        self.assertIn("worker-1.0: exit code 7", self.ended(agents[0], "fails", "Failed")["reason"])
        fault = agents[2].ask("describe", "job", "fails")["first_fault"]
        self.assertEqual((fault["task"], fault["rank"], fault["stderr_tail"]), ("worker-1", 0, "rank 2 gives up\n"), fault)
        self.assertRegex(agents[0].do("describe", "job", "fails"), r"First fault: +worker-1\.0 on a\d at .*exit code 7")
        self.assertRegex(agents[0].do("events", "fails"), r"task\.failed fails/worker-1 .*exit=exit code 7 rank=0")

    def test_the_exception_that_was_recorded_first_is_the_first_fault(self):
        """By PyTorch's own @record. The rank that raised it is slow to end, and is killed: one of the other task ends because of it."""
        agents = self.three()
        seen = os.path.join(self.top, "seen")
        script = self.write("records.py", textwrap.dedent("""
            import os, sys, time
            seen, rank = sys.argv[1], int(os.environ["RANK"])
            if rank == 0:
                while not os.path.exists(seen): time.sleep(0.01)
                sys.exit(4)
            if rank != 3: time.sleep(1000)
            from torch.distributed.elastic.multiprocessing.errors import record
            @record
            def main(): raise ValueError("no batch \x1b[2J of rank %d" % rank)
            try: main()
            finally:
                open(seen, "w").close()
                time.sleep(1000)
            """))
        agents[0].do("submit", self.write("records.json", harness.json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": "records"},
            "spec": {"framework": "pytorch", "policy": {"placement": "spread", "backoffLimit": 0},
                     "roles": {"worker": {"replicas": 2, "nprocPerNode": 2, "command": ["/usr/bin/python3", script, seen]}}}})))
        self.ended(agents[0], "records", "Failed")
        fault = until(lambda: (lambda f: f["error"] and f)(agents[1].ask("describe", "job", "records")["first_fault"]),
                      lambda: "the recorded error: " + agents[1].do("describe", "job", "records"))
        self.assertEqual((fault["task"], fault["rank"], fault["error"]), ("worker-1", 1, "ValueError: no batch \x1b[2J of rank 3"), fault)
        self.assertIn("in main", fault["stack"])
        text = agents[2].do("describe", "job", "records")
        self.assertRegex(text, r"First fault: +worker-1\.1 on a\d at .*: ValueError: no batch .* of rank 3 \(signal SIG(KILL|TERM)\)")
        self.assertNotIn("\x1b", text)

    def test_ranks_that_are_done_wait_for_nobody(self):
        agents = self.three()
        script = "import os, time; r = int(os.environ['RANK']); time.sleep(0.3 * r); print('done', r)"
        file = self.write("early.json", harness.json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": "early"},
            "spec": {"framework": "pytorch", "policy": {"placement": "spread"},
                     "roles": {"worker": {"replicas": 2, "nprocPerNode": 2, "command": ["python3", "-c", script]}}}}))
        agents[0].do("submit", file)
        self.assertEqual(self.ended(agents[0], "early")["restarts"], 0)
        self.assertEqual(len(re.findall("done", agents[0].do("logs", "early"))), 4)

    def test_a_lost_host_moves_the_gang(self):
        agents = self.three()
        agents[0].do("submit", self.gang("moves", "1:1:1:hang", steps=3, role={"antiAffinity": "host"}))
        tasks = self.running(agents[0], "moves", 2)
        victim = next(a for a in agents if a.name == tasks["worker-0"]["node"])
        rest = [a for a in agents if a is not victim]
        self.kill_host(victim)
        job = self.ended(rest[0], "moves")
        self.assertEqual(job["generation"], 2)
        self.assertNotIn(victim.name, {t["node"] for t in self.tasks_at(rest[0], "moves").values()})

    def test_an_elastic_gang_shrinks(self):
        agents = self.three()
        agents[0].do("submit", self.gang("elastic", "0:1:1:hang", workers=3, role={"minReplicas": 2, "antiAffinity": "host"}))
        tasks = self.running(agents[0], "elastic")
        victim = next(a for a in agents if a.name == tasks["worker-2"]["node"])
        rest = [a for a in agents if a is not victim]
        self.kill_host(victim)
        self.ended(rest[0], "elastic")
        self.assertIn("rank 3: done", rest[0].do("logs", "elastic"))
        self.assertNotIn("rank 5: first step, generation 2", rest[0].do("logs", "elastic", "--attempt", "all"))

    def test_an_elastic_gang_grows_when_its_host_is_back(self):
        agents = self.three()
        policy = {"placement": "spread", "growAfter": "1s", "backoffLimit": 1}
        agents[0].do("submit", self.gang("grows", "0:1:1:hang", "0:1:2:hang", workers=3, nproc=1, policy=policy,
                                         role={"minReplicas": 2, "antiAffinity": "host"}))
        tasks = self.running(agents[0], "grows")
        victim = next(a for a in agents if a.name == tasks["worker-2"]["node"])
        rest = [a for a in agents if a is not victim]
        self.kill_host(victim)
        job = until(lambda: (lambda j: j["generation"] == 2 and j["state"] == "Running" and j)(self.job_at(rest[0], "grows")),
                    lambda: "two of three: " + rest[0].do("describe", "job", "grows"), seconds=60)
        self.assertEqual(job["reason"], "runs with 2 of 3 worker")
        victim.start()
        job = self.ended(rest[0], "grows")
        self.assertEqual((job["generation"], job["restarts"]), (3, 2), rest[0].do("describe", "job", "grows"))
        self.assertIn("rank 2: done", rest[0].do("logs", "grows"))
        events = rest[0].do("events", "grows")
        self.assertIn("restarted by dtrain: there is room for all its tasks", events)
        self.assertIn("job.grown", events)

    def test_a_rank_that_is_silent_or_stopped_is_noticed_by_its_watchdog(self):
        """The others of its task go on sending WATCHDOG=1. Rank 3 hangs in the first generation and is stopped in the second."""
        agents = self.three()
        script = textwrap.dedent("""
            import os, signal, socket, time
            notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            rank, generation = int(os.environ["RANK"]), int(os.environ["DTRAIN_GENERATION"])
            end = time.monotonic() + (1000 if generation < 3 else 0.5)
            while time.monotonic() < end:
                notify.sendto(b"WATCHDOG=1", os.environ["NOTIFY_SOCKET"])
                time.sleep(0.05)
                if rank == 3 and generation == 1: time.sleep(1000)
                if rank == 3 and generation == 2: os.kill(os.getpid(), signal.SIGSTOP)
            """)
        file = self.write("stops.json", harness.json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": "stops"},
            "spec": {"framework": "pytorch", "policy": {"placement": "spread"},
                     "roles": {"worker": {"replicas": 2, "nprocPerNode": 2, "watchdog": "1s", "command": ["python3", "-c", script]}}}}))
        agents[0].do("submit", file)
        fault_of = lambda generation: until(
            lambda: (lambda f: f and f["generation"] == generation and f)(agents[0].ask("describe", "job", "stops")["first_fault"]),
            lambda: "a fault of generation %d: %s" % (generation, agents[0].do("describe", "job", "stops")))
        what = lambda fault: (fault["task"], fault["rank"], fault["cause"], fault.get("error", ""))
        self.assertEqual(what(fault_of(1)), ("worker-1", 1, "watchdog: silent for 1 s (signal SIGKILL)", ""))
        self.assertEqual(what(fault_of(2)), ("worker-1", 1, "watchdog: silent for 1 s (signal SIGKILL)", STOPPED))
        self.assertEqual(self.ended(agents[0], "stops")["generation"], 3)
        self.assertRegex(agents[0].do("describe", "job", "stops"), r"First fault: +worker-1\.1 on a\d at .*: was stopped \(SIGSTOP\)")

    def test_a_stopped_rank_is_named_when_others_give_it_up(self):
        """Without a watchdog: gloo's time-out ends a rank of the other task, which waited for it."""
        agents = self.three()
        script = self.write("reduces.py", textwrap.dedent("""
            import datetime, os, signal, torch, torch.distributed
            rank = int(os.environ["RANK"])
            torch.distributed.init_process_group("gloo")
            group = torch.distributed.new_group(timeout=datetime.timedelta(seconds=2 if rank == 0 else 1000))
            for step in range(5):
                if step == 3 and rank == 3 and os.environ["DTRAIN_GENERATION"] == "1": os.kill(os.getpid(), signal.SIGSTOP)
                torch.distributed.all_reduce(torch.ones(1), group=group)
            """))
        agents[0].do("submit", self.write("waits.json", harness.json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": "waits"},
            "spec": {"framework": "pytorch", "policy": {"placement": "spread"},
                     "roles": {"worker": {"replicas": 2, "nprocPerNode": 2, "warm": "none", "command": ["/usr/bin/python3", script]}}}})))
        self.assertEqual(self.ended(agents[0], "waits")["generation"], 2)
        fault = agents[0].ask("describe", "job", "waits")["first_fault"]
        self.assertEqual((fault["task"], fault["rank"], fault["error"], fault["generation"]), ("worker-1", 1, STOPPED, 1), fault)

    def test_who_has_which_rank(self):
        agents = self.three()
        file = self.gang("who", "0:1:1:hang")
        plan = {t["task"]: t["ranks"] for t in agents[0].ask("plan", file)["tasks"]}
        self.assertEqual(plan, {"worker-0": {"first": 0, "count": 2}, "worker-1": {"first": 2, "count": 2}})
        self.assertRegex(agents[0].do("plan", file), r"worker-1 on a\d at \S+\n(  .*\n)*?  ranks: +2-3\n")
        agents[0].do("submit", file)
        self.assertEqual({n: t["ranks"] for n, t in self.running(agents[0], "who", 2).items()}, plan)
        self.assertRegex(agents[1].do("tasks", "who"), r"TASK +STATE +NODE +RANKS +PID(?s:.*)\nworker-1 +Running +a\d +2-3 +\d+")
        enter = lambda *words: agents[2].ctl("exec", "who", *words, "--", "sh", "-c", "echo $RANK $LOCAL_RANK $GROUP_RANK")
        self.assertEqual(enter("worker-1", "--rank", "1").stdout, "3 1 1\n")
        self.assertEqual(enter("worker-0", "--rank", "0").stdout, "0 0 0\n")
        self.assertEqual(enter("worker-1").stdout, "2 0 1\n")
        self.assertEqual(enter("worker-1.1").stdout, "3 1 1\n")
        refused = enter("worker-1", "--rank", "2")
        self.assertEqual(refused.returncode, 3, refused)
        self.assertIn("could not run a command in who worker-1: task worker-1 has ranks 0 to 1", refused.stderr)
        # Its host knows the processes of its ranks, and every host whether somebody stopped one.
        host = next(a for a in agents if a.name == self.tasks_at(agents[0], "who")["worker-1"]["node"])
        pids = until(lambda: self.tasks_at(host, "who")["worker-1"]["pids"], "the processes of its ranks")
        self.assertEqual([self.is_rank(pid, rank) for pid, rank in zip(pids, "23", strict=True)], [True, True])
        progress = lambda agent: agent.ask("describe", "job", "who")["progressing"]
        os.kill(pids[1], signal.SIGSTOP)
        for agent in agents:
            until(lambda: not progress(agent)["value"], "the job to stand still")
            self.assertIn("worker-1: rank 1 (process %d) was stopped (SIGSTOP) at " % pids[1], progress(agent)["why"])
        self.assertRegex(agents[0].do("tasks", "who"), r"\nworker-1 +Running.* rank 1 \(process %d\) was stopped" % pids[1])
        os.kill(pids[1], signal.SIGCONT)
        for agent in agents:
            until(lambda: progress(agent)["value"], "the job to go on")

    def test_a_killed_agent_finds_its_ranks_again(self):
        agents = self.three()
        agents[0].do("submit", self.gang("adopted", "0:1:1:hang"))
        before = self.running(agents[0], "adopted", 2)
        agents[1].end()
        agents[1].start()
        until(lambda: all(a.states() == {"a1": "alive", "a2": "alive", "a3": "alive"} for a in agents), "all to be alive")
        after = self.running(agents[0], "adopted", 2)
        self.assertEqual({n: (t["pid"], t["attempt"]) for n, t in after.items()}, {n: (t["pid"], t["attempt"]) for n, t in before.items()})
        rank = next(pid for pid in harness.processes_of(self.path()) if self.is_rank(pid, "3"))
        os.kill(rank, signal.SIGKILL)
        self.assertEqual(self.ended(agents[0], "adopted")["restarts"], 1)

    def is_rank(self, pid, rank):
        try:
            with open("/proc/%d/environ" % pid, "rb") as file:
                return b"\0RANK=" + rank.encode() + b"\0" in b"\0" + file.read()
        except OSError:
            return False


if __name__ == "__main__":
    unittest.main()
