"""From before dtrainctl submit is started until the last of a job's five processes runs, beside supervisorctl start.

The five programs are first_stamp.cpp: their first act is to write the time to a named pipe; then they sleep. Interleaved pairs,
with the order changing from pair to pair.
"""
import os
import subprocess
import sys
import time

import common
from common import until
from restart import Stamps

TASKS = 5
WARM_UP_PAIRS = 2           # not counted: page cache, first-time paths


def last_start(stamps, since, count=TASKS):
    """ms from `since` to the last of that many starts; the pids."""
    found = [stamps.next(common.harness.PATIENCE) for _ in range(count)]
    return (max(stamp for stamp, _ in found) - since) / 1e6, [pid for _, pid in found]


class Ours:
    def __init__(self, bench, program):
        self.bench, self.agent, self.number = bench, bench.agent(), 0
        self.stamps = Stamps(bench.path("ours.stamps"))
        self.command = [program, self.stamps.path]

    def once(self):
        self.number += 1
        name = "five-%d" % self.number
        job = self.bench.job_file(name, {"worker": {"replicas": TASKS, "command": self.command}})
        command = self.agent.ctl_command("submit", job)
        since = time.monotonic_ns()
        client = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        elapsed, _ = last_start(self.stamps, since)
        common.need(client.wait(common.harness.PATIENCE) == 0, "dtrainctl submit failed")
        common.remove(self.agent, name)
        return elapsed


class Supervisord:
    def __init__(self, bench, program):
        self.stamps = Stamps(bench.path("peer.stamps"))
        names = ["p%d" % index for index in range(TASKS)]
        programs = "".join("[program:%s]\ncommand=%s %s\nautostart=false\nautorestart=false\nstartsecs=0\n"
                           "stdout_logfile=%s\nredirect_stderr=true\n" %
                           (name, program, self.stamps.path, bench.path("peer.%s.log" % name)) for name in names)
        user = "user=root\n" if os.geteuid() == 0 else ""
        self.config = bench.write("supervisord.conf", (
            "[supervisord]\nnodaemon=true\n%slogfile=%s\npidfile=%s\nchildlogdir=%s\n"
            "[unix_http_server]\nfile=%s\n[supervisorctl]\nserverurl=unix:" + "//%s\n"
            "[rpcinterface:supervisor]\nsupervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface\n"
            "[group:five]\nprograms=%s\n%s") %
            (user, bench.path("peer.log"), bench.path("peer.pid"), bench.top, bench.path("peer.sock"), bench.path("peer.sock"),
             ",".join(names), programs))
        self.process = subprocess.Popen(["/usr/bin/supervisord", "-c", self.config], stdout=subprocess.DEVNULL)
        until(lambda: os.path.exists(bench.path("peer.sock")) and self.control("pid").returncode == 0, "supervisord's answer")

    def control(self, *words):
        return subprocess.run(["/usr/bin/supervisorctl", "-c", self.config, *words], capture_output=True)

    def once(self):
        since = time.monotonic_ns()
        client = subprocess.Popen(["/usr/bin/supervisorctl", "-c", self.config, "start", "five:*"], stdout=subprocess.DEVNULL)
        elapsed, pids = last_start(self.stamps, since)
        client.wait(common.harness.PATIENCE)
        self.control("stop", "five:*")
        until(lambda: not any(common.harness.alive(pid) for pid in pids), "the end of supervisord's programs")
        return elapsed

    def stop(self):
        self.process.terminate()
        self.process.wait(common.harness.PATIENCE)


def measure(bench, options):
    common.need_packages("supervisor")
    program = os.path.join(common.harness.BIN, "first_stamp")
    ours, peer = Ours(bench, program), Supervisord(bench, program)
    times = {ours: [], peer: []}
    for pair in range(WARM_UP_PAIRS + (5 if options.quick else 20)):
        for side in ((ours, peer), (peer, ours))[pair % 2]:
            elapsed = side.once()
            if pair >= WARM_UP_PAIRS:
                times[side].append(elapsed)
    peer.stop()
    common.report("submit", "submit to the last of five processes' own start", "ms", times[ours], "supervisorctl start", times[peer])


if __name__ == "__main__":
    sys.exit(common.run(measure, __doc__))
