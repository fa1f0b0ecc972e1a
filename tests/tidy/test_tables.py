"""What differs between frameworks is in the table of common/job/frameworks.h and the files framework_*, what differs between formats of
checkpoints in common/transfer: nothing else in common/ and agent/ compares with the name of one of them or of a role, or looks
one up by it."""
import re
import unittest

import tree
from test_layers import INCLUDE

TABLE = re.compile(r"common/(?:job/framework|transfer/format)\w*\.(?:h|cpp)")
SEEN_OF_TRANSFER = {"checkpoint", "format", "selection", "shares", "digest", "crc32c"}  # by others; the rest reads one format
# Who writes job files has to say what is in them: {path: the words}
WRITERS = {"agent/dtrainctl/cmd_run.cpp": ("ps", "chief", "worker")}
VALUE = re.compile(r"\bFramework::\w+")
NAMED = re.compile(r'\.name = "(\w+)"')
LINE = re.compile(r'FrameworkLine\{Framework::\w+, "(\w+)"')
# Where a word is one to decide by. Words alone are not: a role may be called as something else is that a message or a field names.
DECIDING = [re.compile(pattern) for pattern in (
    r'=\s*"(\w+)"', r'"(\w+)"\s*[=!]=', r'\["(\w+)"\]', r'TaskId\s*\{\s*"(\w+)"',
    r'\b(?:has_role|role_rules|contains|count|find|at|compare|starts_with|ends_with)\s*\([^()"]*"(\w+)"',
    r'for\s*\([^;{}]*:\s*\{[^{}]*?"(\w+)"')]


def words():
    """The names of all frameworks, of all roles that one has rules for, and of all formats."""
    text = "\n".join(tree.read(path) for path in tree.files(*tree.CODE, under="common") if TABLE.fullmatch(path))
    return set(LINE.findall(text)) | set(NAMED.findall(text))


def uncommented(text):
    return tree.COMMENT_OR_LITERAL.sub(lambda m: m.group() if m.group()[0] in "\"'R" else "\n" * m.group().count("\n"), text)


def names_one(path, text, known):
    if TABLE.fullmatch(path):
        return []
    code, allowed = uncommented(text), WRITERS.get(path, ())
    found = [(m.start(), m.group()) for m in VALUE.finditer(code)]
    found += [(m.start(1), m.group(1)) for pattern in DECIDING for m in pattern.finditer(code)
              if m.group(1) in known and m.group(1) not in allowed]
    return ["line %d: %s: ask rules_of(), role_rules() (common/job/framework.h) or format_of() (common/transfer/format.h)" %
            (tree.line_of(code, at), what) for at, what in sorted(found)]


def reads_one_format(path, text):
    headers = [re.fullmatch(r"common/transfer/(\w+)\.h", target) for target in INCLUDE.findall(tree.bare(text))]
    return ["includes %s: ask format_of() (common/transfer/format.h)" % header.group()
            for header in headers if header and header.group(1) not in SEEN_OF_TRANSFER and not path.startswith("common/transfer/")]


class Tables(tree.Tidy):
    def setUp(self):
        self.known = words()
        self.assertLessEqual({"tensorflow", "pytorch", "generic", "ps", "chief", "master", "worker", "evaluator", "manifest"}, self.known)

    def test_tree(self):
        sources = [path for top in ("common", "agent") for path in tree.files(*tree.CODE, under=top)]
        self.assertTrue(sources)
        self.holds(tree.check(lambda path, text: names_one(path, text, self.known), sources) + tree.check(reads_one_format, sources))

    def test_exceptions_are_needed(self):
        for path, allowed in WRITERS.items():
            found = {word for pattern in DECIDING for word in pattern.findall(uncommented(tree.read(path)))}
            self.assertEqual([word for word in allowed if word not in found], [], path)

    def test_rules_bite(self):
        for bad in ('if (role == "ps") return;', 'if ("chief" != role) return;', 'has_role(spec, "worker")', 'roles.contains("master")',
                    'std::string_view kMine = "ps";', 'for (const char* role : {"chief", "x"}) f();', 'return TaskId{"worker", 0};',
                    'spec.roles["ps"]', "spec.framework == job::Framework::tensorflow", "case Framework::pytorch:", 'word == "tensorflow"'):
            self.assertEqual(len(names_one("common/x/a.cpp", bad + "\n", self.known)), 1, bad)
        for good in ("// a role such as \"ps\" or Framework::generic", 'fail("add a ps or a \\"worker\\"");',
                     '{"worker", required_argument}', 'v("worker", worker);', "spec.framework = framework;",
                     "role_rules(spec.framework, role).serves", "kFrameworkUnlessSaid"):
            self.assertEqual(names_one("common/x/a.cpp", good + "\n", self.known), [], good)
        self.assertEqual(names_one("common/job/framework_x.cpp", 'role == "ps"', self.known), [])
        self.assertTrue(reads_one_format("agent/store/a.cpp", '#include "common/transfer/tf_bundle.h"\n'))
        self.assertEqual(reads_one_format("common/transfer/a.cpp", '#include "common/transfer/tf_bundle.h"\n'), [])
        self.assertEqual(reads_one_format("agent/store/a.cpp", '#include "common/transfer/format.h"\n'), [])


if __name__ == "__main__":
    unittest.main()
