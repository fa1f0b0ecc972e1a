"""What keeps a task from being started on a host is a reason for another place, or to wait: never the end of its job. One agent."""
import json
import os
import socket
import unittest

import harness
from harness import until


def held(ip, *ports):
    """Sockets that keep these ports from everybody else, as a program of somebody would."""
    sockets = []
    for port in ports:
        one = socket.socket()
        one.bind((ip, port))
        one.listen()
        sockets.append(one)
    return sockets


class BusyPorts(harness.SystemTest):
    agent_options = ("--set", "network.taskPorts=21000-21015")

    def test_one_that_somebody_holds_costs_a_placement_and_nothing_else(self):
        holder = held(self.ip, 21001)
        self.addCleanup(holder[0].close)
        roles = {"ps": {"command": ["sleep", "600"]}, "chief": {"command": ["true"]}}
        self.submit("port", roles, framework="tensorflow", policy={"backoffLimit": 0})
        job = self.wait_job("port", "Succeeded")
        self.assertEqual(job["restarts"], 0)

    def test_all_of_them_held_and_the_job_waits_and_says_why(self):
        holders = held(self.ip, *range(21000, 21016))
        self.submit("all", {"ps": {"command": ["sleep", "600"]}, "chief": {"command": ["true"]}}, framework="tensorflow")
        until(lambda: "is used by" in self.agent.ask("describe", "job", "all")["waiting_for"],
              lambda: "the reason: %s" % self.agent.ask("describe", "job", "all")["waiting_for"])
        self.assertEqual(self.job("all")["state"], "Pending")
        for one in holders:
            one.close()
        self.wait_job("all", "Succeeded", 90)

    def test_one_that_is_taken_between_its_test_and_its_use(self):
        """The task binds its port late, and then cannot: its program's error is not its own."""
        go = self.path("go")
        script = ("import os,socket,sys,time\nport=int(sys.argv[1]); first=os.environ['DTRAIN_ATTEMPT']=='1'\n"
                  "while first and not os.path.exists(%r): time.sleep(0.02)\n"
                  "s=socket.socket(); s.bind((%r,port)); s.listen(); print('serving', flush=True)\n" % (go, self.ip))
        roles = {"ps": {"command": ["python3", "-c", script, "{task.port}"]}, "chief": {"command": ["sleep", "600"]}}
        self.submit("late", roles, framework="tensorflow", policy={"backoffLimit": 0})
        first = self.wait_task("late", "ps-0", state="Running")
        holder = held(self.ip, int(first["address"].rsplit(":", 1)[1]))
        self.addCleanup(holder[0].close)
        open(go, "w").close()
        again = until(lambda: (t := self.tasks("late")["ps-0"])["attempt"] > 1 and t["state"] in ("Running", "Succeeded") and t,
                      lambda: "another port: %s, %s" % (self.tasks("late"), self.job("late")))
        self.assertNotEqual(again["address"], first["address"])
        described = self.agent.ask("describe", "job", "late")
        self.assertIsNone(described["first_fault"])
        self.assertEqual(described["generation"], 2)


class FullDisk(harness.SystemTest):
    """The agent's data lie on a file system of 64 MiB that only it sees."""

    def start(self):
        data = self.agent.directory
        mounted = "mount -t tmpfs -o size=64m,mode=711 disk %s/data && exec \"$@\"" % data
        self.agent.prefix = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--mount", "sh", "-c", mounted, "sh"]
        os.makedirs(os.path.join(data, "data"))
        self.agent.options += ["--set", "storage.minFree=16Mi"]
        super().start()

    def test_a_host_without_room_is_given_nothing_and_says_so(self):
        fill = "/proc/%d/root%s/fill" % (self.agent.process.pid, self.agent.data)
        with open(fill, "wb") as file:
            file.write(b"\0" * (56 << 20))
        node = until(lambda: (n := self.agent.ask("nodes")[0])["schedulable"] is False and n, "the host to be unschedulable")
        self.assertIn("storage.minFree", json.dumps(node))
        self.assertIn("host.sick", [event["type"] for event in self.events()])
        self.submit("waits", {"worker": {"command": ["true"]}})
        until(lambda: "storage.minFree" in self.agent.ask("describe", "job", "waits")["waiting_for"],
              lambda: "the reason: %s" % self.agent.ask("describe", "job", "waits")["waiting_for"])
        os.remove(fill)
        self.wait_job("waits", "Succeeded")
        self.assertIn("host.well", [event["type"] for event in self.events()])


class Names(harness.SystemTest):
    def test_a_submit_right_behind_a_delete_is_the_next_job_of_that_name(self):
        for other in (False, True):
            for _ in range(5):
                self.submit("again", {"worker": {"replicas": 4, "command": ["sleep", "600"]}})
                self.wait_job("again", "Running")
                first = self.agent.ask("describe", "job", "again")["id"]
                deleting = self.agent.ctl("delete", "again", "--force")
                self.assertEqual(deleting.returncode, 0, deleting.stderr)
                self.submit("again", {"worker": {"replicas": 4, "command": ["sleep", "601" if other else "600"]}})
                self.wait_job("again", "Running")
                self.assertNotEqual(self.agent.ask("describe", "job", "again")["id"], first)
                self.agent.do("delete", "again", "--force")
                until(lambda: not self.agent.ask("jobs"), "no job")


class Hooks(harness.SystemTest):
    def test_run_once_in_the_life_of_their_event(self):
        said = self.path("said")
        self.submit("fails", {"worker": {"command": ["false"], "restartPolicy": "Never"}},
                    notify={"command": ["sh", "-c", "echo $DTRAIN_EVENT >> " + said], "on": ["Failed"]})
        self.wait_job("fails", "Failed")
        until(lambda: self.lines("said") == ["failed"], "the hook")
        for _ in range(3):
            self.agent.end()
            self.agent.start()
        self.submit("next", {"worker": {"command": ["true"]}},
                    notify={"command": ["sh", "-c", "echo $DTRAIN_EVENT >> " + said], "on": ["Succeeded"]})
        self.wait_job("next", "Succeeded")
        until(lambda: "succeeded" in self.lines("said"), "the next hook")
        self.assertEqual(self.lines("said"), ["failed", "succeeded"])
        self.assertEqual(self.agent.log().count("event=job.failed job=fails"), 1)


if __name__ == "__main__":
    unittest.main()
