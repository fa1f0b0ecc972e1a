"""Five agents under jobs of every kind, while at random agents, shims and tasks are killed or stopped, hosts die or are drained, and
networks are cut.

Then it is calm, and everything that was promised must hold: what was acknowledged is known to all and done, what is exclusive
never ran twice at once, what has ended is not run again, no line of a log is missing, no process is left over, and no agent
ended by itself.

DTRAIN_KILL_SECONDS: how long (default 60; tests/run.sh --soak: 600). DTRAIN_SEED: the seed of an earlier run, which prints it; what is
drawn repeats itself then, but not when the processes get to run.
"""
import contextlib
import itertools
import json
import os
import random
import re
import signal
import sys
import threading
import time
import unittest

import agents_lab
import harness
import test_lease_partitions
from agents_lab import cut, cut_one_way
from harness import end_processes_of, processes_of, sh, until

FAULTS_S = int(os.environ.get("DTRAIN_KILL_SECONDS", "60"))
SEED = int(os.environ.get("DTRAIN_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
AT_MOST = 2 * FAULTS_S + 500    # seconds for all of it
AGENTS = 5
PATIENCE = 120                  # seconds until all is well when it is calm
TRY_S = 5                       # a client that is not answered asks again, maybe another agent
DOWN_S, STOPPED_S, CUT_S = (0.1, 6), (1, 8), (1, 10)    # agents killed, agents stopped, networks cut: for so long
START_S = (0, 0.3)              # from an agent's start to the kill that does not let it get further
BETWEEN_S = (0, 2)              # from one such fault to the next
KILL_EVERY_S = (0.2, 2)         # a shim or a task
CLIENTS, SUBMIT_EVERY_S = 3, (0.3, 2)
SHARP_S = 0.05                  # /proc/uptime, by which short tasks say when they ran, has hundredths

# Prints numbers, each noted in a file once it is in the pipe; in a child, which the shim's death does not end.
COUNT = ("import os, sys, time\n"
         "file, number = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644), 0\n"
         "while True:\n"
         "    line = '%s %d %d\\n' % (os.environ['DTRAIN_NODE'], os.getpid(), number)\n"
         "    os.write(1, line.encode())\n"
         "    os.write(file, (os.environ['DTRAIN_TASK'] + ' ' + line).encode())\n"
         "    number += 1\n"
         "    time.sleep(0.02)\n")
SHORT = ("say() { read now rest < /proc/uptime; echo \"$DTRAIN_JOB $DTRAIN_NODE $$ $DTRAIN_ATTEMPT $1 $now\" >> %s; }; "
         "say begin; sleep %.2f; say end")
STEADY = {"placement": "spread", "failureThreshold": {"count": 0}, "restartBackoff": "100ms", "stopGracePeriod": "2s"}


def now():
    """What /proc/uptime says."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def shims_of(directory):
    """{pid: assignment} of the shims whose files are there."""
    found = {}
    for pid in processes_of(directory):
        with contextlib.suppress(OSError), open("/proc/%d/cmdline" % pid) as file:
            words = file.read().split("\0")
            if words[0] == "dtrain-shim":
                found[pid] = os.path.basename(words[1])
    return found


def children_of(pid):
    with contextlib.suppress(OSError), open("/proc/%d/task/%d/children" % (pid, pid)) as file:
        return [int(child) for child in file.read().split()]
    return []


class RandomKills(test_lease_partitions.Islands):
    def setUp(self):
        super().setUp()
        self.calm, self.errors, self.story, self.began = threading.Event(), [], [], time.monotonic()
        self.acknowledged, self.cancelled, self.ended_at, self.killed_shims = {}, set(), {}, set()
        self.killed_tasks = set()
        self.submitted, self.lock, self.taken = itertools.count(), threading.Lock(), []     # taken: agents that have a fault
        self.write("package/packed", "")
        self.addCleanup(self.tell)

    # -- what happens, and who does it

    def note(self, text):
        self.story.append("%7.2f %s" % (time.monotonic() - self.began, text))

    def tell(self):
        result = self._outcome.result
        if any(test is self for test, _ in result.failures + result.errors):
            logs = ["---- the log of %s ends:\n%s" % (agent.name, agent.log()[-3000:]) for agent in self.members.values()]
            print("---- seed %d; what was done:\n%s" % (SEED, "\n".join([*self.story, *logs])), file=sys.stderr)

    def lane(self, number, act, every):
        """A thread that does it again and again until it is calm; what goes wrong there fails the test."""
        def go():
            try:
                draw = random.Random(SEED * 100 + number)
                while not self.calm.wait(draw.uniform(*every)):
                    act(draw)
            except BaseException as error:      # noqa: B902 - all of it is told
                self.errors.append(error)
                self.calm.set()
        thread = threading.Thread(target=go)
        thread.start()
        return thread

    def pause(self, draw, between):
        self.calm.wait(draw.uniform(*between))

    def big_fault(self, draw):
        """Two of these go on at once, at different agents: so a majority may be missing for a while."""
        count, fault = draw.choice(((1, self.agents_die), (1, self.agents_die), (2, self.agents_die), (1, self.a_host_dies),
                                    (1, self.an_agent_stands_still), (1, self.some_are_cut_off), (2, self.some_are_cut_off),
                                    (2, self.a_link_is_cut), (1, self.one_is_not_heard), (1, self.a_shim_stands_still)))
        with self.lock:
            free = [agent for agent in self.agents if agent not in self.taken]
            victims = draw.sample(free, count) if len(free) >= count else []
            self.taken += victims
        if victims:
            fault(draw, *victims)
        with self.lock:
            self.taken = [agent for agent in self.taken if agent not in victims]

    def end_agent(self, agent):
        self.assertIsNone(agent.process.poll(), "agent %s ended by itself; its log ends:\n%s" % (agent.name, agent.log()[-3000:]))
        agent.end()

    def agents_die(self, draw, *victims):
        self.note("kill agents " + " ".join(agent.name for agent in victims))
        for agent in victims:
            self.end_agent(agent)
        for agent in victims:
            self.pause(draw, DOWN_S)
            while draw.random() < 0.3:
                self.note("start agent %s and kill it as it starts" % agent.name)
                agent.spawn()
                self.pause(draw, START_S)
                self.end_agent(agent)
            self.note("start agent " + agent.name)
            agent.start()

    def a_host_dies(self, draw, victim):
        self.note("kill all of host " + victim.name)
        self.end_agent(victim)
        self.killed_shims.update((victim.name, assignment) for assignment in shims_of(victim.directory).values())
        end_processes_of(victim.directory)
        self.pause(draw, DOWN_S)
        self.note("start agent " + victim.name)
        victim.start()

    def an_agent_stands_still(self, draw, victim):
        self.note("stop agent " + victim.name)
        with agents_lab.stopped([victim]):
            self.pause(draw, STOPPED_S)
        self.note("continue agent " + victim.name)

    def a_shim_stands_still(self, draw, victim):
        """Its agent runs meanwhile: without both nobody keeps the lease's deadline (docs/leases.md)."""
        shims = sorted(shims_of(victim.directory).items())
        if shims:
            shim, assignment = draw.choice(shims)
            self.note("stop shim %s of %s" % (assignment, victim.name))
            with contextlib.suppress(ProcessLookupError):
                os.kill(shim, signal.SIGSTOP)
                self.pause(draw, STOPPED_S)
                os.kill(shim, signal.SIGCONT)
            self.note("continue shim %s of %s" % (assignment, victim.name))

    def network(self, draw, what, fault):
        self.note("cut " + what)
        with fault as dropped:
            self.pause(draw, CUT_S)
            count = dropped()
        self.note("heal %s: %d packets were dropped" % (what, count))

    def others(self, *agents):
        return [agent for agent in self.agents if agent not in agents]

    def some_are_cut_off(self, draw, *few):
        self.network(draw, "off " + " ".join(agent.name for agent in few), cut(few, self.others(*few)))

    def a_link_is_cut(self, draw, one, other):
        self.network(draw, "the link of %s and %s" % (one.name, other.name), cut([one], [other]))

    def one_is_not_heard(self, draw, one):
        if draw.random() < 0.5:
            self.network(draw, "one way: nobody hears " + one.name, cut_one_way([one], self.others(one)))
        else:
            self.network(draw, "one way: %s hears nobody" % one.name, cut_one_way(self.others(one), [one]))

    def kill_a_process(self, draw):
        agent = draw.choice(self.agents)
        shims = sorted(shims_of(agent.directory).items())
        if not shims:
            return
        shim, assignment = draw.choice(shims)
        if draw.random() < 0.5:
            self.note("kill shim %s of %s" % (assignment, agent.name))
            self.killed_shims.add((agent.name, assignment))
            victims = [shim]
        else:
            self.note("kill task %s of %s" % (assignment, agent.name))
            self.killed_tasks.add((agent.name, assignment))
            victims = children_of(shim)
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # -- jobs

    def job_of(self, name, roles, **spec):
        return self.write("jobs/%s.json" % name, json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"framework": "generic", "policy": STEADY, "roles": roles, **spec}}))

    def submit_one(self, draw):
        number = next(self.submitted)
        name, exclusive = "s%d" % number, number % 2 == 1
        packed = {"package": self.path("package")} if number % 5 == 0 else {}      # stays where its files are
        path = self.job_of(name, {"worker": {"replicas": 1, "exclusive": exclusive, "command": sh(
            ("test -e packed || exit 1; " if packed else "") + SHORT % (self.path("ran"), draw.uniform(0, 1)))}}, **packed)
        self.insist(draw, "submit", path)
        self.acknowledged[name] = exclusive
        for job in self.ask_at(draw.choice(self.agents), "jobs") or []:
            if job["state"] == "Succeeded":
                self.ended_at.setdefault(job["name"], now())

    def operate(self, draw):
        draw.choice((self.cancel_one, self.drain_one, self.restart_one, self.look))(draw)

    def cancel_one(self, draw):
        """What is cancelled runs no more, wherever it is and whoever was told."""
        name = "c%d" % next(self.submitted)
        path = self.job_of(name, {"worker": {"replicas": 2, "command": harness.SLEEP}})
        self.insist(draw, "submit", path)
        self.pause(draw, (0, 3))
        self.insist(draw, "cancel", name)
        self.cancelled.add(name)

    def drain_one(self, draw):
        victim = draw.choice(self.agents).name
        self.note("drain " + victim)
        self.insist(draw, "drain", victim, "--deadline", "2s")
        self.pause(draw, DOWN_S)
        self.insist(draw, "undrain", victim)
        self.note("undrained " + victim)

    def undrain_all(self):
        """A drain that a cut off agent was asked for may take effect behind the undrain that another one acknowledged."""
        for host in (self.ask_at(self.agents[0], "status") or {}).get("drained", {}):
            self.note("undrain %s again" % host)
            self.try_at(self.agents[0], "undrain", host)

    def restart_one(self, draw):
        """Of either kind, a task in place or a new generation; what it finds under way may refuse it."""
        self.try_at(draw.choice(self.agents), "restart", *draw.choice((("training",), ("counters", "worker-1"))))

    def look(self, draw):
        """Streams from host to host, whatever becomes of them."""
        agent = draw.choice(self.agents)
        for verb in (["logs", "counters", "--tail", "1000"], ["exec", "keepers", "keeper-0", "--", "true"]):
            since = time.monotonic()
            agent.ctl("--timeout", "%ds" % TRY_S, *verb, timeout=PATIENCE)
            if time.monotonic() - since > 2 * TRY_S:
                self.note("%s at %s took %.0f s" % (verb[0], agent.name, time.monotonic() - since))

    def try_at(self, agent, *arguments):
        return agent.ctl("--timeout", "%ds" % TRY_S, *arguments).returncode == 0

    def insist(self, draw, *arguments):
        """Asks one agent after the other until it is acknowledged."""
        until(lambda: self.try_at(draw.choice(self.agents), *arguments), "acknowledged: %s" % (arguments,), PATIENCE)

    def ask_at(self, agent, *arguments):
        """Its answer, or None."""
        done = agent.ctl("--timeout", "%ds" % TRY_S, "-o", "json", *arguments)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def long_jobs(self):
        writer = ["/usr/bin/python3", "-c", test_lease_partitions.BEATS]
        count = "/usr/bin/python3 -c '%s' %s & wait" % (COUNT.replace("'", '"'), self.path("counted"))
        self.agents[1].do("submit", self.writers("keepers", exclusive=True, replicas=2))
        self.agents[2].do("submit", self.job_of("training", {
            "ps": {"replicas": 1, "command": [*writer, self.path("training")]},
            "worker": {"replicas": 2, "command": [*writer, self.path("training")]}}, framework="tensorflow"))
        self.agents[3].do("submit", self.job_of("counters", {"worker": {"replicas": 3, "command": sh(count)}}))
        return ("keepers", "training", "counters")

    # -- what must hold

    def ledger(self, agent):
        return [(job["name"], job["state"], job["restarts"], job["generation"],
                 sorted((t["task"], t["state"], t["node"], t["pid"], t["attempt"]) for t in agent.ask("tasks", job["name"])))
                for job in agent.ask("jobs") if job["name"][0] not in "sc" or job["name"] == "counters"] + sorted(
                    (job["name"], job["state"], job["restarts"]) for job in agent.ask("jobs"))

    def check_acknowledged(self):
        wanted = {**dict.fromkeys(self.acknowledged, "Succeeded"), **dict.fromkeys(self.cancelled, "Cancelled")}

        def missing():
            return {agent.name: wrong for agent in self.agents
                    if (wrong := sorted(wanted.items() - {(job["name"], job["state"]) for job in agent.ask("jobs")}))}
        until(lambda: not missing(), lambda: "acknowledged jobs to end: %s" % missing(), PATIENCE)

    def check_short(self):
        """Never two at once of what is exclusive; nothing that has ended begins again."""
        runs = {}
        for line in self.lines("ran"):
            job, node, pid, attempt, what, at = line.split()
            runs.setdefault(job, {}).setdefault((node, int(pid), int(attempt)), {})[what] = float(at)
        self.assertLessEqual(self.acknowledged.keys(), runs.keys())
        again = 0
        for job, processes in runs.items():
            ordered = sorted(processes.items(), key=lambda item: item[1]["begin"])
            self.assertTrue(any("end" in times for _, times in ordered), "%s has ended, but did not run to its end: %s" % (job, ordered))
            if len(ordered) == 1:
                continue
            again += 1
            described = self.agents[0].ask("describe", "job", job)
            where = described["tasks"][0]
            for (_, one), (_, other) in itertools.pairwise(ordered):
                if self.acknowledged.get(job) and "end" in one:
                    self.assertLess(one["end"], other["begin"] + SHARP_S, "two of %s at once: %s" % (job, ordered))
            for (node, _, attempt), times in ordered:
                if job in self.ended_at and (self.acknowledged[job] or node == where["node"]):
                    self.assertLess(times["begin"], self.ended_at[job], "%s begins when it has ended: %s" % (job, ordered))
                later = [key for key in processes if key[0] == node and key[2] == attempt + 1]
                if "end" in times and later and not any(name == node and assignment.startswith("%d." % described["id"])
                                                        for name, assignment in self.killed_shims | self.killed_tasks):
                    self.fail("%s has ended and is run again: %s; %s" % (job, ordered, where))
        return len(runs), again

    def check_logs(self):
        """Each number in order and once, by process, and up to the last that is noted, unless its shim was killed."""
        noted, printed, lines = {}, {}, 0
        for line in self.lines("counted"):
            task, node, pid, number = line.split()
            noted[task, node, int(pid)] = int(number)
        for task in {key[0] for key in noted}:
            for line in self.agents[0].do("logs", "counters", task, "--attempt", "all").splitlines():
                node, pid, number = line.split()
                printed.setdefault((task, node, int(pid)), []).append(int(number))
        for key, numbers in printed.items():
            self.assertEqual(numbers, list(range(len(numbers))), "%s: a line is missing, doubled or out of order" % (key,))
            lines += len(numbers)
        for (task, node, pid), last in noted.items():
            if not any(name == node and assignment.endswith("." + task) for name, assignment in self.killed_shims):
                self.assertGreaterEqual(len(printed.get((task, node, pid), [])), last + 1, "the log of %s on %s, process %d, is cut short" %
                                        (task, node, pid))
        return lines

    def check_agents(self):
        for agent in self.agents:
            self.assertIsNone(agent.process.poll(), agent.log()[-3000:])
            found = re.findall(r".*(?:[Aa]ssert|terminate called|Sanitizer|runtime error:).*", agent.log())
            self.assertEqual(found, [], agent.name)

    def test_everything_that_was_promised_holds(self):
        print("seed %d" % SEED, flush=True)
        self.agents = self.cluster_of(AGENTS)
        self.whole(self.agents)
        long = self.long_jobs()
        for name in long:
            until(lambda: self.job_at(self.agents[0], name)["state"] == "Running", lambda: "%s to run" % name)
        keepers, training = self.beats_of("keepers"), self.beats_of("training")
        lanes = [self.lane(0, self.big_fault, BETWEEN_S), self.lane(1, self.big_fault, BETWEEN_S),
                 self.lane(2, self.kill_a_process, KILL_EVERY_S),
                 self.lane(3, self.operate, BETWEEN_S),
                 *(self.lane(4 + client, self.submit_one, SUBMIT_EVERY_S) for client in range(CLIENTS))]
        self.calm.wait(FAULTS_S)
        self.calm.set()
        for lane in lanes:
            lane.join()
        self.assertEqual(self.errors, [])
        self.note("calm")
        since = time.monotonic()
        self.whole(self.agents, self.undrain_all)
        self.check_acknowledged()
        until(lambda: all(self.job_at(agent, name)["state"] == "Running" for agent in self.agents for name in long),
              lambda: "long jobs to run: %s" % [self.agents[0].ask("describe", "job", name) for name in long], PATIENCE)
        until(lambda: all(self.ledger(agent) == self.ledger(self.agents[0]) for agent in self.agents),
              lambda: "equal ledgers: %s" % [self.ledger(agent) for agent in self.agents])
        self.note("all is well after %.1f s" % (time.monotonic() - since))
        jobs, again = self.check_short()
        lines = self.check_logs()
        for beats, names in ((keepers, ("keeper-0", "keeper-1")), (training, ("ps-0", "worker-0"))):
            moved = len([1 for what, *_ in beats.handovers()])
            self.assertEqual([found for found in beats.both() if found[0].startswith(names)], [])
            self.note("%d handovers of %s" % (moved, " ".join(names)))
        for name in long:
            self.agents[4].do("cancel", name)
        until(lambda: all(job["state"] in harness.FINAL for agent in self.agents for job in agent.ask("jobs")), "all ends")
        until(lambda: harness.only_agents_left(self.top, len(self.agents)),
              lambda: "only the agents to be left: %s" % harness.names_of(processes_of(self.top)))
        self.check_agents()
        print("%d s, %d faults, %d jobs cancelled: %d of %d short jobs ran more than once, %d lines of logs; %s" %
              (FAULTS_S, sum(" kill " in text or " cut " in text or " stop " in text for text in self.story), len(self.cancelled),
               again, jobs, lines,
               "; ".join(text.split(None, 1)[1] for text in self.story[-3:])))


if __name__ == "__main__":
    agents_lab.enter(AT_MOST)
    unittest.main(verbosity=2)
