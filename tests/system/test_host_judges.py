"""A host judges itself whose tasks it runs, whatever another host of the cluster lets pass."""
import json
import os
import pwd
import shutil
import subprocess
import sys
import unittest

import harness
import test_members
from harness import until

ANNE = "games"      # Debian's own; on one host the name is somebody else's
SHOWS = ["sh", "-c", "id -un; exec sleep 1000000"]


class OtherNames(harness.Member):
    """Its /etc/passwd is another one."""
    passwd = ""

    def command(self):
        return ["unshare", "--mount", "sh", "-c", 'mount --bind %s /etc/passwd && exec "$0" "$@"' % self.passwd, *super().command()]


class HostJudges(test_members.Members):
    """strict refuses what lenient, at which it is submitted, lets pass."""

    def begin(self, strict):
        os.chmod(self.top, 0o755)
        self.ctl = shutil.copy(os.path.join(harness.BIN, "dtrainctl"), self.top)
        strict.options += ["--labels", "where=strict"]
        strict.start()
        self.agent = self.make("lenient", 2, [strict.ip])
        self.agent.options += ["--labels", "where=lenient", "--set", "access.default=submit"]
        os.chmod(self.agent.directory, 0o755)
        self.agent.start()
        self.wait_states({"strict": "alive", "lenient": "alive"})

    def submits(self, user, name, **role):
        account = pwd.getpwnam(user)
        job = {"apiVersion": "dtrain/v1", "kind": "Job", "metadata": {"name": name},
               "spec": {"framework": "generic", "roles": {"worker": {"replicas": 1, "command": SHOWS, **role}}}}
        done = subprocess.run([self.ctl, "--agent", self.agent.socket, "submit", "-"], user=account.pw_uid, group=account.pw_gid,
                              extra_groups=[], input=json.dumps(job), capture_output=True, text=True, timeout=harness.PATIENCE, cwd="/")
        self.assertEqual(done.returncode, 0, done)

    def is_kept_out(self, user, because):
        self.submits(user, "there", nodeSelector={"where": "strict"})
        waits = until(lambda: "strict refused it" in (why := self.agent.ask("describe", "job", "there")["waiting_for"]) and why,
                      lambda: "why it waits: %s" % self.agent.ask("describe", "job", "there"))
        self.assertIn(because, waits)
        self.assertEqual(self.agent.ctl("logs", "there", "worker-0").stdout, "")
        # Wherever it is tried first, it runs where it may.
        self.submits(user, "anywhere")
        self.wait_task("anywhere", "worker-0", state="Running", node="lenient")
        until(lambda: self.agent.do("logs", "anywhere", "worker-0") == user + "\n", "its word")

    def test_roots_jobs(self):
        strict = self.make("strict", 1)
        strict.options += ["--set", "tasks.allowRoot=false"]
        self.begin(strict)
        self.is_kept_out("root", "this host runs no jobs as root")

    def test_names_that_are_somebody_elses(self):
        with open("/etc/passwd") as file:
            entries = [line.split(":") for line in file]
        for entry in entries:
            if entry[0] == ANNE:
                entry[2] = "60005"
        OtherNames.passwd = self.write("passwd", "".join(":".join(entry) for entry in entries))
        self.member = OtherNames
        strict = self.make("strict", 1)
        self.member = harness.Member
        self.begin(strict)
        self.is_kept_out(ANNE, "could not act as user %s: that name has uid 60005 on this host, and had %d where the job was submitted" %
                         (ANNE, pwd.getpwnam(ANNE).pw_uid))


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skipped: it acts as several accounts, which root alone can", file=sys.stderr)
        sys.exit(77)
    unittest.main(verbosity=2)
