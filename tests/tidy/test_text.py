"""Every file: of one idea and short, no promises left in it, nothing that holds on one machine only."""
import os
import re
import unittest

import tree

MAX_LINES = 500
MAX_COLUMNS = 140
# Longer with a reason: {path: why}
LONG = {}
BINARY = ("tests/fuzz/corpus/", "tests/golden/")
TEXT = (".cpp", ".h", ".py", ".sh", ".md", ".cmake", ".txt", ".yaml", ".json", ".service")

# Put together so that this file does not hold what it forbids.
MARKS = re.compile(r"\b(?:%s)\b" % "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")))
SKIPPED = re.compile("|".join(("DISABLED" + "_", "GTEST" + "_SKIP", "not imple" + "mented", r"unittest\." + "skip", r"\.skip" + r"Test\(")))
MACHINE = re.compile(r"(?<![\w.])/(?:%s)/" % "|".join(("wo" + "rk/(?:main|shared)", "home/[a-z]+", "Us" + "ers")))
ADDRESS = re.compile(r"\b(?:https?|ftp|git|ssh)" + r"://")


def too_long(path, text):
    count = text.count("\n")
    return [] if count <= MAX_LINES or path in LONG or path == "LICENSE" else \
        ["%d lines: is there a second idea in it? (limit %d)" % (count, MAX_LINES)]


def marks(path, text):
    return ["line %d: '%s'" % (tree.line_of(text, m.start()), m.group())
            for rule in (MARKS, SKIPPED) for m in rule.finditer(text)]


def machine_only(path, text):
    complaints = ["line %d: a path of one machine: %s" % (tree.line_of(text, m.start()), m.group()) for m in MACHINE.finditer(text)]
    if path != "LICENSE":
        complaints += ["line %d: an address in the network" % tree.line_of(text, m.start()) for m in ADDRESS.finditer(text)]
    return complaints


def untidy(path, text):
    complaints = ["line %d: blanks at its end" % (i + 1) for i, line in enumerate(text.split("\n")) if line != line.rstrip()]
    if "\t" in text and not path.endswith((".mk",)):
        complaints.append("line %d: a tab" % tree.line_of(text, text.index("\t")))
    if "\r" in text:
        complaints.append("carriage returns")
    if text and not text.endswith("\n"):
        complaints.append("no newline at the end")
    return complaints


def wide(path, text):
    """A line that no screen holds is no line to review."""
    return ["line %d: %d columns" % (i + 1, len(line)) for i, line in enumerate(text.split("\n")) if len(line) > MAX_COLUMNS]


class Text(tree.Tidy):
    def setUp(self):
        self.files = [path for path in tree.files() if not path.startswith(BINARY)
                      and (path.endswith(TEXT) or "." not in os.path.basename(path))]

    def test_tree(self):
        self.assertTrue(self.files)
        for rule in (too_long, marks, machine_only, untidy):
            self.holds(tree.check(rule, self.files))

    def test_width(self):
        # Not the C++ tests: the job files and scenarios in them read better unbroken.
        code = [path for path in self.files if path.endswith((".cpp", ".h", ".py", ".sh"))]
        self.holds(tree.check(wide, [path for path in code if not re.match(r"tests/.*\.(cpp|h)$", path)]))

    def test_allow_list_is_needed(self):
        for path, why in LONG.items():
            self.assertTrue(why, path)
            self.assertGreater(tree.read(path).count("\n"), MAX_LINES, path + " is short by now: take it off the list")

    def test_rules_bite(self):
        self.assertTrue(too_long("a.cpp", "x\n" * 501))
        self.assertEqual(too_long("a.cpp", "x\n" * 500), [])
        for bad in ("// TO" + "DO: later", "# FIX" + "ME", "// XX" + "X", "GTEST" + "_SKIP();", "TEST(A, DISABLED" + "_b)"):
            self.assertTrue(marks("a", bad), bad)
        self.assertEqual(marks("a", "mktemp /tmp/x.XXXX" + "XX"), [])
        for bad in ("/wo" + "rk/main/x", "see http" + "://host/x", "/home/j" + "oe/x"):
            self.assertTrue(machine_only("a", bad), bad)
        self.assertEqual(machine_only("a", "the work/ directory, 127.0.0.1:7400, /var/lib/dtrain/work"), [])
        for bad in ("a \n", "a\tb\n", "a\r\n", "a"):
            self.assertTrue(untidy("a.cpp", bad), repr(bad))
        self.assertTrue(wide("a.cpp", "x" * (MAX_COLUMNS + 1)))


if __name__ == "__main__":
    unittest.main()
