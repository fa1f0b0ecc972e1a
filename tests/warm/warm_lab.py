"""Runs the same script by a start of the interpreter and by a process that waited (agent/dtrain-warm), and compares what comes out.

DTRAIN_PYTHON names another interpreter than the one that runs the tests."""
import collections
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import textwrap
import unittest

sys.dont_write_bytecode = True
SOURCE = os.environ.get("DTRAIN_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WARM = os.path.join(SOURCE, "agent", "dtrain-warm", "dtrain-warm.py")
# The real path: what PATH finds may be a script of a version manager.
PYTHON, *VERSION = subprocess.check_output([os.environ.get("DTRAIN_PYTHON", sys.executable), "-c",
                                            "import sys; print(sys.executable, *sys.version_info[:2])"], universal_newlines=True).split()
VERSION = tuple(map(int, VERSION))
PATIENCE = 60       # seconds for one answer on a loaded machine
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}

Outcome = collections.namedtuple("Outcome", "stdout stderr status")


class Standby:
    """One process that waits, and the socket to it."""

    def __init__(self, words, flags=(), environment=None, cwd=None, modules=None, stderr=subprocess.DEVNULL):
        self.link, theirs = socket.socketpair()
        self.link.settimeout(PATIENCE)
        self.words, self.cwd = list(words), cwd
        self.environment = ENVIRONMENT if environment is None else environment
        how = ["auto"] if modules is None else ["list", modules]
        self.process = subprocess.Popen([PYTHON, *flags, WARM, str(theirs.fileno()), *how, *words], pass_fds=[theirs.fileno()], cwd=cwd,
                                        env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)
        theirs.close()

    def line(self):
        text = b""
        while not text.endswith(b"\n"):
            more = self.link.recv(1)
            if not more:
                return text.decode()
            text += more
        return text.decode().rstrip("\n")

    def order(self, words, environment=None, cwd=None, stdout=None, stderr=None):
        """Sends the message; the answer."""
        environment = self.environment if environment is None else environment
        strings = [cwd or self.cwd, *words, *("%s=%s" % item for item in environment.items())]
        body = struct.pack("<II", len(words), len(environment)) + b"".join(os.fsencode(each) + b"\0" for each in strings)
        self.send(struct.pack("<I", len(body)) + body, [stdout, stderr])
        return self.line()

    def send(self, message, descriptors):
        rights = struct.pack("%di" % len(descriptors), *descriptors)
        sent = self.link.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        if sent < len(message):
            self.link.sendall(message[sent:])

    def close(self):
        self.link.close()
        self.process.kill()
        self.process.wait()


def outputs(directory):
    """Two files for what a script prints."""
    return [open(os.path.join(directory, name), "w+b") for name in ("stdout", "stderr")]


def content(file):
    file.seek(0)
    # addresses of threads and objects differ between any two processes
    return re.sub(r"0x[0-9a-f]{8,}", "0x...", file.read().decode(errors="backslashreplace"))


class WarmCase(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.directory = os.path.realpath(tempfile.mkdtemp(prefix="dtrain-warm-"))
        self.addCleanup(shutil.rmtree, self.directory, True)
        self.work = os.path.join(self.directory, "work")
        os.mkdir(self.work)

    def write(self, name, text):
        path = os.path.join(self.work, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # Compiled files are told apart by size and second: too little for tests.
        shutil.rmtree(os.path.join(os.path.dirname(path), "__pycache__"), ignore_errors=True)
        with open(path, "w") as file:
            file.write(textwrap.dedent(text))
        return path

    def standby(self, *words, **options):
        options.setdefault("cwd", self.work)
        waiting = Standby(words, **options)
        self.addCleanup(waiting.close)
        return waiting

    def cold(self, words, flags=(), environment=None, signal_after=None):
        with tempfile.TemporaryDirectory(dir=self.directory) as place:
            out, err = outputs(place)
            with out, err:
                process = subprocess.Popen([PYTHON, *flags, *words], cwd=self.work, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                           env=ENVIRONMENT if environment is None else environment)
                return self.outcome(process, out, err, signal_after)

    def warm(self, words, flags=(), environment=None, signal_after=None, modules=None, before=None):
        waiting = self.standby(*words[:2 if words[0] == "-m" else 1], flags=flags, environment=environment if before is None else before,
                               modules=modules)
        self.assertRegex(waiting.line(), "^ready ")
        with tempfile.TemporaryDirectory(dir=self.directory) as place:
            out, err = outputs(place)
            with out, err:
                self.assertEqual(waiting.order(words, environment, stdout=out.fileno(), stderr=err.fileno()), "go")
                return self.outcome(waiting.process, out, err, signal_after)

    def outcome(self, process, out, err, signal_after):
        if signal_after:
            number, text = signal_after
            while text.encode() not in os.pread(out.fileno(), 1 << 20, 0):
                self.assertIsNone(process.poll(), "the script ended before it was signalled")
            process.send_signal(number)
        status = process.wait(PATIENCE)
        return Outcome(content(out), content(err), status)

    def same(self, words, flags=(), environment=None, **options):
        """What both print and how both end is the same; returns it."""
        cold = self.cold(words, flags, environment, options.get("signal_after"))
        self.assertEqual(self.warm(words, flags, environment, **options), cold)
        return cold

    def same_script(self, text, *arguments, **options):
        self.write("script.py", text)
        return self.same(["script.py", *arguments], **options)
