"""Include order: base <- {wire, transfer} <- {gossip, raft, relay, job} <- {cluster, task, json} <- node <- agent/* <- agent/dtraind.

Cores of one group never include each other, nor do siblings in agent/, but for what is below them: agent/base, which is below all of
agent/ but the shim, and agent/account; the daemon wires them.
dtrainctl is a client: it sees common/{base,wire,job,json} and what CLIENT_SEES names, so that it can never reach into an agent.
"""
import os
import re
import unittest

import tree

LEVELS = {"base": 0, "wire": 1, "transfer": 1, "gossip": 2, "raft": 2, "relay": 2, "job": 2, "cluster": 3, "task": 3, "json": 3, "node": 4}
SIBLINGS = {"loop", "net", "host", "proc", "store", "metrics"}
BELOW_SIBLINGS = "account"
BELOW_ALL = "base"
CLIENT_SEES = {"agent/store/checkpoint_reader.h",      # `verify PATH` needs no agent
               "agent/store/package.h",                # packing happens where the files are
               "agent/net/client_link.h",              # the way to an agent elsewhere: its two ends are one conversation
               "agent/net/cluster_keys.h",             # `keygen --client` derives what agents serve clients with
               "agent/dtraind/exam_terms.h",           # `doctor` looks for itself where no agent answers: at what, how,
               "agent/host/doctor_facts.h", "common/node/doctor.h"}  # and what it means
DISCOVERER_SEES = {"agent/host/machine.h",           # the discoverer and its caller, likewise
                   "agent/host/known_gpus.h", "agent/host/pci_address.h"}
LAUNCHER_SEES = {"agent/dtrain-shim/protocol.h",       # a launcher and its shim are two ends of one conversation
                 "agent/dtrain-shim/vfork_clone.h"}    # both start processes without copying page tables
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def unit(path):
    """("common", "job") of common/job/manifest.h"""
    parts = path.split("/")
    return (parts[0], parts[1]) if len(parts) > 2 else (parts[0], "")


def forbidden(path, target):
    """Why `path` must not include `target`; None where it may."""
    (top, own), (target_top, other) = unit(path), unit(target)
    if top == "tests" or top == "bench":
        return None
    if target_top not in ("common", "agent"):
        return "includes go from the project's root into common/ or agent/"
    if top == "common":
        if target_top != "common":
            return "common/ decides and never sees agent/"
        if own not in LEVELS or other not in LEVELS:
            return "a directory that the layering does not know"
        if own != other and LEVELS[own] <= LEVELS[other]:
            return "%s comes before %s in the include order" % (own, other)
        return None
    if own == other and target_top == "agent":
        return None
    if target_top == "agent" and other == BELOW_ALL and own != "dtrain-shim":
        return None
    if own == "dtrainctl":
        if (target_top == "common" and other in ("base", "wire", "job", "json")) or target in CLIENT_SEES:
            return None
        return "dtrainctl sees common/{base,wire,job,json} and what CLIENT_SEES names"
    if own == "dtrain-shim":
        if target_top == "common" and other in ("base", "task"):
            return None
        return "dtrain-shim stands alone: common/{base,task} only"
    if own == "dtrain-discover":
        if target_top == "common" or target in DISCOVERER_SEES:
            return None
        return "dtrain-discover sees common/ and what DISCOVERER_SEES names"
    if own == "dtraind":
        if target_top == "agent" and other in ("dtrainctl", "dtrain-shim", "dtrain-discover"):
            return "programs do not include each other"
        return None
    if own == BELOW_ALL:
        return None if unit(target) == ("common", "base") else "agent/base stands on common/base alone"
    if own in SIBLINGS or own == BELOW_SIBLINGS:
        if target_top == "common" or (own in SIBLINGS and other == BELOW_SIBLINGS) or (own == "proc" and target in LAUNCHER_SEES):
            return None
        return "siblings in agent/ never include each other; the daemon wires them"
    return "a directory that the layering does not know"


def misordered(path, text):
    complaints = []
    for match in INCLUDE.finditer(tree.bare(text)):
        reason = forbidden(path, match.group(1))
        if reason:
            complaints.append("line %d includes %s: %s" % (tree.line_of(text, match.start(1)), match.group(1), reason))
    return complaints


def unresolved(path, text):
    return ["includes %s, which does not exist from the project's root" % target
            for target in INCLUDE.findall(tree.bare(text)) if not os.path.isfile(os.path.join(tree.ROOT, target))]


def unguarded(path, text):
    return [] if not path.endswith(".h") or "#pragma once" in text else ["a header without #pragma once"]


def spreads_json(path, text):
    """The JSON library in a header that much of common/ would include: it costs a second of each compilation."""
    if not path.startswith("common/") or unit(path)[1] == "json" or not path.endswith(".h"):
        return []
    return ["line %d brings the JSON library into a header of common/" % tree.line_of(text, match.start())
            for match in re.finditer(r"#\s*include\s*(<nlohmann/|\"common/json/)", text)]


class Layers(tree.Tidy):
    def setUp(self):
        self.sources = tree.files(*tree.CODE)

    def test_tree(self):
        self.assertTrue(self.sources)
        for rule in (misordered, unresolved, unguarded, spreads_json):
            self.holds(tree.check(rule, self.sources))

    def test_rules_bite(self):
        for path, target in (("common/base/a.h", "common/wire/codec.h"), ("common/job/a.cpp", "common/raft/log_entry.h"),
                             ("common/transfer/a.h", "common/wire/codec.h"),
                             ("common/task/a.h", "common/cluster/ledger.h"), ("common/node/a.h", "agent/proc/runner.h"),
                             ("agent/net/a.h", "agent/store/blobs.h"), ("agent/dtrainctl/a.cpp", "common/node/node.h"),
                             ("agent/dtrainctl/a.cpp", "agent/store/database.h"), ("agent/extra/a.h", "common/base/ids.h"),
                             ("agent/dtrain-shim/main.cpp", "common/wire/codec.h"), ("agent/dtrain-shim/a.cpp", "agent/base/epoll.h"),
                             ("agent/base/a.h", "agent/loop/clock.h"), ("agent/base/a.h", "common/wire/codec.h"),
                             ("common/job/a.h", "job_spec.h"), ("common/json/a.h", "common/cluster/ledger.h"),
                             ("common/job/a.cpp", "common/json/answers.h"),
                             ("agent/dtraind/main.cpp", "agent/dtrainctl/client.h"),
                             ("agent/dtrain-discover/gpu.h", "agent/host/facts.h"),
                             ("agent/dtraind/main.cpp", "agent/dtrain-discover/gpu.h")):
            self.assertEqual(len(misordered(path, '#include "%s"\n' % target)), 1, (path, target))
        for path, target in (("common/wire/a.h", "common/base/ids.h"), ("common/node/a.h", "common/task/shim_spec.h"),
                             ("common/job/a.h", "common/transfer/checkpoint.h"),
                             ("agent/dtraind/main.cpp", "agent/net/control_server.h"), ("agent/dtraind/main.cpp", "common/json/answers.h"),
                             ("agent/dtrainctl/a.cpp", "agent/store/checkpoint_reader.h"),
                             ("agent/dtrain-discover/main.cpp", "agent/host/machine.h"),
                             ("agent/dtrainctl/a.cpp", "agent/base/unique_fd.h"), ("agent/account/a.cpp", "agent/base/unique_fd.h"),
                             ("agent/proc/a.cpp", "agent/dtrain-shim/protocol.h"), ("tests/unit/a.cpp", "agent/net/x.h")):
            self.assertEqual(misordered(path, '#include "%s"\n' % target), [], (path, target))
        self.assertEqual(misordered("common/base/a.h", '// #include "common/wire/codec.h"\n'), [])
        self.assertTrue(unresolved("a.h", '#include "common/base/no_such_file.h"\n'))
        self.assertTrue(unguarded("a.h", "int f();\n"))
        for path, target in (("common/wire/a.h", "<nlohmann/json.hpp>"), ("common/node/a.h", '"common/json/json.h"')):
            self.assertEqual(len(spreads_json(path, "#include %s\n" % target)), 1, path)
        for path in ("common/json/a.h", "common/wire/a.cpp", "agent/dtrainctl/a.h"):
            self.assertEqual(spreads_json(path, "#include <nlohmann/json.hpp>\n"), [], path)


if __name__ == "__main__":
    unittest.main()
