"""Processor time of dtrain-discover: on a large machine's /sys and /proc, which it finds in a directory; and with --topologies DIR
on recorded machines, hwloc XML files that are no part of this project. Of those it is checked too that an agent started with
--topology says exactly what the table in DIR/README.md says."""
import os
import re
import resource
import subprocess
import sys

import common
from common import harness
from fake_machine import FakeMachine

ROW = re.compile(r"^\| (\S+\.xml) \| [^|]* \| ([^|]*) \| ([^|]*) \|$")     # file, machine, GPUs, NUMA nodes
WHAT = "discovering %s, processor time"


def cpu_ms(runs, *arguments):
    samples = []
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([os.path.join(harness.BIN, "dtrain-discover"), "--text", *arguments], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        samples.append(1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    return samples


def large_machine(root):
    """256 threads on eight NUMA nodes, sixteen GPUs."""
    machine = FakeMachine(root, nodes=8, cores=128, threads=2)
    for i in range(16):
        machine.nvidia("0000:%02x:00.0" % (0x10 + i), i // 2)


def table_of(directory):
    """File -> (GPUs, NUMA nodes); None: it is refused."""
    rows = {}
    with open(os.path.join(directory, "README.md")) as file:
        for name, gpus, nodes in (match.groups() for match in map(ROW.match, file.read().splitlines()) if match):
            counts = [int(count) for count in re.findall(r"(?:^|\+ )(\d+) ", gpus)]     # "1 NVIDIA + 1 AMD"
            rows[name] = (sum(counts), int(nodes)) if counts else None
    common.need(rows, "%s/README.md has no table" % directory)
    return rows


def said_by_agent(bench, file, number):
    """(GPUs, NUMA nodes) as an agent shows them; the error where it ends with one."""
    agent = harness.Agent(bench.top, "n%d" % number, "127.19.0.%d" % number, "--topology", file)
    checked = subprocess.run([*agent.command(), "--check-config"], capture_output=True, text=True, timeout=60)
    if checked.returncode != 0:
        return checked.stderr.strip()
    bench.keep(agent).start()
    topology = agent.ask("topology", agent.name)
    addresses = [gpu["pci"] for gpu in topology["gpus"]]
    common.need(len(addresses) == len(set(addresses)), "%s: an address twice: %s" % (file, addresses))
    agent.end()
    return len(addresses), topology["numa_nodes"]


def check(bench, directory, runs):
    table = table_of(directory)
    for number, (name, expected) in enumerate(sorted(table.items()), 1):
        file = os.path.join(directory, name)
        said = said_by_agent(bench, file, number)
        if expected is None:
            common.need(isinstance(said, str) and "could not read topology " + file in said, "%s is not refused: %s" % (name, said))
            continue
        common.need(said == expected, "%s: (GPUs, NUMA nodes) %s, and not %s" % (name, said, expected))
        common.report("discovery", WHAT % name, "ms", cpu_ms(runs, "--topology", file))
    common.say("discovery: %d files as in the table of %s" % (len(table), directory))


def measure(bench, options):
    runs = 5 if options.quick else 50
    large_machine(bench.path("machine"))
    common.report("discovery", WHAT % "256 threads, 8 NUMA nodes and 16 GPUs", "ms", cpu_ms(runs, "--root", bench.path("machine")))
    if options.topologies:
        check(bench, options.topologies, runs)


if __name__ == "__main__":
    sys.exit(common.run(measure, __doc__, lambda parser: parser.add_argument("--topologies", metavar="DIR")))
