"""Slurm as a peer: a controller and three slurmd on this machine, from Debian's packages, in the measurement's directory.

What makes jobs wait is switched off (the pause before a queue is looked at again, the batch delay), and nothing is accounted, bound or
confined. Root only: slurmd is. Messages are authenticated by munge, as Slurm's are by default, and not encrypted; ours are.
"""
import os
import signal
import socket
import subprocess

import common
from common import harness, until

NODES = 3
CONFIG = """ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={top}/munge.sock
SlurmctldPort={ports[0]}
SlurmctldPidFile={top}/controller.pid
SlurmdPidFile={top}/%n.pid
SlurmdSpoolDir={top}/spool-%n
StateSaveLocation={top}/state
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,sched_interval=1,default_queue_depth=1000
ReturnToService=2
MpiDefault=none
MailProg=/bin/true
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
CPUS = 256      # told of each node: what is submitted at once runs at once


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Slurm:
    def __init__(self, bench):
        common.need_packages("slurmctld", "slurmd", "slurm-client", "munge")
        self.bench, self.top = bench, bench.path("slurm")
        host, ports = socket.gethostname().split(".")[0], free_ports(NODES + 1)
        node = "NodeName=n%d NodeHostname=%s NodeAddr=127.0.0.1 Port=%d CPUs=%d State=UNKNOWN"
        nodes = "\n".join(node % (i + 1, host, ports[i + 1], CPUS) for i in range(NODES))
        os.makedirs(self.top + "/state")
        os.chmod(bench.top, 0o755)          # munged wants others to reach its socket
        self.environment = {**os.environ, "SLURM_CONF": bench.write("slurm/slurm.conf", CONFIG.format(
            host=host, top=self.top, ports=ports, nodes=nodes))}
        with open(self.top + "/munge.key", "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as key:
            key.write(os.urandom(1024))
        files = ["--%s=%s/munge.%s" % (option, self.top, end) for option, end in
                 (("key-file", "key"), ("socket", "sock"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"))]
        self.processes = [self.begin("munged", "--foreground", "--force", *files), self.begin("slurmctld", "-D", "-c"),
                          *(self.begin("slurmd", "-D", "-N", "n%d" % (i + 1)) for i in range(NODES))]
        until(lambda: self.ask("sinfo", "--noheader", "--states=idle", "--format=%D").stdout.strip() == str(NODES),
              lambda: "%d idle nodes of Slurm: %s; its logs are %s/*.out" % (NODES, self.ask("sinfo").stdout, self.top))

    def begin(self, *command):
        with open("%s/%s-%s.out" % (self.top, command[0], command[-1].lstrip("-").split("/")[-1]), "w") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment, start_new_session=True)

    def ask(self, *command):
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=harness.PATIENCE)

    def run_tasks(self, count, nodes, command):
        """That many tasks of one job on so many nodes; the process that waits for them."""
        return subprocess.Popen(["srun", "--nodes=%d" % nodes, "--ntasks=%d" % count, *command], env=self.environment,
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def submit_many(self, count, program):
        """An array of one-task jobs; one that Slurm could not launch is over, too."""
        done = self.ask("sbatch", "--array=1-%d" % count, "--no-requeue", "--output=/dev/null", "--wrap", program)
        common.need(done.returncode == 0, done.stderr)

    def unfinished(self):
        """Jobs, each of an array by itself."""
        done = self.ask("squeue", "--noheader", "--array", "--format=%i")
        common.need(done.returncode == 0, done.stderr)
        return len(done.stdout.split())

    def clear(self, client):
        """Ends what runs; returns once nothing does."""
        self.ask("scancel", "--signal=KILL", "--user=root")
        client.wait(harness.PATIENCE)
        until(lambda: not self.unfinished(), "the end of Slurm's job")

    def end(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            process.wait(harness.PATIENCE)
