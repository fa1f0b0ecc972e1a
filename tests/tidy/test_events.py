"""docs/events.md has every event and every line of the agent's log, with the priority that the code gives it."""
import re
import unittest

import tree

EVENT = r'"([a-z]+(?:[.-][a-z]+)+)"'
ROW = re.compile(r"^\| `([a-z.-]+)` \| (debug|info|warn|error) \|", re.M)
# A level, then the names up to the fields or the end of the statement; several of each where they are chosen.
WRITES = re.compile(r"((?:LogLevel::\w+[\s:?\w.()!]*)+),([^{};]*)")
LISTED = re.compile(r'\{' + EVENT + r', LogLevel::(\w+)')
LEVELS = re.compile(r'Level\{' + EVENT + r', LogLevel::(\w+)\}')
HISTORY = re.compile(r'\b(?:add_event|task_event)\(([^{};]*)')


def levels(text):
    return dict(LEVELS.findall(text))


def history(sources, states):
    """Of the ledger: names as they stand in add_event, task_event, and the states of jobs."""
    names = {"job." + state for state in states}
    for text in sources:
        for call, arguments in ((m.group(0), m.group(1)) for m in HISTORY.finditer(text)):
            if call.startswith("task_event"):
                names |= {"task." + n for n in re.findall(r'"([a-z]+(?:-[a-z]+)*)"', arguments)[:1]}
            else:
                names |= set(re.findall(EVENT, arguments))
    return names


def written(text):
    """Of the log: {name: level}."""
    found = dict(LISTED.findall(text))
    for match in WRITES.finditer(text):
        kinds = re.findall(r"LogLevel::(\w+)", match.group(1))
        names = re.findall(EVENT, match.group(2))
        for i, name in enumerate(names):
            found[name] = kinds[min(i, len(kinds) - 1)]
    for name in re.findall(r'\bwarn\(\s*(?:now_?, |log, )' + EVENT, text) + re.findall(r'tell\((?:\w+ \? )?' + EVENT, text):
        found[name] = "warn"
    for name in re.findall(r'tell\(\w+ \? "[a-z.]+" : ' + EVENT, text):
        found[name] = "warn"
    return found


def emitted():
    sources = {p: tree.read(p) for p in tree.files(".cpp", ".h", under="common") + tree.files(".cpp", ".h", under="agent")}
    known = levels(sources["common/node/event_levels.cpp"])
    of_states = re.search(r"string_view to_string\(JobState.*?\n}", sources["common/cluster/ledger.cpp"], re.S).group(0)
    ledger = [text for path, text in sources.items() if path.startswith("common/cluster/")]
    found = {name: known.get(name, "info") for name in history(ledger, re.findall(r'"([a-z]+)"', of_states))}
    for path, text in sources.items():
        if path != "common/node/event_levels.cpp":
            found.update(written(text))
    return found, known


class Events(tree.Tidy):
    def test_the_table_says_what_the_code_does(self):
        found, known = emitted()
        table = dict(ROW.findall(tree.read("docs/events.md")))
        self.holds(["docs/events.md lacks `%s` (%s)" % (n, found[n]) for n in sorted(found) if n not in table] +
                   ["docs/events.md has `%s`, which nothing writes" % n for n in sorted(table) if n not in found] +
                   ["`%s` is %s in docs/events.md, and %s in the code" % (n, table[n], found[n])
                    for n in sorted(found) if table.get(n, found[n]) != found[n]] +
                   ["event_levels.cpp has `%s`, which no ledger writes" % n for n in sorted(known) if n not in found])

    def test_both_ways_of_writing_are_seen(self):
        self.assertEqual(written('log_.write(LogLevel::warn, ok ? "a.b" : "a.c", {{"x", y}});'), {"a.b": "warn", "a.c": "warn"})
        self.assertEqual(written('w(p ? LogLevel::info : LogLevel::warn, p ? "h.e" : "h.f", {});'), {"h.e": "info", "h.f": "warn"})
        self.assertEqual(written('return {"member.dead", LogLevel::warn, true};'), {"member.dead": "warn"})
        self.assertEqual(written('members.tell("host.sick", reason);'), {"host.sick": "warn"})
        self.assertEqual(history(['task_event(t, "moves", cause); add_event(wall, 0, "host.lost", n);'], ["failed"]),
                         {"task.moves", "host.lost", "job.failed"})


if __name__ == "__main__":
    unittest.main()
