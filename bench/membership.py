"""Membership: our agents and Debian's serf, one cluster after the other on this machine, through the same faults.

    bench/membership.py [--quick] [--sizes 8,32,64,128] [--rows kill,frozen,...] [--programs dtrain,serf]
                        [--at-once N] [--raw FILE] [--publish]

Each cluster lives in namespaces of its own (tests/system/agents_lab.py), each agent at its own loopback address, as its own
user, with its files in memory. Which program goes first changes from size to size. Root is needed. All rows at one size take
some 15 minutes a program; --at-once runs several clusters beside each other, which is quicker and shows some of their load.
--raw also writes every sample with the load average at its time; --publish writes them to docs/benchmarks/membership.json and
draws docs/membership.svg from them.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import time

from common import SOURCE, need_packages, report, say

import agents_lab
import membership_plot
import membership_rows as rows

AT_MOST = 3 * 3600              # seconds for one cluster through all rows
SEED = 3                        # the same victims in every run
SIZES = (8, 32, 64, 128)


class Serf(agents_lab.Program):
    """HashiCorp serf with its defaults for a LAN; it logs what it thinks of others on stdout. Unencrypted, its default."""
    name = "serf"
    patterns = {
        "alive": rb"EventMemberJoin: (\S+)",
        "failed": rb"EventMemberFailed: (\S+)",
        "left": rb"EventMember(?:Leave|Reap): (\S+)",
        "suspect": rb"memberlist: Suspect (\S+) has failed",
        "refute": rb"Refuting a (?:suspect|dead) message \(from: (\S+)\)",
    }

    def command(self, member, seed):
        return [*member.prefix, "/usr/bin/serf", "agent", "-node=" + member.name, "-bind=%s:7946" % member.ip,
                "-rpc-addr=%s:7373" % member.ip, "-profile=lan",
                *(["-retry-join=%s:7946" % seed.ip, "-retry-interval=1s"] if seed else [])]


PROGRAMS = {"dtrain": agents_lab.Dtraind, "serf": Serf}


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="8 agents and few repeats, to see that it works")
    parser.add_argument("--sizes", help="agents per cluster, default %s" % ",".join(map(str, SIZES)))
    parser.add_argument("--rows", default=",".join(rows.ROWS), help="default: %(default)s")
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="default: %(default)s")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="clusters that run at the same time, default %(default)s")
    parser.add_argument("--raw", help="write every sample to this file, as JSON")
    parser.add_argument("--publish", action="store_true", help="put samples and plot into docs/")
    parser.add_argument("--inside", nargs=2, metavar=("PROGRAM", "SIZE"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.rows, options.programs = options.rows.split(","), options.programs.split(",")
    options.sizes = [int(size) for size in options.sizes.split(",")] if options.sizes else [8] if options.quick else SIZES
    for name, known in [(row, rows.ROWS) for row in options.rows] + [(program, PROGRAMS) for program in options.programs]:
        if name not in known:
            parser.error("there is no %s; there are: %s" % (name, ", ".join(known)))
    if min(options.sizes) < 4:
        parser.error("a cluster has at least 4 agents")
    return options


def inside(program, size, options):
    """In the namespaces: one cluster through the rows; a JSON line on stdout for every figure and every failed row."""
    lab = agents_lab.Lab(agents_lab.enter(AT_MOST), PROGRAMS[program](), size)
    around = rows.Surroundings(lab, SEED, options.quick)
    for name in (row for row in rows.ROWS if row in options.rows):
        start, load = time.monotonic(), os.getloadavg()[0]
        try:
            if name != "join" and not all(member.running() for member in lab.members):
                lab.renew()     # nothing runs yet, or something that should run has ended
                lab.start()
            figures = rows.ROWS[name](around)
        except (AssertionError, OSError) as error:
            print(json.dumps({"row": name, "error": str(error)}), flush=True)
            lab.renew()
            continue
        for what, unit, samples, missed in figures:
            print(json.dumps({"row": name, "what": what, "unit": unit, "samples": samples, "missed": missed, "load": load}), flush=True)
        say("%s, %d agents: %s took %d s, load average %.1f" % (program, size, name, time.monotonic() - start, load))


def cluster(program, size, options):
    """The figures of one cluster, and what failed."""
    arguments = [os.path.abspath(__file__), "--rows", ",".join(options.rows), "--inside", program, str(size)]
    figures, failed = [], []
    with agents_lab.outside(arguments + ["--quick"] * options.quick, AT_MOST, stdout=subprocess.PIPE) as process:
        try:
            for line in process.stdout:
                figure = {"program": program, "agents": size, **json.loads(line)}
                if "error" in figure:
                    say("membership: %s, %d agents: could not measure %s: %s" % (program, size, figure["row"], figure["error"]))
                (failed if "error" in figure else figures).append(figure)
        finally:
            process.stdin.close()
    if process.returncode != 0:
        say("membership: %s, %d agents: ended with %d" % (program, size, process.returncode))
        failed.append({"program": program, "agents": size, "error": "exit %d" % process.returncode})
    return figures, failed


def print_figures(size, figures):
    """Ours beside the peer's, in the order of the rows."""
    for what, unit in dict.fromkeys((figure["what"], figure["unit"]) for figure in figures):
        sides = {figure["program"]: figure for figure in figures if figure["what"] == what}
        ours, peer = sides.get("dtrain", {}).get("samples"), sides.get("serf", {}).get("samples")
        name = "%d agents, %s" % (size, what)
        if ours:
            report("membership", name, unit, ours, "serf" if peer else None, peer or ())
        elif peer:
            report("membership", name + " (serf alone)", unit, peer)
        for program, side in sides.items():
            if side["missed"]:
                report("membership", "%s: %s: not within the limit" % (name, program), "", [side["missed"]])


def write(options, raw):
    lines = ",\n".join(json.dumps(figure) for figure in raw["figures"])
    text = json.dumps({**raw, "figures": []}).replace('"figures": []', '"figures": [\n%s\n]' % lines) + "\n"
    published = os.path.join(SOURCE, "docs", "benchmarks", "membership.json") if options.publish else None
    for path in filter(None, (options.raw, published)):
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
    if options.publish:
        with open(os.path.join(SOURCE, "docs", "membership.svg"), "w") as file:
            file.write(membership_plot.plot(raw))


def main():
    options = parse(sys.argv[1:])
    if options.inside:
        inside(options.inside[0], int(options.inside[1]), options)
        return 0
    need_packages("iproute2", "nftables", *(["serf"] if "serf" in options.programs else []))
    turns = [(size, program) for turn, size in enumerate(options.sizes)
             for program in (options.programs if turn % 2 == 0 else reversed(options.programs))]
    figures, failed = [], []
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as lanes:
        running = {lanes.submit(cluster, program, size, options): size for size, program in turns}
        for done in concurrent.futures.as_completed(running):
            good, bad = done.result()
            figures += good
            failed += bad
            size = running.pop(done)
            if size not in running.values():
                print_figures(size, [figure for figure in figures if figure["agents"] == size])
            raw = {"at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "processors": os.cpu_count(),
                   "system": os.uname().release, "quick": options.quick, "at_once": options.at_once,
                   "figures": sorted(figures, key=lambda figure: figure["agents"]), "failed": failed}
            write(options, raw)     # after each cluster: a run of hours may be ended early
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
