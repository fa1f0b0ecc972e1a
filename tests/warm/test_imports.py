"""What is imported ahead: read from the source, only libraries, and nothing that acts while the process waits."""
import os
import sys
import textwrap
import unittest

import warm_lab
from warm_lab import ENVIRONMENT, VERSION

sys.path.insert(0, os.path.dirname(warm_lab.WARM))
import warm_imports


class Reading(unittest.TestCase):
    def read(self, text):
        return warm_imports.imports_of(textwrap.dedent(text), "script.py")

    def test_forms(self):
        self.assertEqual(self.read("""
            from __future__ import annotations
            import a, b.c as d
            from e.f import g, h as i
            from j import *
            """), [("__future__", ("annotations",)), ("a", ()), ("b.c", ()), ("e.f", ("g", "h")), ("j", ("*",))])

    def test_blocks(self):
        self.assertEqual([name for name, _ in self.read("""
            try:
                import a
            except ImportError:
                import instead_of_a
            else:
                import b
            finally:
                import c
            if x:
                import d
            elif y:
                import e
            else:
                import f
            with z:
                import g
            """)], ["a", "b", "c", "d", "e", "f", "g"])

    def test_what_does_not_run_at_import(self):
        self.assertEqual(self.read("""
            def f():
                import a
            class A:
                def g(self): import b
            if __name__ == '__main__':
                import c
            if typing.TYPE_CHECKING:
                import d
            if TYPE_CHECKING:
                import e
            from . import f
            from .g import h
            """), [])

    def test_the_other_side_of_a_guard(self):
        self.assertEqual(self.read("if TYPE_CHECKING:\n    import a\nelse:\n    import b\n"), [("b", ())])


class Libraries(warm_lab.WarmCase):
    """With libraries of its own, installed for the user."""

    def setUp(self):
        super().setUp()
        self.base = os.path.join(self.directory, "base")
        self.site = os.path.join(self.base, "lib", "python%d.%d" % VERSION, "site-packages")
        os.makedirs(self.site)
        self.environment = dict(ENVIRONMENT, PYTHONUSERBASE=self.base, ACTS=os.path.join(self.directory, "acts"))

    def library(self, name, text=""):
        self.write(os.path.join(self.site, name), text)

    def ready(self, text, **options):
        self.write("script.py", text)
        return self.standby("script.py", environment=options.pop("environment", self.environment), **options).line()

    def same_with(self, text, *arguments, **options):
        return self.same_script(text, *arguments, environment=self.environment, **options)

    def test_names(self):
        self.library("lib_a.py")
        self.library("lib_b/__init__.py")
        self.library("lib_b/part.py")
        self.library("lib_b/more.py")
        line = self.ready("import sys, lib_a, nowhere\nfrom lib_b import part, value\nimport lib_b.more\n")
        self.assertRegex(line, r"^ready lib_a,lib_b,lib_b\.more \d+$")
        self.assertRegex(self.ready("import sys"), r"^ready - \d+$")

    def test_submodules_of_from(self):
        self.library("lib_b/__init__.py")
        self.library("lib_b/part.py", "import lib_c")
        self.library("lib_c.py", "import os\nopen(os.environ['ACTS'], 'w')\n")
        self.ready("from lib_b import part")
        self.assertTrue(os.path.exists(self.environment["ACTS"]))

    def test_nothing_of_the_scripts_own(self):
        """Not in its directory, in PYTHONPATH or in a directory of the package that a .pth file names."""
        acts = "import os\nopen(os.environ['ACTS'], 'w')\n"
        for name in ("beside.py", "lib/through_path.py", "src/editable.py", "pkg/__init__.py", "pkg/part.py"):
            self.write(name, acts)
        self.write(os.path.join(self.site, "own.pth"), os.path.join(self.work, "src"))
        self.library("lib_a.py", "try:\n    import beside_optional\nexcept ImportError:\n    pass\n")
        line = self.ready("import beside, through_path, editable, pkg.part\nfrom pkg import part\nimport lib_a\n",
                          environment=dict(self.environment, PYTHONPATH=os.path.join(self.work, "lib")))
        self.assertRegex(line, r"^ready lib_a \d+$")
        self.assertFalse(os.path.exists(self.environment["ACTS"]))

    def test_libraries_that_pythonpath_names(self):
        """As the modules of a computing centre do; but not if they are in the package."""
        elsewhere = os.path.join(self.directory, "opt", "site-packages")
        self.write(os.path.join(elsewhere, "lib_a.py"))
        self.write("site-packages/lib_b.py")
        path = os.pathsep.join([elsewhere, os.path.join(self.work, "site-packages")])
        self.assertRegex(self.ready("import lib_a, lib_b", environment=dict(self.environment, PYTHONPATH=path)), r"^ready lib_a \d+$")

    def test_they_are_found_by_the_script(self):
        self.write("lib/through_path.py", "print(__file__)")
        self.write("beside.py", "import lib_a; print(__file__, lib_a.x)")
        self.library("lib_a.py", "x = 1")
        self.environment["PYTHONPATH"] = os.path.join(self.work, "lib")
        self.same_with("import lib_a, beside, through_path, sys; print(sys.path, lib_a.__file__)")

    def test_import_that_fails(self):
        self.library("lib_a.py", "raise ImportError('no driver')")
        self.library("lib_b.py")
        self.library("lib_c.py", "import sys; sys.exit(1)")
        text = "try:\n    import lib_a\nexcept ImportError as e:\n    print(e)\nimport lib_b\n"
        self.assertRegex(self.ready(text), r"^ready lib_b \d+ without lib_a:ImportError$")
        self.assertIn("no driver", self.same_with(text).stdout)
        self.assertRegex(self.ready("import lib_c"), r"^ready - \d+ without lib_c:SystemExit$")
        self.same_with("import lib_c")

    def test_own_module_hides_a_library(self):
        """A library's `import helper` gets the script's in a cold start."""
        self.library("lib_a.py", "import helper; x = helper.x")
        self.library("helper.py", "x = 'of the library'")
        text = "import lib_a; print(lib_a.x)"
        self.assertRegex(self.ready(text), r"^ready lib_a \d+$")
        os.mkdir(os.path.join(self.work, "helper"))         # a directory alone hides nothing
        self.assertRegex(self.ready(text), r"^ready lib_a \d+$")
        self.write("helper.py", "x = 'of the script'")
        self.assertRegex(self.ready(text), r"^cold .*/work/helper.py comes before the library of that name$")
        os.remove(os.path.join(self.work, "helper.py"))
        self.write("helper/__init__.py", "")
        self.assertRegex(self.ready(text), r"^cold .*/work/helper/__init__.py comes before")

    def test_own_module_that_a_library_looks_for(self):
        self.library("lib_a.py", "try:\n    import optional\nexcept ImportError:\n    pass\n")
        self.write("optional.py", "")
        self.assertRegex(self.ready("import lib_a"), r"^cold .*/work/optional.py comes before")

    def test_own_module_that_comes_later(self):
        self.library("lib_a.py", "import helper")
        self.library("helper.py")
        self.write("script.py", "import lib_a")
        waiting = self.standby("script.py", environment=self.environment)
        waiting.line()
        self.write("helper.py", "")
        with open(os.devnull, "w") as out:
            self.assertRegex(waiting.order(["script.py"], stdout=out.fileno(), stderr=out.fileno()), "^cold .*comes before")
        self.assertEqual(waiting.process.wait(warm_lab.PATIENCE), 0)

    def test_own_module_hides_the_standard_library(self):
        self.write("decimal.py", "x = 'own'")
        self.assertRegex(self.ready("import decimal"), r"^ready - \d+$")
        self.same_with("import decimal; print(decimal.x)")
        self.library("lib_a.py", "import decimal")
        self.assertRegex(self.ready("import lib_a"), r"^cold .*/work/decimal.py comes before")

    def test_installed_meanwhile(self):
        self.library("lib_a.py")
        self.write("script.py", "import lib_a")
        waiting = self.standby("script.py", environment=self.environment)
        waiting.line()
        self.library("lib_b.py")
        with open(os.devnull, "w") as out:
            self.assertEqual(waiting.order(["script.py"], stdout=out.fileno(), stderr=out.fileno()),
                             "cold libraries were installed or removed since the imports")

    def test_script_changed_meanwhile(self):
        self.write("script.py", "print(1)")
        waiting = self.standby("script.py", environment=self.environment)
        waiting.line()
        self.write("script.py", "print(2)")
        out, err = warm_lab.outputs(self.directory)
        with out, err:
            self.assertEqual(waiting.order(["script.py"], stdout=out.fileno(), stderr=err.fileno()), "go")
            self.assertEqual(self.outcome(waiting.process, out, err, None), ("2\n", "", 0))

    def test_path_that_libraries_change(self):
        self.library("lib_a.py", "import sys\nsys.path.insert(0, '/front')\nsys.path.append('/back')\nsys.path.insert(2, '/middle')\n")
        self.same_with("import lib_a, sys; print(sys.path)")

    def test_what_libraries_set_and_keep(self):
        self.library("lib_a.py", """
            import atexit, os, signal, sys, threading, warnings
            from sys import argv, path, stdout
            from os import environ
            def hook(kind, value, traceback): print('hook of the library', value)
            sys.excepthook = hook
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            warnings.simplefilter('ignore')
            sys.setrecursionlimit(500)
            """)
        self.same_with("""
            import lib_a, os, signal, sys, warnings
            print(lib_a.argv, lib_a.path is sys.path, lib_a.stdout is sys.stdout, dict(lib_a.environ) == dict(os.environ))
            print(signal.getsignal(signal.SIGUSR1), sys.getrecursionlimit(), warnings.filters[0])
            raise ValueError('x')
            """, "argument")

    def test_list(self):
        self.library("lib_a.py")
        self.write("beside.py")
        line = self.ready("import lib_z", modules="lib_a,beside,nowhere,decimal")
        self.assertRegex(line, r"^ready lib_a,beside,decimal \d+ without nowhere:ModuleNotFoundError$")
        self.same_with("import lib_a, beside, sys; print(sys.path, beside.__file__)", modules="lib_a,beside")

    def write(self, name, text=""):
        return super().write(name, text)

    def test_what_makes_it_cold(self):
        for text, reason in (
                ("import socket\nkept = socket.socket()", "descriptor: the imports opened socket:"),
                ("import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True, name='T').start()", "threads: T"),
                ("import subprocess\nkept = subprocess.Popen(['sleep', '60'])", "processes: the imports started one"),
                ("import io, sys\nsys.stdout = io.StringIO()", "output: the imports replaced")):
            with self.subTest(reason):
                self.library("lib_a.py", text)
                waiting = self.standby("script.py", environment=self.environment, modules="lib_a")
                self.write("script.py", "import lib_a")
                self.assertRegex(waiting.line(), "^cold " + reason)
                self.assertEqual(waiting.process.wait(warm_lab.PATIENCE), 0)

    def test_open_device(self):
        """What a GPU library opens has such a name; a link to it must do here."""
        before = warm_imports.open_descriptors()
        descriptor = os.open("/dev/null", os.O_RDONLY)
        self.addCleanup(os.close, descriptor)
        devices = warm_imports.DEVICES
        self.addCleanup(setattr, warm_imports, "DEVICES", devices)
        warm_imports.require_idle(before, (sys.stdout, sys.stderr))
        warm_imports.DEVICES = ("/dev/null",)
        with self.assertRaisesRegex(warm_imports.Cold, "opened /dev/null"):
            warm_imports.require_idle(before, (sys.stdout, sys.stderr))

    def test_modules_that_speak(self):
        self.assertRegex(self.ready("import this"), r"^ready - \d+$")
        self.assertIn("Zen", self.same_with("import this").stdout)

    def test_target_that_is_a_library(self):
        self.library("lib_a/__init__.py", "print('package')")
        self.library("lib_a/__main__.py", "import lib_b, sys\nprint(lib_b.__name__, sys.argv)")
        self.library("lib_b.py")
        waiting = self.standby("-m", "lib_a", environment=self.environment)
        self.assertRegex(waiting.line(), r"^ready lib_a,lib_b \d+$")
        self.library("lib_a/__init__.py")
        self.same(["-m", "lib_a", "x"], environment=self.environment)

    def test_target_among_its_libraries(self):
        """runpy warns when a module runs that is imported already: not because of the wait."""
        self.library("lib_a/__init__.py")
        self.library("lib_a/run.py", "import lib_a.back")
        self.library("lib_a/back.py", "import lib_a.run")
        self.assertRegex(self.standby("-m", "lib_a.run", environment=self.environment).line(), "^cold lib_a.run is imported by")

    def test_atexit_of_libraries(self):
        self.library("lib_a.py", "import atexit, sys\natexit.register(lambda: print('library', file=sys.stderr))\n")
        self.same_with("import lib_a, atexit\natexit.register(print, 'script')\n")
        log = os.path.join(self.directory, "log")
        with open(log, "wb") as file:
            waiting = self.standby("script.py", environment=self.environment, stderr=file)
            self.assertRegex(waiting.line(), "^ready lib_a")
            waiting.link.close()
            self.assertEqual(waiting.process.wait(warm_lab.PATIENCE), 0)
        self.assertEqual(os.path.getsize(log), 0)


if __name__ == "__main__":
    unittest.main()
