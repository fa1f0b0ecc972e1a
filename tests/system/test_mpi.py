"""Jobs of mpirun, over three agents: its daemons and ranks run in the workers' tasks, by dtrain-rsh, and nothing of them stays behind.

Also what a task's own processes may not ask of an agent (docs/launching.md).
"""
import json
import os
import pwd
import re
import shutil
import signal

import harness
import test_hosts
import test_roles
from harness import BIN, alive, until

PYTHON = "/usr/bin/python3"     # which has Debian's mpi4py
RANKS = """
import os, sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
print("rank %d of %d in %s of generation %s: sum %d" % (world.rank, world.size, os.environ.get("DTRAIN_TASK"),
                                                         os.environ.get("DTRAIN_GENERATION"), total), flush=True)
while world.bcast(len(sys.argv) > 1 and os.path.exists(sys.argv[1])):
    time.sleep(0.05)
"""
# All agents of the test are on one machine, with one /dev/shm and the loopback device.
ONE_MACHINE = {"OMPI_MCA_btl": "^vader", "OMPI_MCA_osc": "^sm", "OMPI_MCA_btl_tcp_if_include": "lo", "OMPI_MCA_oob_tcp_if_include": "lo"}

# Whether or not the machine's own name leads anywhere.
HYDRA = ["mpirun.mpich", "-localhost", "127.0.0.1", "-n", "3"]


class Mpi(test_hosts.Hosts):
    """Helpers: jobs of mpirun, and the processes that belong to them."""

    def mpi(self, name, command, workers=3, options=None, env=ONE_MACHINE, **spec):
        return self.write(name + ".json", json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"framework": "mpi", "options": options or {}, "policy": {"placement": "spread"},
                     "roles": {"launcher": {"replicas": 1, "command": command, "env": env}, "worker": {"replicas": workers}}, **spec}}))

    def ranks(self, count, *arguments):
        return ["mpirun.openmpi", "-np", str(count), PYTHON, self.write("ranks.py", RANKS), *arguments]

    def ends(self, agent, name, state="Succeeded", seconds=60):
        until(lambda: self.job_at(agent, name)["state"] == state,
              lambda: "%s; seen %s; %s" % (state, self.job_at(agent, name), agent.ctl("logs", name).stdout[-3000:]), seconds)
        return agent.do("logs", name)

    def processes(self, *words):
        """Of this test's, by the name of their program."""
        found = []
        for pid in harness.processes_of(self.top):
            if harness.names_of([pid]) and harness.names_of([pid])[0] in words:
                found.append(pid)
        return found


class MpiTest(Mpi):
    def test_ranks_run_in_all_workers(self):
        agents = self.three()
        agents[0].do("submit", self.mpi("sum", self.ranks(3)))
        log = self.ends(agents[0], "sum")
        self.assertEqual(sorted(re.findall(r"rank \d of 3 in \S+ of generation 1: sum \d+", log)),
                         ["rank %d of 3 in worker-%d of generation 1: sum 6" % (n, n) for n in range(3)], log)
        self.assertEqual({t["node"] for name, t in self.tasks_at(agents[0], "sum").items() if name != "launcher-0"}, {"a1", "a2", "a3"})
        launched = [e for a in agents for e in a.events() if e["type"] == "audit.launch"]
        self.assertEqual({e["object"] for e in launched}, {"sum/worker-%d" % n for n in range(3)})
        until(lambda: not self.processes("orted", "mpirun.openmpi", "mpirun"), "nothing of it to be left")
        # The same by Hydra, which stays connected through dtrain-rsh; its ranks say where they are without a library.
        agents[1].do("submit", self.mpi("hydra", HYDRA + ["sh", "-c", "echo rank $PMI_RANK in $DTRAIN_TASK"],
                                        options={"implementation": "MPICH"}, env={}))
        log = self.ends(agents[1], "hydra")
        self.assertEqual(sorted(re.findall(r"rank \d in \S+", log)), ["rank %d in worker-%d" % (n, n) for n in range(3)], log)

    def test_daemons_of_one_host_leave_each_others_files_alone(self):
        """With one directory for temporary files one of them ended now and then, without a word, and mpirun waited for ever."""
        agents = self.three()
        again = "for i in 1 2 3 4 5 6 7 8 9 10; do mpirun.openmpi -np 6 true || exit; done"
        agents[0].do("submit", self.mpi("often", ["sh", "-c", again], workers=6))
        self.ends(agents[0], "often")

    def begun(self, agents, name, generation):
        """Its ranks, by their numbers, once all are there."""
        until(lambda: len(re.findall(r"rank \d of 3 in \S+ of generation %d: sum 6" % generation, agents[0].do("logs", name))) == 3,
              lambda: "ranks of generation %d; %s; %s" % (generation, agents[0].ctl("logs", name, "--attempt", "all").stdout[-3000:],
                                                          agents[0].do("describe", "job", name)), 60)
        return self.processes("python3")

    def test_hydra_and_all_it_started_ends_with_it(self):
        agents = self.three()
        agents[0].do("submit", self.mpi("held", HYDRA + ["sh", "-c", "echo up in $DTRAIN_TASK; exec sleep 1000000"],
                                        options={"implementation": "MPICH"}, env={}))
        up = lambda generation: len(re.findall(r"up in worker-\d", agents[0].do("logs", "held", "--attempt", "all"))) == 3 * generation
        until(lambda: up(1), "three ranks")
        before = self.processes("mpirun.mpich", "mpiexec.hydra", "hydra_pmi_proxy", "dtrain-rsh")
        self.assertEqual(len(before), 1 + 3 + 3, harness.names_of(before))
        os.kill(self.processes("mpirun.mpich", "mpiexec.hydra")[0], signal.SIGKILL)
        until(lambda: self.job_at(agents[0], "held")["generation"] == 2 and up(2), "three ranks of the next generation")
        self.assertFalse([pid for pid in before if alive(pid)])
        os.kill(self.processes("hydra_pmi_proxy")[0], signal.SIGKILL)
        until(lambda: self.job_at(agents[0], "held")["generation"] == 3 and up(3), "three ranks once more")
        agents[0].do("cancel", "held")
        until(lambda: not self.processes("mpirun.mpich", "mpiexec.hydra", "hydra_pmi_proxy", "dtrain-rsh", "sleep"), "nothing to be left")

    def test_what_dies_takes_all_of_it_along_and_the_job_begins_again(self):
        agents = self.three()
        hold = self.write("hold", "")
        agents[0].do("submit", self.mpi("held", self.ranks(3, hold)))
        generation = 1
        # A rank, a daemon of mpirun, mpirun itself, and an agent, whose end nothing may notice.
        for victim in (lambda: self.begun(agents, "held", generation)[0], lambda: self.processes("orted")[0],
                       lambda: self.processes("mpirun.openmpi")[0]):
            self.begun(agents, "held", generation)
            before = self.processes("orted", "mpirun.openmpi", "python3")
            self.assertEqual(len(before), 3 + 1 + 3, harness.names_of(before))
            os.kill(victim(), signal.SIGKILL)
            generation += 1
            self.begun(agents, "held", generation)
            self.assertFalse([pid for pid in before if alive(pid)], "what is left of the generation before")
            fault = agents[0].ask("describe", "job", "held")["first_fault"]
            self.assertEqual((fault["task"], fault["generation"]), ("launcher-0", generation - 1), "what only mpirun knows of")
            if generation == 2:     # a rank, which mpirun's last words name
                self.assertRegex(fault["stderr_tail"], r"process rank \d with PID \d+ on node worker-\d.held exited on signal 9")
        worker = self.tasks_at(agents[0], "held")["worker-1"]
        os.kill(worker["pid"], signal.SIGKILL)
        generation += 1
        self.begun(agents, "held", generation)
        fault = agents[0].ask("describe", "job", "held")["first_fault"]
        self.assertEqual((fault["task"], fault["exit"]), ("worker-1", {"signal": "SIGKILL"}), "whose end ended mpirun")
        ranks = self.begun(agents, "held", generation)
        for agent in agents:
            agent.end()
            agent.start()
        until(lambda: all(a.states() == {"a1": "alive", "a2": "alive", "a3": "alive"} for a in agents), "all to be alive")
        self.running(agents[0], "held", 4)
        self.assertEqual(self.processes("python3"), ranks)
        os.unlink(hold)
        self.ends(agents[0], "held")
        self.assertEqual(self.job_at(agents[0], "held")["generation"], generation)

    def test_a_lost_host_ends_the_launcher_at_once(self):
        agents = self.three()
        hold = self.write("hold", "")
        agents[0].do("submit", self.mpi("moving", self.ranks(3, hold)))
        self.begun(agents, "moving", 1)
        tasks = self.tasks_at(agents[0], "moving")
        launcher = tasks["launcher-0"]
        victim = next(a for a in agents if a.name != launcher["node"] and a is not agents[0])
        self.kill_host(victim)
        until(lambda: not alive(launcher["pid"]), "the end of mpirun")
        rest = next(a for a in agents if a is not victim)
        until(lambda: self.job_at(rest, "moving")["generation"] == 2 and len(
            re.findall(r"rank \d of 3 in \S+ of generation 2: sum 6", rest.ctl("logs", "moving").stdout)) == 3,
            lambda: "its ranks elsewhere; %s" % self.tasks_at(rest, "moving"), 90)
        os.unlink(hold)
        until(lambda: self.job_at(rest, "moving")["state"] == "Succeeded", "its end")


class LaunchRights(test_roles.Accounts):
    """What a task of Anne's may launch where."""

    def test_what_a_task_may_not_launch(self):
        rsh = os.path.join(self.bin, "dtrain-rsh")
        shutil.copy(os.path.join(BIN, "dtrain-rsh"), rsh)
        os.chmod(rsh, 0o755)
        for user, name in ((test_roles.ANNE, "another"), (test_roles.BOB, "bobs")):
            self.begin(name, harness.SLEEP, user)
        script = """
ctl="%s/dtrainctl --agent $DTRAIN_AGENT"
tries() { echo "== $*"; shift; "$@" 2>&1; echo "exit $?"; }
until %s worker-1 true; do sleep 0.1; done
tries own %s worker-1 'echo in $DTRAIN_TASK as $(id -un)'
tries another env DTRAIN_JOB=another %s worker-0 id
tries bobs env DTRAIN_JOB=bobs %s worker-0 id
tries none env DTRAIN_JOB=nobodys %s worker-0 id
tries exec $ctl exec her worker-1 -- id
tries cancel $ctl cancel another
tries by-it %s worker-1 "$ctl cancel another"
tries by-its-daemon %s worker-1 "setsid -f sh -c '$ctl cancel another; echo over' > daemon 2>&1 < /dev/null
    until grep -q over daemon; do sleep 0.01; done; cat daemon"
echo done; exec sleep 1000000
""" % (self.bin, rsh, rsh, rsh, rsh, rsh, rsh, rsh)
        roles = {"worker": {"replicas": 2, "command": ["sh", "-c", "test $DTRAIN_INDEX = 1 && exec sleep 1000000;" + script]}}
        self.allowed(test_roles.ANNE, "submit", "-", stdin=json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": "her"},
            "spec": {"framework": "generic", "roles": roles}}).encode())
        log = until(lambda: (said := self.agent.do("logs", "her", "worker-0")).endswith("done\n") and said,
                    lambda: self.agent.do("logs", "her", "worker-0"))
        parts = {part.split(" ", 1)[0]: part for part in log.split("== ")[1:]}
        self.assertIn("in worker-1 as %s\nexit 0" % test_roles.ANNE, parts["own"])
        for name in ("another", "bobs", "none"):
            self.assertIn("a task may do so in its own job only", parts[name])
            self.assertIn("exit 255", parts[name])
        for name in ("exec", "cancel", "by-it", "by-its-daemon"):
            self.assertIn("it comes from inside a task", parts[name])
        self.assertEqual({job["name"]: job["state"] for job in self.agent.ask("jobs")},
                         dict.fromkeys(("her", "another", "bobs"), "Running"))
        events = self.events()
        self.assertEqual([(e["object"], e["message"]) for e in events if e["type"] == "audit.launch"][0],
                         ("her/worker-1", "job=her task=her/worker-1 from=her/worker-0 user=%s uid=%d at=n1 outcome=accepted" % (
                             test_roles.ANNE, pwd.getpwnam(test_roles.ANNE).pw_uid)))
        self.assertTrue([e for e in events if e["type"] == "access.refused" and "user=" + test_roles.ANNE in e["message"]])


if __name__ == "__main__":
    harness.main()
