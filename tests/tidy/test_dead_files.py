"""Nothing lies around: every header is included, every test and helper is run, every document can be found."""
import os
import re
import unittest

import tree
from test_layers import INCLUDE

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
# Never named by another file: tools look for these themselves.
ENTRIES = {"README.md", "CHANGELOG.md", "LICENSE", "CMakeLists.txt", "CMakePresets.json", ".clang-format", ".gitignore"}


def headers_nobody_includes(headers, texts):
    included = {target for text in texts.values() for target in INCLUDE.findall(tree.bare(text))}
    return [header for header in headers if header not in included]


def sources_no_build_knows(sources, build_text):
    """Directories are globbed by CMake: one that it does not name is never compiled."""
    directories = {os.path.dirname(path) for path in sources}
    return sorted(directory for directory in directories if not re.search(r"\b%s\b" % re.escape(directory), build_text))


def documents_nobody_links(documents, texts):
    """Reachable from README.md by links."""
    reached, waiting = set(), ["README.md"]
    while waiting:
        path = waiting.pop()
        if path in reached or path not in texts:
            continue
        reached.add(path)
        for link in LINK.findall(texts[path]):
            waiting.append(os.path.normpath(os.path.join(os.path.dirname(path), link)))
    return [document for document in documents if document not in reached]


def files_nobody_names(paths, texts):
    """Scripts and modules that no other file mentions: nobody runs or imports them."""
    dead = []
    for path in paths:
        name = os.path.basename(path)
        word = re.compile(r"\b%s\b" % re.escape(name[:-3] if name.endswith(".py") else name))
        if not any(word.search(text) for other, text in texts.items() if other != path):
            dead.append(path)
    return dead


class DeadFiles(tree.Tidy):
    @classmethod
    def setUpClass(cls):
        cls.texts = {path: tree.read(path) for path in tree.files()}
        cls.build = cls.texts["CMakeLists.txt"] + cls.texts["cmake/tests.cmake"]

    def test_headers(self):
        headers = [path for path in self.texts if path.endswith(".h")]
        self.holds(headers_nobody_includes(headers, {p: t for p, t in self.texts.items() if p.endswith(tree.CODE)}))

    def test_sources(self):
        sources = [path for path in self.texts if path.endswith(".cpp") and not path.startswith(("bench/", "tests/fuzz/"))]
        self.holds(sources_no_build_knows(sources, self.build))

    def test_fuzzers_have_a_corpus(self):
        for path in tree.files(".cpp", under="tests/fuzz"):
            stem = os.path.basename(path)[:-4]
            if stem.startswith("fuzz_"):
                self.assertTrue(tree.files(under="tests/fuzz/corpus/" + stem), "no corpus: " + path)

    def test_documents(self):
        documents = [path for path in self.texts if path.endswith(".md")]
        self.holds(documents_nobody_links(documents, self.texts))

    def test_scripts(self):
        # CMake finds test_*.py by their place, CI finds .ci/run
        scripts = [path for path in self.texts if path.endswith((".py", ".sh"))
                   and not re.fullmatch(r"tests/(tidy|system|warm)/test_\w+\.py", path)]
        self.holds(files_nobody_names(scripts, self.texts))
        stray = [path for path in self.texts if os.path.basename(path).startswith("test_") and path.endswith(".py")
                 and not re.fullmatch(r"tests/(tidy|system|warm)/test_\w+\.py", path)]
        self.holds(stray)

    def test_top_level(self):
        top = {path.split("/")[0] for path in self.texts}
        allowed = ENTRIES | {"agent", "common", "systemd", "config", "tests", "bench", "docs", "examples", "cmake", ".ci"}
        self.holds(sorted(top - allowed))

    def test_rules_bite(self):
        texts = {"a.cpp": '#include "x/a.h"\n// #include "x/b.h"\n', "x/a.h": "", "x/b.h": ""}
        self.assertEqual(headers_nobody_includes(["x/a.h", "x/b.h"], texts), ["x/b.h"])
        self.assertEqual(sources_no_build_knows(["common/a/x.cpp", "common/lost/y.cpp"], "lib(a common/a)"), ["common/lost"])
        texts = {"README.md": "[a](docs/a.md) [out](nothing)", "docs/a.md": "[b](sub/b.md#part)", "docs/sub/b.md": "", "docs/c.md": ""}
        self.assertEqual(documents_nobody_links(sorted(texts), texts), ["docs/c.md"])
        texts = {"run.sh": "./used.sh; import helper", "used.sh": "", "helper.py": "", "dead.py": "dead.py", "dead.sh": ""}
        self.assertEqual(files_nobody_names(["used.sh", "helper.py", "dead.py", "dead.sh"], texts), ["dead.py", "dead.sh"])


if __name__ == "__main__":
    unittest.main()
