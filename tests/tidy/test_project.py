"""What belongs together agrees: scripts, packages, links, version."""
import os
import re
import unittest

import tree
from test_dead_files import LINK

# What CMake asks for -> the Debian package that has it. A new find_package needs a line here and in .ci/packages.
PACKAGES = {
    "Threads": "g++", "PkgConfig": "pkg-config", "yaml-cpp": "libyaml-cpp-dev", "fmt": "libfmt-dev",
    "nlohmann_json": "nlohmann-json3-dev", "CLI11": "libcli11-dev", "tl-expected": "libexpected-dev",
    "zlib": "zlib1g-dev", "libisal": "libisal-dev",
    "sqlite3": "libsqlite3-dev", "libsodium": "libsodium-dev", "GTest": "libgtest-dev", "rapidcheck": "librapidcheck-dev",
    "Python3": "python3", "hwloc": "libhwloc-dev", "libsystemd": "libsystemd-dev", "libzmq": "libzmq3-dev",
    "cppzmq": "cppzmq-dev", "msgpack-cxx": "libmsgpack-cxx-dev", "libarchive": "libarchive-dev", "libzstd": "libzstd-dev",
    "benchmark": "libbenchmark-dev",
}
ALWAYS = ("g++", "cmake", "ninja-build", "ccache", "lld", "libmsgpack-cxx-dev", "libgmock-dev", "python3-numpy", "python3-sklearn")
ASKS = re.compile(r"find_package\(\s*([\w-]+)|pkg_check_modules\([^)]*?([\w.+-]+)\s*\)")


def careless(path, text):
    """A shell script that goes on after a failure."""
    if not text.startswith("#!/usr/bin/env bash\n"):
        return ["the first line is not '#!/usr/bin/env bash'"]
    code = [line for line in text.split("\n")[1:] if line.strip() and not line.startswith("#")]
    return [] if code and code[0] == "set -euo pipefail" else ["the first command is not 'set -euo pipefail'"]


def unsorted_packages(text):
    """Per section (a comment begins one): sorted; no name twice."""
    complaints, seen, previous = [], set(), ""
    for line in text.split("\n"):
        name = line.split("#")[0].strip()
        if not name:
            previous = ""
            continue
        if name in seen:
            complaints.append(name + " is listed twice")
        if name < previous:
            complaints.append("%s belongs before %s" % (name, previous))
        seen.add(name)
        previous = name
    return complaints


def missing_packages(cmake_text, packages):
    wanted = {a or b for a, b in ASKS.findall(re.sub(r"#.*", "", cmake_text))}
    return sorted("%s: %s" % (name, PACKAGES.get(name, "name its package in tests/tidy/test_project.py"))
                  for name in wanted if PACKAGES.get(name) not in packages)


def broken_links(path, text):
    broken = []
    for link in LINK.findall(re.sub(r"```.*?```|^    .*$", "", text, flags=re.S | re.M)):
        target = os.path.normpath(os.path.join(tree.ROOT, os.path.dirname(path), link))
        if not os.path.exists(target):
            broken.append("a link to %s, which does not exist" % link)
    return broken


def promised_documents(path, text):
    """Comments that send the reader to a document that is not there."""
    return ["names %s, which does not exist" % name for name in sorted(set(re.findall(r"\bdocs/[\w./-]+\.md\b", text)))
            if not os.path.exists(os.path.join(tree.ROOT, name))]


class Project(tree.Tidy):
    def scripts(self):
        return [path for path in tree.files() if path.endswith(".sh") or path == ".ci/run"]

    def test_shell_scripts(self):
        self.holds(tree.check(careless, self.scripts()))
        for path in self.scripts():
            self.assertTrue(os.access(os.path.join(tree.ROOT, path), os.X_OK), path + " is not executable")

    def test_packages(self):
        text = tree.read(".ci/packages")
        packages = {line.split("#")[0].strip() for line in text.split("\n")} - {""}
        self.holds(unsorted_packages(text))
        cmake = "".join(tree.read(path) for path in tree.files("CMakeLists.txt", ".cmake"))
        self.holds(missing_packages(cmake, packages))
        self.assertEqual([name for name in ALWAYS if name not in packages], [])

    def test_links(self):
        self.holds(tree.check(broken_links, tree.files(".md")))

    def test_documents_that_code_names(self):
        readers = tree.files(*tree.CODE, ".py", ".sh", ".cmake", ".yaml")
        self.holds(tree.check(promised_documents, [path for path in readers if not path.startswith("tests/tidy/")]))

    def test_version(self):
        version = re.search(r"project\(dtrain VERSION ([\d.]+)", tree.read("CMakeLists.txt")).group(1)
        self.assertRegex(tree.read("CHANGELOG.md"), r"(?m)^## %s\b" % re.escape(version))

    def test_rules_bite(self):
        self.assertEqual(careless("a.sh", "#!/usr/bin/env bash\n# what\nset -euo pipefail\ntrue\n"), [])
        self.assertTrue(careless("a.sh", "#!/bin/sh\nset -e\n"))
        self.assertTrue(careless("a.sh", "#!/usr/bin/env bash\ncd x\nset -euo pipefail\n"))
        self.assertEqual(unsorted_packages("# one\na\nb\n# two\nab\n"), [])
        self.assertEqual(len(unsorted_packages("b\na\nb\n")), 2)
        self.assertTrue(missing_packages("find_package(fmt REQUIRED)", {"g++"}))
        self.assertTrue(missing_packages("pkg_check_modules(X REQUIRED IMPORTED_TARGET nobody-knows)", {"g++"}))
        self.assertEqual(missing_packages("pkg_check_modules(S REQUIRED IMPORTED_TARGET sqlite3)", {"libsqlite3-dev"}), [])
        self.assertTrue(promised_documents("a.h", "// see docs/no-such-file.md"))
        self.assertTrue(broken_links("README.md", "[x](docs/no-such-file.md)"))
        self.assertEqual(broken_links("README.md", "[x](CMakeLists.txt) [y](#part)\n    code[i](nothing)\n"), [])


if __name__ == "__main__":
    unittest.main()
