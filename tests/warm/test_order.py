"""The messages between the supervisor and a process that waits."""
import os
import shutil
import signal
import struct
import unittest

import warm_lab
from warm_lab import ENVIRONMENT


class Orders(warm_lab.WarmCase):
    def setUp(self):
        super().setUp()
        self.write("script.py", "import sys; print(sys.argv[1:])")
        self.null = os.open(os.devnull, os.O_RDWR)
        self.addCleanup(os.close, self.null)

    def ready(self, *words, **options):
        waiting = self.standby(*(words or ["script.py"]), **options)
        self.assertRegex(waiting.line(), "^ready ")
        return waiting

    def cold(self, reason, words=("script.py",), **order):
        """Refused, and gone; nothing ran."""
        path = os.path.join(self.directory, "out")
        waiting = self.ready(environment=order.pop("before", None))
        with open(path, "wb") as out:
            self.assertRegex(waiting.order(list(words), stdout=out.fileno(), stderr=out.fileno(), **order), "^cold " + reason)
        self.assertEqual(waiting.process.wait(warm_lab.PATIENCE), 0)
        self.assertEqual(os.path.getsize(path), 0)

    def malformed(self, message, descriptors=None):
        waiting = self.ready()
        waiting.send(message, [self.null, self.null] if descriptors is None else descriptors)
        self.assertRegex(waiting.line(), "^cold ")
        self.assertEqual(waiting.process.wait(warm_lab.PATIENCE), 0)

    def test_end_of_file(self):
        waiting = self.ready()
        waiting.link.close()
        self.assertEqual(waiting.process.wait(warm_lab.PATIENCE), 0)

    def test_end_of_file_within_the_message(self):
        for part in (b"\x01", struct.pack("<III", 100, 1, 0)):
            waiting = self.ready()
            waiting.send(part, [self.null, self.null])
            waiting.link.close()
            self.assertEqual(waiting.process.wait(warm_lab.PATIENCE), 0)

    def test_message_in_pieces(self):
        waiting = self.ready()
        message = self.message(["script.py", "x" * 100000])
        waiting.send(message[:1], [self.null, self.null])
        for at in range(1, 20):
            waiting.link.sendall(message[at:at + 1])
        waiting.link.sendall(message[20:])
        self.assertEqual(waiting.line(), "go")

    def message(self, words):
        strings = [self.work, *words, *("%s=%s" % item for item in ENVIRONMENT.items())]
        body = struct.pack("<II", len(words), len(ENVIRONMENT)) + b"".join(os.fsencode(text) + b"\0" for text in strings)
        return struct.pack("<I", len(body)) + body

    def test_malformed(self):
        self.malformed(struct.pack("<III", 8, 0, 0))                            # no strings
        self.malformed(struct.pack("<III", 13, 1, 0) + b"/\0a\0b")              # no end
        self.malformed(struct.pack("<III", 12, 2, 0) + b"/\0a\0")               # fewer than announced
        self.malformed(struct.pack("<I", 3) + b"abc")
        self.malformed(struct.pack("<I", (4 << 20) + 1))                        # before it is read

    def test_descriptors(self):
        for descriptors in ([], [self.null]):
            self.malformed(self.message(["script.py"]), descriptors)

    def test_another_target(self):
        self.write("other.py", "")
        self.cold("the command is another one", ["other.py"])
        self.cold("the command is another one", ["-m", "script"])

    def test_another_directory(self):
        self.cold("the working directory is another one", cwd=self.directory)

    def test_directory_by_another_name(self):
        link = os.path.join(self.directory, "link")
        os.symlink(self.work, link)
        waiting = self.ready()
        self.assertEqual(waiting.order(["script.py"], cwd=link, stdout=self.null, stderr=self.null), "go")

    def test_directory_that_was_replaced(self):
        waiting = self.ready()
        shutil.rmtree(self.work)
        self.write("script.py", "open('ran', 'w')")
        self.assertEqual(waiting.order(["script.py"], stdout=self.null, stderr=self.null), "go")
        self.assertEqual(waiting.process.wait(warm_lab.PATIENCE), 0)
        self.assertTrue(os.path.exists(os.path.join(self.work, "ran")))

    def test_script_is_gone(self):
        waiting = self.ready()
        os.remove(os.path.join(self.work, "script.py"))
        self.assertRegex(waiting.order(["script.py"], stdout=self.null, stderr=self.null), "^cold FileNotFoundError")

    def test_variables_read_at_start(self):
        for name in ("PYTHONPATH", "PYTHONHASHSEED", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "LANG", "LC_ALL", "TZ",
                     "TMPDIR", "MALLOC_ARENA_MAX", "TORCH_DISTRIBUTED_DEBUG", "TF_CPP_MIN_LOG_LEVEL"):
            with self.subTest(name):
                self.cold(name + " changed: ", environment=dict(ENVIRONMENT, **{name: "1"}))
        self.cold("OMP_NUM_THREADS changed: ", before=dict(ENVIRONMENT, OMP_NUM_THREADS="1"), environment=ENVIRONMENT)

    def test_variables_read_later(self):
        names = ("CUDA_VISIBLE_DEVICES", "RANK", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "NCCL_DEBUG", "TF_CONFIG",
                 "DTRAIN_RESTORE_FROM", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "NOTIFY_SOCKET")
        waiting = self.ready(environment=dict(ENVIRONMENT, RANK="0"))
        environment = dict(ENVIRONMENT, **dict.fromkeys(names, "1"))
        self.assertEqual(waiting.order(["script.py"], environment, stdout=self.null, stderr=self.null), "go")

    def test_commit_is_the_last_word(self):
        """Nothing of the script runs if the supervisor is gone."""
        path = self.write("script.py", "open('ran', 'w')")
        waiting = self.ready()
        os.kill(waiting.process.pid, signal.SIGSTOP)
        waiting.send(self.message(["script.py"]), [self.null, self.null])
        waiting.link.close()
        os.kill(waiting.process.pid, signal.SIGCONT)
        self.assertEqual(waiting.process.wait(warm_lab.PATIENCE), 0)
        self.assertFalse(os.path.exists(os.path.join(os.path.dirname(path), "ran")))

    def test_nothing_is_written_beside_the_program(self):
        self.assertEqual([name for name in os.listdir(os.path.dirname(warm_lab.WARM)) if name == "__pycache__"], [])


if __name__ == "__main__":
    unittest.main()
