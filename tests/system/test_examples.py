"""Every example runs as it is; digits also under kills, to the accuracy that its README promises."""
import glob
import os
import unittest

from harness import PATIENCE, SOURCE, SystemTest, main, until

SLOW = 4 * PATIENCE


class Examples(SystemTest):
    def example(self, name):
        return os.path.join(SOURCE, "examples", name, "job.yaml")

    def test_all_have_a_test(self):
        self.assertEqual({os.path.basename(os.path.dirname(path)) for path in glob.glob(os.path.join(SOURCE, "examples", "*", "job.yaml"))},
                         {"digits", "generic-ps", "hello"})

    def test_hello(self):
        done = self.agent.ctl("run", self.example("hello"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("hello from worker-1 of hello on n1", done.stdout)

    def test_generic_ps(self):
        done = self.agent.ctl("run", self.example("generic-ps"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the sum reached 20", done.stdout)

    def test_digits_heals(self):
        self.agent.do("submit", "--set", "spec.checkpoint.dir=" + self.path("checkpoints"), self.example("digits"))
        self.wait_job("digits", "Running")

        def good():
            return [c["step"] for c in self.agent.ask("checkpoints", "digits") if c["state"] in ("complete", "verified")]
        until(lambda: len(good()) >= 2, "two checkpoints", SLOW)
        before = self.kill_task("digits", "worker-1")
        after = self.wait_task("digits", "worker-1", attempt=2, state="Running")
        self.assertEqual(after["address"], before["address"])
        until(lambda: len(good()) >= 3, "a third checkpoint", SLOW)
        self.kill_task("digits", "ps-0")
        until(lambda: self.job("digits")["generation"] == 2 and self.job("digits")["state"] == "Running", "the second generation")
        restored = self.agent.ask("describe", "job", "digits")["restored"]
        until(lambda: "restored step=%d" % restored["step"] in self.agent.do("logs", "digits", "ps-0", "--attempt", "2"),
              "ps-0 to restore step %d" % restored["step"])
        job = self.wait_job("digits", "Succeeded", SLOW)
        self.assertEqual(job["restarts"], 2)
        accuracy = [line for line in self.agent.do("logs", "digits", "chief-0").splitlines() if line.startswith("accuracy=")]
        self.assertGreater(float(accuracy[-1].split("=")[1]), 0.9)


if __name__ == "__main__":
    main()
