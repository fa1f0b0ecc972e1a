"""What the measurements share: an agent in a temporary directory, figures as JSON lines, options, Debian packages.

Agents and the clean-up come from the system tests' harness: whatever happens to a measurement, a janitor process ends every
process that names its directory. A latency goal that is missed is reported and no failure; a Violation is one.
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(HERE)
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(SOURCE, "tests", "system"))

import harness                              # noqa: E402
from harness import Agent, until            # noqa: E402

PLACES = 3                                  # digits behind the point of a printed figure


class Violation(Exception):
    """Something that must always hold did not; the measurement fails."""


def need(condition, what):
    if not condition:
        raise Violation(what)


# ---- figures

def spread(samples):
    ordered = sorted(samples)
    return {"median": round(statistics.median(ordered), PLACES),
            "p95": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))], PLACES),
            "max": round(ordered[-1], PLACES)}


def report(bench, what, unit, samples, peer=None, peer_samples=()):
    """Prints one figure. `peer` names the program that `peer_samples` are of."""
    figure = {"bench": bench, "what": what, "unit": unit, "n": len(samples), **spread(samples), "peer": None, "ratio": None}
    if peer:
        figure["peer"] = {"name": peer, "n": len(peer_samples), **spread(peer_samples)}
        if figure["peer"]["median"]:
            figure["ratio"] = round(figure["median"] / figure["peer"]["median"], PLACES)
    print(json.dumps(figure), flush=True)


def say(text):
    print(text, file=sys.stderr, flush=True)


# ---- packages

def need_packages(*names):
    """Installs what is missing. A peer's own service is not started: measurements bring their own configuration."""
    def installed(name):
        done = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Status}", name], capture_output=True, text=True)
        return done.stdout == "installed"
    missing = [name for name in names if not installed(name)]
    if not missing:
        return
    say("installing " + " ".join(missing))
    as_root = [] if os.geteuid() == 0 else ["sudo"]
    subprocess.run([*as_root, "env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "apt-get", "-q", "install", "-y",
                    "--no-install-recommends", *missing], check=True, stdout=sys.stderr)


# ---- the surroundings of one measurement

class Bench:
    """A temporary directory, agents in it, and the certainty that nothing stays behind. Use as a context manager."""

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))     # so that __exit__ runs
        self.top = tempfile.mkdtemp(prefix="dtrain-bench-")
        self._janitor = subprocess.Popen([sys.executable, harness.__file__, "--janitor", self.top], stdin=subprocess.PIPE,
                                         start_new_session=True)
        self._agents = []
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None and self._agents:
            say("the agent's log ends:\n" + self._agents[-1].log()[-3000:])
        for agent in self._agents:
            if agent.process is not None and agent.process.poll() is None:
                agent.end()
        self._janitor.stdin.close()
        self._janitor.wait()
        shutil.rmtree(self.top, ignore_errors=True)

    def agent(self):
        """A dtraind that answers."""
        # An address of its own per process: measurements and tests may run at once, and the ports are the same.
        number = os.getpid() % 64000
        agent = Agent(self.top, "n1", "127.%d.%d.%d" % (10 + os.getpid() // 64000 % 8, number // 250, 1 + number % 250))
        return self.keep(agent).start()

    def keep(self, agent):
        """Ends it with the measurement."""
        self._agents.append(agent)
        return agent

    def path(self, *parts):
        return os.path.join(self.top, *parts)

    def write(self, name, text):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        return path

    def job_file(self, name, roles, **spec):
        """JSON is YAML. Roles: {name: {replicas, command, ...}}."""
        return self.write("jobs/%s.yaml" % name, json.dumps({
            "apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"framework": spec.pop("framework", "generic"), "roles": roles, **spec}}))


def job_of(agent, name):
    return next(job for job in agent.ask("jobs") if job["name"] == name)


def tasks_of(agent, name):
    return {task["task"]: task for task in agent.ask("tasks", name)}


def wait_for(agent, name, state, seconds=harness.PATIENCE):
    """Until the job is in the state. Another final state is a violation."""
    def reached():
        job = job_of(agent, name)
        need(job["state"] == state or job["state"] not in harness.FINAL,
             "job %s is %s, not %s: %s" % (name, job["state"], state, job["reason"]))
        return job["state"] == state and job
    return until(reached, "job %s %s" % (name, state), seconds)


def remove(agent, name):
    """Ends the job's tasks and forgets it; returns when both are done."""
    agent.ctl("cancel", name)
    agent.do("--timeout", "%ds" % harness.PATIENCE, "wait", name, "--for", "Finished")
    until(lambda: all(not task["pid"] or not harness.alive(task["pid"]) for task in tasks_of(agent, name).values()),
          "the end of the tasks of " + name)
    agent.do("delete", name)


# ---- a measurement's main

def run(measure, description, more_options=lambda parser: None):
    """Parses the options, those that more_options(parser) adds among them, and calls measure(bench, options).

    Exit 1: a property did not hold, or it could not be measured.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer samples, to see that it works")
    more_options(parser)
    options = parser.parse_args()
    name = os.path.basename(sys.argv[0])
    try:
        with Bench() as bench:
            measure(bench, options)
    except Violation as error:
        say("%s: violated: %s" % (name, error))
        return 1
    except (AssertionError, harness.Refused, OSError, subprocess.SubprocessError, StopIteration) as error:
        say("%s: could not measure: %s: %s" % (name, type(error).__name__, error))
        return 1
    return 0
