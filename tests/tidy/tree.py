"""The files of this tree, and C++ source without what only people read. Shared by the rules beside it."""
import os
import re
import sys
import unittest

sys.dont_write_bytecode = True
ROOT = os.environ.get("DTRAIN_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CODE = (".cpp", ".h")


def files(*endings, under=""):
    """Paths relative to the root, sorted; without build directories and what git keeps for itself."""
    found = []
    for directory, names, members in os.walk(os.path.join(ROOT, under)):
        names[:] = sorted(n for n in names if n not in (".git", "__pycache__", "build") and not n.startswith("build-"))
        for member in members:  # .git is a file in a worktree
            path = os.path.relpath(os.path.join(directory, member), ROOT)
            if member != ".git" and (not endings or path.endswith(endings)) and not os.path.islink(os.path.join(ROOT, path)):
                found.append(path)
    return sorted(found)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def check(rule, paths):
    """All complaints of a rule (path, text) -> [complaint] over the files, each with its path in front."""
    return ["%s: %s" % (path, complaint) for path in paths for complaint in rule(path, read(path))]


COMMENT_OR_LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)


def bare(text):
    """C++ without comments and with empty string literals; lines keep their numbers."""
    def blank(match):
        kept = "\n" * match.group().count("\n")
        return '""' + kept if match.group()[0] in "\"'R" else kept
    lines = text.split("\n")        # include lines hold paths in quotes that are no literals
    includes = {i: line for i, line in enumerate(lines) if line.lstrip().startswith("#include")}
    for i in includes:
        lines[i] = ""
    result = COMMENT_OR_LITERAL.sub(blank, "\n".join(lines)).split("\n")
    for i, line in includes.items():
        result[i] = line.split("//")[0]
    return "\n".join(result)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


class Tidy(unittest.TestCase):
    def holds(self, complaints):
        """No complaint; else each on a line of its own."""
        if complaints:
            self.fail("%d complaints:\n%s" % (len(complaints), "\n".join(complaints)))
