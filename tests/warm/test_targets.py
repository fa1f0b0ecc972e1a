"""Whatever the interpreter can be told to run, and with which flags: the same as by a start."""
import os
import textwrap
import unittest
import zipfile

import warm_lab
from warm_lab import ENVIRONMENT, VERSION

SHOW = """
    import sys
    print(__name__, __file__, __spec__ and __spec__.name, __package__, __cached__, type(__loader__).__name__)
    print(sys.argv, sys.path, list(globals()))
    """
SHOW = textwrap.dedent(SHOW)


class Modules(warm_lab.WarmCase):
    def setUp(self):
        super().setUp()
        # the package is imported before the module is __main__
        self.write("pkg/__init__.py", "import __main__\nprint(__name__, __main__.__loader__, hasattr(__main__, '__file__'))")
        self.write("pkg/mod.py", SHOW + "from . import other\nprint(other.__name__)\n")
        self.write("pkg/other.py", "")
        self.write("pkg/__main__.py", SHOW)
        self.write("alone.py", SHOW)

    def test_module(self):
        self.same(["-m", "alone", "a", "b"])

    def test_in_a_package(self):
        self.same(["-m", "pkg.mod", "-m", "x"])

    def test_package(self):
        self.same(["-m", "pkg"])

    def test_library(self):
        self.write("data.json", '{"b": 1, "a": [2]}')
        self.assertEqual(self.same(["-m", "json.tool", "--sort-keys", "data.json"]).status, 0)

    def test_traceback(self):
        self.write("alone.py", "def f(): raise ValueError('x')\nf()")
        self.assertIn("runpy", self.same(["-m", "alone"]).stderr)

    def test_end(self):
        for end in ("sys.exit(4)", "sys.exit('text')", "raise ValueError", "raise KeyboardInterrupt"):
            with self.subTest(end):
                text = "import atexit, os, sys\natexit.register(os.write, 1, b'not buffered')\nsys.stdout.write('buffered')\n"
                if "Interrupt" not in end:      # then __file__ is gone, as after a script
                    text += "atexit.register(lambda: print('__file__' in globals()))\n"
                self.write("alone.py", text + end)
                self.same(["-m", "alone"])

    def test_found_through_pythonpath(self):
        self.write("lib/deep/__init__.py", "")
        self.write("lib/deep/er.py", SHOW)
        self.same(["-m", "deep.er"], environment=dict(ENVIRONMENT, PYTHONPATH=os.path.join(self.work, "lib")))

    def test_missing(self):
        self.assertRegex(self.standby("-m", "pkg.nowhere").line(), "^cold there is no module pkg.nowhere$")
        waiting = self.standby("-m", "alone")
        self.assertRegex(waiting.line(), "^ready ")


class Containers(warm_lab.WarmCase):
    def test_directory(self):
        self.write("tree/__main__.py", SHOW + "import beside\nprint(beside.__file__)\n")
        self.write("tree/beside.py", "")
        self.same(["tree", "x"])
        self.same(["./tree/"])
        self.same([os.path.join(self.work, "tree")])

    def test_zip(self):
        self.write("__main__.py", SHOW + "import beside\nprint(beside.__file__)\nraise ValueError('x')\n")
        with zipfile.ZipFile(os.path.join(self.work, "program.zip"), "w") as archive:
            archive.writestr("__main__.py", SHOW + "import beside\nprint(beside.__file__)\nraise ValueError('x')\n")
            archive.writestr("beside.py", "")
        self.assertIn("ValueError", self.same(["program.zip", "x"]).stderr)

    def test_without_main(self):
        self.write("tree/beside.py", "")
        self.assertRegex(self.standby("tree").line(), "^cold there is no module __main__")


class Flags(warm_lab.WarmCase):
    TEXT = """
        import sys, warnings
        print(sys.flags, sys._xoptions, sys.warnoptions, sys.path, sys.dont_write_bytecode, getattr(sys, 'orig_argv', sys.argv)[1:])
        print([f for f in warnings.filters])
        print(sys.stdout.line_buffering, sys.stdout.write_through, sys.stdout.encoding, sys.stdout.errors, type(sys.stdout.buffer))
        warnings.warn('deprecated', DeprecationWarning)
        warnings.warn('user')
        assert len(sys.argv) > 1, 'assertions are on'
        print(__doc__)
        """

    def test_each(self):
        self.write("script.py", self.TEXT)
        self.write("pkg/__main__.py", self.TEXT)
        sets = [["-u"], ["-O"], ["-OO"], ["-B"], ["-E"], ["-s"], ["-S"], ["-I"], ["-W", "ignore"], ["-Werror::UserWarning"], ["-b"], ["-q"],
                ["-X", "dev"], ["-X", "utf8"], ["-X", "faulthandler"], ["-X", "tracemalloc=3"], ["-X", "pycache_prefix=/nonexistent"],
                ["-u", "-O", "-W", "error", "-X", "a=b"]]
        if VERSION >= (3, 11):
            sets += [["-P"], ["-X", "frozen_modules=off"], ["-X", "no_debug_ranges"]]
        for flags in sets:
            with self.subTest(flags):
                self.same(["script.py"], flags=flags)
        for flags in (["-u", "-O"], ["-B", "-W", "error"]):
            with self.subTest(flags):
                self.same(["-m", "pkg", "x"], flags=flags)

    def test_isolated_module(self):
        self.same(["-m", "json.tool", "--help"], flags=["-I"])
        self.write("tree/__main__.py", self.TEXT)
        self.same(["tree"], flags=["-I"])

    def test_variables(self):
        self.write("script.py", self.TEXT)
        for name, value in (("PYTHONUNBUFFERED", "1"), ("PYTHONOPTIMIZE", "1"), ("PYTHONWARNINGS", "error::UserWarning"),
                            ("PYTHONIOENCODING", "latin-1:replace"), ("PYTHONUTF8", "1"), ("PYTHONDEVMODE", "1"),
                            ("PYTHONDONTWRITEBYTECODE", "1"), ("LC_ALL", "C"), ("LANG", "C.UTF-8"), ("PYTHONSAFEPATH", "1"),
                            ("PYTHONCOERCECLOCALE", "0"), ("PYTHONFAULTHANDLER", "1"), ("PYTHONNOUSERSITE", "1")):
            with self.subTest(name):
                self.same(["script.py"], environment=dict(ENVIRONMENT, **{name: value}))

    def test_refused(self):
        self.write("script.py", "")
        for flags in (["-i"], ["-v"], ["-X", "importtime"]):
            self.assertRegex(self.standby("script.py", flags=flags).line(), "^cold the interpreter was asked")
        for words in (["-c", "pass"], ["-"], ["nowhere.py"]):
            self.assertRegex(self.standby(*words).line(), "^cold ")


if __name__ == "__main__":
    unittest.main()
