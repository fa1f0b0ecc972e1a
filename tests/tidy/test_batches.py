"""Sources of one directory are compiled in batches, whatever they are (cmake/batches.cmake): names of their anonymous namespaces differ."""
import collections
import os
import re
import unittest

import tree

BATCHED = ("common/", "agent/")
# A source that is compiled alone: {path: why}
ALONE = {"common/base/rules_kept.cpp": "a test program has another in its place", "agent/dtrain-discover/main.cpp": "a program of its own"}

HIDDEN = re.compile(r"^namespace \{\n(.*?)^\}  // namespace$", re.M | re.S)
CONSTANT = re.compile(r"^(?:inline |static )?(?:constexpr|constinit|const) [^=({;]*?\b(k[A-Z]\w*)\b", re.M)
TYPE = re.compile(r"^(?:struct|class|union|enum(?: class)?) (\w+)\b(?!;)", re.M)
ALIAS = re.compile(r"^using (\w+) = ([^;]+);", re.M)
# Neither a member of a class nor a template, which others of its name may stand beside.
FUNCTION = re.compile(r"^(?<!>\n)(?!return|using|template|struct|class|enum|namespace|#|//|\})"
                      r"[\w:<>,&*]+(?: [\w:<>,&*]+)* [&*]?(\w+)\(([^;{]*?)\) \{", re.M)


def names(text):
    """What a source declares in its anonymous namespace, and for an alias what it stands for: it may be declared again alike. A
    function has its parameters' types in its name, since others may bear it."""
    for block in HIDDEN.finditer(text):
        for pattern in (CONSTANT, TYPE):
            yield from ((m.group(1), None) for m in pattern.finditer(block.group(1)))
        yield from ((m.group(1), m.group(2)) for m in ALIAS.finditer(block.group(1)))
        for m in FUNCTION.finditer(block.group(1)):
            types = [re.sub(r"\s*(?:\b\w+)?(?:\s*=.*)?$", "", one.strip()) for one in m.group(2).split(",")]
            yield "%s(%s)" % (m.group(1), ", ".join(types)), None


def clashes(sources):
    """Of {path: text}, all of one directory."""
    seen = collections.defaultdict(dict)
    for path, text in sources.items():
        for name, meaning in names(text):
            seen[name][path] = meaning
    return ["%s: %s is declared in %s, too" % (sorted(paths)[0], name, ", ".join(sorted(paths)[1:])) for name, paths in sorted(seen.items())
            if len(paths) > 1 and (None in paths.values() or len(set(paths.values())) > 1)]


class Batches(tree.Tidy):
    def test_names_differ(self):
        directories = collections.defaultdict(dict)
        for path in tree.files():
            if path.endswith(".cpp") and path.startswith(BATCHED) and path not in ALONE and os.path.basename(path) != "main.cpp" \
                    and not path.startswith(("agent/dtrain-shim/", "agent/dtrain-discover/")):
                directories[os.path.dirname(path)][path] = tree.read(path)
        self.assertTrue(directories)
        self.holds([complaint for sources in directories.values() for complaint in clashes(sources)])

    def test_rules_bite(self):
        one = "namespace {\n\nconstexpr int kA = 1;\nstruct S {};\nint f(int a) {\n}\n\n}  // namespace\n"
        for other in ("constexpr std::size_t kA = 2;", "struct S {", "using S = int;", "int f(int b) {"):
            self.assertTrue(clashes({"a.cpp": one, "b.cpp": "namespace {\n\n%s\n\n}  // namespace\n" % other}), other)
        for other in ("constexpr int kB = 1;", "int f(long a) {", "template <class T>\nT f(int a) {", "struct S;"):
            self.assertEqual(clashes({"a.cpp": one, "b.cpp": "namespace {\n\n%s\n\n}  // namespace\n" % other}), [], other)


if __name__ == "__main__":
    unittest.main()
