"""Many submits: none is lost, the order is kept, and the agent goes on answering."""
import concurrent.futures
import os
import unittest

from harness import PATIENCE, SystemTest, main, names_of, processes_of, until

IN_A_ROW, AT_ONCE = 150, 60


class Load(SystemTest):
    def storm_file(self, number):
        return self.job_file("j%d" % number, {"worker": {"replicas": 1, "command": ["true"]}})

    def descriptors(self):
        """The agent's, but for those of its staging workers, which stay: up to four, two descriptors of each."""
        workers = names_of(processes_of(self.top)).count("dtraind-stage")
        self.assertLessEqual(workers, 4)
        return len(os.listdir("/proc/%d/fd" % self.agent.process.pid)) - 2 * workers

    def test_storm(self):
        idle = self.descriptors()
        ids = [self.agent.ask("submit", self.storm_file(number))["id"] for number in range(IN_A_ROW)]
        self.assertEqual(ids, sorted(set(ids)))
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            files = [self.storm_file(IN_A_ROW + number) for number in range(AT_ONCE)]
            more = list(pool.map(lambda path: self.agent.ask("submit", path)["id"], files))
        self.assertEqual(len(set(ids + more)), IN_A_ROW + AT_ONCE)
        self.assertEqual(self.agent.ctl("status").returncode, 0)
        names = {"j%d" % number for number in range(IN_A_ROW + AT_ONCE)}
        until(lambda: {job["name"] for job in self.agent.ask("jobs") if job["state"] == "Succeeded"} == names,
              lambda: "every job to succeed: %s" % self.agent.ask("status")["jobs"], 4 * PATIENCE)
        self.assertEqual({job["restarts"] for job in self.agent.ask("jobs")}, {0})
        until(lambda: self.descriptors() <= idle, lambda: "descriptors to be given back: %d, idle %d" % (self.descriptors(), idle))

    def test_a_wide_job(self):
        self.submit("wide", {"worker": {"replicas": 60, "command": ["sh", "-c", "echo $DTRAIN_INDEX"]}})
        self.wait_job("wide", "Succeeded", 4 * PATIENCE)
        lines = self.agent.do("logs", "wide").splitlines()
        self.assertEqual(sorted(lines), sorted("worker-%d | %d" % (i, i) for i in range(60)))


if __name__ == "__main__":
    main()
