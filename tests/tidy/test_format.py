"""Every C++ source looks as clang-format (Debian 12's, .clang-format) writes it."""
import subprocess
import unittest

import tree


class Format(tree.Tidy):
    def test_sources_are_formatted(self):
        sources = [path for path in tree.files() if path.endswith((".cpp", ".h"))]
        self.assertTrue(sources)
        found = subprocess.run(["clang-format", "--dry-run", "--Werror", "--ferror-limit=1", *sources], cwd=tree.ROOT,
                               capture_output=True, text=True, check=False)
        self.assertEqual(found.returncode, 0, found.stderr[:4000] + "\nrun: git ls-files '*.cpp' '*.h' | xargs clang-format -i")

    def test_it_bites(self):
        found = subprocess.run(["clang-format", "--dry-run", "--Werror", "--assume-filename=a.cpp"], cwd=tree.ROOT, input="int  f( );\n",
                               capture_output=True, text=True, check=False)
        self.assertNotEqual(found.returncode, 0)


if __name__ == "__main__":
    unittest.main()
