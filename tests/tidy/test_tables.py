"""What differs between frameworks is in the table of common/job/frameworks.h and the files framework_*: nothing else
in common/ and agent/ names a framework or a role, whether to compare with it or else."""
import re
import unittest

import tree

TABLE = re.compile(r"common/job/framework\w*\.(?:h|cpp)")
# Who writes job files has to say what is in them: {path: the words}
WRITERS = {"agent/dtrainctl/cmd_run.cpp": ("ps", "chief", "worker", "tensorflow", "generic"),
           # a checkpoint's format is called so, too
           "common/job/names.cpp": ("tensorflow",)}
VALUE = re.compile(r"\bFramework::\w+")
ROLE = re.compile(r'\.name = "(\w+)"')
LINE = re.compile(r'FrameworkLine\{Framework::\w+, "(\w+)"')
LITERAL = re.compile(r'"(\w+)"')


def words():
    """The names of all frameworks, and of all roles that one has rules for."""
    text = "\n".join(tree.read(path) for path in tree.files(*tree.CODE, under="common/job") if TABLE.fullmatch(path))
    return set(LINE.findall(text)), set(ROLE.findall(text))


def uncommented(text):
    return tree.COMMENT_OR_LITERAL.sub(lambda m: m.group() if m.group()[0] in "\"'R" else "\n" * m.group().count("\n"), text)


def names_one(path, text, known):
    if TABLE.fullmatch(path):
        return []
    code, allowed = uncommented(text), WRITERS.get(path, ())
    found = [(m.start(), m.group()) for m in VALUE.finditer(code)]
    found += [(m.start(), m.group()) for m in LITERAL.finditer(code) if m.group(1) in known and m.group(1) not in allowed]
    return ["line %d: %s: ask rules_of() or role_rules() (common/job/framework.h)" % (tree.line_of(code, at), what)
            for at, what in sorted(found)]


class Tables(tree.Tidy):
    def setUp(self):
        frameworks, roles = words()
        self.assertLessEqual({"tensorflow", "pytorch", "generic"}, frameworks)
        self.assertLessEqual({"ps", "chief", "master", "worker", "evaluator"}, roles)
        self.known = frameworks | roles

    def test_tree(self):
        sources = [path for top in ("common", "agent") for path in tree.files(*tree.CODE, under=top)]
        self.assertTrue(sources)
        self.holds(tree.check(lambda path, text: names_one(path, text, self.known), sources))

    def test_exceptions_are_needed(self):
        for path, allowed in WRITERS.items():
            literals = set(LITERAL.findall(uncommented(tree.read(path))))
            self.assertEqual([word for word in allowed if word not in literals], [], path)

    def test_rules_bite(self):
        for bad in ('if (role == "ps") return;', 'if ("chief" != role) return;', 'has_role(spec, "worker")', 'roles.contains("master")',
                    "spec.framework == job::Framework::tensorflow", "case Framework::pytorch:", 'word == "tensorflow"'):
            self.assertEqual(len(names_one("common/x/a.cpp", bad + "\n", self.known)), 1, bad)
        for good in ("// a role such as \"ps\" or Framework::generic", 'fail("add a ps or a \\"worker\\"");', "spec.framework = framework;",
                     "role_rules(spec.framework, role).serves", "kFrameworkUnlessSaid"):
            self.assertEqual(names_one("common/x/a.cpp", good + "\n", self.known), [], good)
        self.assertEqual(names_one("common/job/framework_x.cpp", 'role == "ps"', self.known), [])


if __name__ == "__main__":
    unittest.main()
