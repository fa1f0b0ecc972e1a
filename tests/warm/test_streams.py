"""stdout, stderr and the environment are those of a fresh interpreter."""
import os
import pty
import subprocess
import unittest

import warm_lab
from warm_lab import ENVIRONMENT

SHOW = """
    import io, sys
    for stream in (sys.stdout, sys.stderr):
        buffer, raw = stream.buffer, getattr(stream.buffer, 'raw', stream.buffer)
        print(stream, stream.encoding, stream.errors, stream.line_buffering, stream.write_through, stream.newlines, stream.seekable(),
              stream.isatty(), stream.fileno(), type(buffer), raw.name, raw.mode, raw.closefd,
              stream is getattr(sys, '__%s__' % stream.name[1:-1]), file=stream)
    """
# The order in which writes arrive in one file shows when each stream is flushed.
ORDER = """
    import os, sys
    sys.stdout.write('1')
    sys.stderr.write('2')
    sys.stdout.write('3\\n')
    sys.stderr.write('4\\n')
    os.write(1, b'5')
    os.write(2, b'6')
    sys.stdout.write('x' * 5000)
    os.write(1, b'7')
    sys.stdout.buffer.write(b'8')
    """


class Streams(warm_lab.WarmCase):
    def through(self, make, flags):
        """What arrives when both streams are `make()`'s descriptor, cold and warm."""
        found = []
        for warm in (False, True):
            read, write = make()
            if warm:
                waiting = self.standby("script.py", flags=flags)
                self.assertRegex(waiting.line(), "^ready ")
                self.assertEqual(waiting.order(["script.py"], stdout=write, stderr=write), "go")
                process = waiting.process
            else:
                process = subprocess.Popen([warm_lab.PYTHON, *flags, "script.py"], cwd=self.work, env=ENVIRONMENT,
                                           stdin=subprocess.DEVNULL, stdout=write, stderr=write)
            os.close(write)
            text = everything(read)
            self.assertEqual(process.wait(warm_lab.PATIENCE), 0)
            found.append(text + everything(read))       # a file has an end at any time
            os.close(read)
        self.assertEqual(found[0], found[1])
        self.assertTrue(found[0])

    def each(self, make):
        for text in (SHOW, ORDER):
            for flags in ([], ["-u"]):
                with self.subTest(text=text, flags=flags):
                    self.write("script.py", text)
                    self.through(make, flags)

    def test_pipe(self):
        self.each(os.pipe)

    def test_terminal(self):
        self.each(pty.openpty)

    def test_file(self):
        def make():
            path = os.path.join(self.directory, "file")
            with open(path, "wb"):
                pass
            return os.open(path, os.O_RDONLY), os.open(path, os.O_WRONLY | os.O_APPEND)
        self.each(make)

    def test_closed_pipe(self):
        """SIGPIPE is ignored, as Python does."""
        text = """
            import os, sys
            r, w = os.pipe()
            os.close(r)
            os.dup2(w, 1)
            print('x')
            """
        self.assertEqual(self.same_script(text).status, 120)

    def test_errors_of_encoding(self):
        self.same_script(r"import sys; print('\udc80\u20ac', file=sys.stderr); print('\u20ac'); print('\udc80')",
                         environment=dict(ENVIRONMENT, LC_ALL="C.UTF-8"))
        self.same_script(r"print('\u20ac')", environment=dict(ENVIRONMENT, PYTHONIOENCODING="ascii"))

    def test_a_library_keeps_the_stream(self):
        """Whatever took sys.stderr at its import writes to the task's."""
        self.write("lib/keeper.py", "import sys\nkept = sys.stderr\nprint('imported')\n")
        self.write("script.py", "import sys, keeper\nprint(keeper.kept is sys.stderr, file=keeper.kept)\n")
        found = self.warm(["script.py"], environment=dict(ENVIRONMENT, PYTHONPATH=os.path.join(self.work, "lib")), modules="keeper")
        self.assertEqual(found, ("", "True\n", 0))


def everything(descriptor):
    parts = []
    while True:
        try:
            part = os.read(descriptor, 1 << 16)
        except OSError:     # the end of a terminal
            break
        if not part:
            break
        parts.append(part)
    return warm_lab.re.sub(rb"0x[0-9a-f]{8,}", b"0x...", b"".join(parts))


class Environment(warm_lab.WarmCase):
    TEXT = """
        import os, subprocess
        print(os.environ, os.getenv('RANK'))
        print(subprocess.run(['env'], stdout=subprocess.PIPE).stdout)
        print(os.popen('echo $RANK $GONE').read())
        try:
            import ctypes
            get = ctypes.CDLL(None).getenv
            get.restype = ctypes.c_char_p
            print(get(b'RANK'), get(b'GONE'), get(b'NEW'))
        except ImportError:
            pass
        """
    BEFORE = dict(ENVIRONMENT, RANK="0", GONE="x", MASTER_PORT="1")

    def changed(self, environment, **options):
        self.write("script.py", self.TEXT)
        self.same(["script.py"], environment=environment, before=self.BEFORE, **options)

    def test_is_the_new_one(self):
        self.changed(dict(NEW="1", RANK="3", EMPTY="", **ENVIRONMENT, SIGN="a=b", ODD="ü\udcff"))

    def test_locale_of_the_interpreter(self):
        """In the C locale the interpreter sets LC_CTYPE itself."""
        self.changed(dict(self.BEFORE))

    def test_of_libraries(self):
        self.write("lib/setter.py", """
            import os
            os.environ['SET'] = 'by the library'
            os.environ['RANK'] = 'changed by the library'
            os.environ.setdefault('DEFAULT', 'of the library')
            os.environ.pop('GONE', None)
            """)
        base = dict(self.BEFORE, PYTHONPATH=os.path.join(self.work, "lib"))
        self.write("script.py", "import os, setter\nprint({k: v for k, v in os.environ.items()})\n")
        for new in (base, dict(base, OTHER="1"), dict(base, DEFAULT="given")):
            with self.subTest(new=new):
                self.same(["script.py"], environment=new, before=base, modules="setter")
        # what the new environment gives otherwise is kept
        found = self.warm(["script.py"], environment=dict(base, RANK="7"), before=base, modules="setter")
        self.assertIn("'RANK': '7'", found.stdout)


if __name__ == "__main__":
    unittest.main()
