"""Which hardware an agent says it has: from a topology file, from another machine's /sys and /proc, and when it cannot tell."""
import os
import shutil
import subprocess
import unittest

from fake_machine import FakeMachine, eight_and_eight
from harness import BIN, SLEEP, Agent, Member, SystemTest, main, make_key, until

GIB = 1 << 30
# One package of two cores, 8 GiB, two GPUs and a console.
TOPOLOGY = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x3" complete_cpuset="0x3" allowed_cpuset="0x3" nodeset="0x1"
          complete_nodeset="0x1" allowed_nodeset="0x1" gp_index="1">
    <object type="NUMANode" os_index="0" cpuset="0x3" complete_cpuset="0x3" nodeset="0x1" complete_nodeset="0x1"
            gp_index="2" local_memory="8589934592"/>
    <object type="PU" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="3"/>
    <object type="PU" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x1" complete_nodeset="0x1" gp_index="4"/>
    <object type="Bridge" gp_index="5" bridge_type="0-1" depth="0" bridge_pci="0000:[00-20]">
      <object type="PCIDev" gp_index="6" pci_busid="0000:0b:00.0" pci_type="0302 [10de:2330] [10de:16c1] a1" pci_link_speed="0.0"/>
      <object type="PCIDev" gp_index="7" pci_busid="0000:0a:00.0" pci_type="0302 [10de:2330] [10de:16c1] a1" pci_link_speed="0.0"/>
      <object type="PCIDev" gp_index="8" pci_busid="0000:0c:00.0" pci_type="0300 [1a03:2000] [1a03:2000] 41" pci_link_speed="0.0"/>
    </object>
  </object>
</topology>
""".replace("\n          ", " ")


class Hardware(SystemTest):
    def start(self):
        pass        # each test starts the agent it needs

    def starts_with(self, *options, prefix=()):
        self.agent = Agent(self.top, "n1", self.ip, *options, prefix=prefix)
        self.agent.start()
        return next(node for node in self.agent.ask("nodes") if node["name"] == "n1")

    def ends_with(self, *options):
        done = subprocess.run(Agent(self.top, "n1", self.ip, *options).command(), capture_output=True, text=True, timeout=60)
        return done.returncode, done.stderr

    def test_a_topology_file(self):
        node = self.starts_with("--topology", self.write("t.xml", TOPOLOGY))
        self.assertEqual(node["gpus"]["total"], 2)
        self.assertEqual([gpu["pci"] for gpu in node["gpus"]["devices"]], ["0000:0a:00.0", "0000:0b:00.0"])
        self.assertEqual(node["cpus"]["total"], 1)                      # one of two is kept for the system
        self.assertEqual(node["memory"]["total_bytes"], 6 * GIB)              # and a quarter of the memory
        with open("/proc/%d/maps" % self.agent.process.pid) as maps:
            self.assertNotIn("hwloc", maps.read())

    def test_excluded_gpus(self):
        node = self.starts_with("--topology", self.write("t.xml", TOPOLOGY), "--set", "resources.excludeGpus=0a:00.0,9")
        self.assertEqual([(gpu["index"], gpu["pci"]) for gpu in node["gpus"]["devices"]], [(1, "0000:0b:00.0")])
        self.assertIn("could not exclude GPU 9", self.agent.log())

    def test_pretended_gpus_win(self):
        node = self.starts_with("--topology", self.write("t.xml", TOPOLOGY), "--gpus", "3")
        self.assertEqual([gpu["pretended"] for gpu in node["gpus"]["devices"]], [True] * 3)

    def gpus(self):
        return [(gpu["index"], gpu["pci"], gpu["reason"]) for gpu in self.agent.ask("nodes")[0]["gpus"]["devices"]]

    def test_a_gpu_that_vanishes_keeps_its_number_and_so_do_the_others(self):
        machine = FakeMachine(self.path("root"), nodes=1, cores=4)
        addresses = ["0000:%02x:00.0" % bus for bus in (0x10, 0x20, 0x30)]
        for address in addresses:
            machine.nvidia(address, 0)
        self.starts_with(prefix=("env", "HWLOC_FSROOT=" + self.path("root")))
        self.assertEqual(self.gpus(), [(0, addresses[0], ""), (1, addresses[1], ""), (2, addresses[2], "")])
        # Each has a task, which lives on while the agent is away and a card falls off the bus.
        self.submit("all", {"worker": {"replicas": 3, "command": SLEEP, "resources": {"gpus": 1}}})
        tasks = [self.wait_task("all", "worker-%d" % i, state="Running") for i in range(3)]
        held = {task["gpus"][0]: task["pid"] for task in tasks}
        self.assertEqual(sorted(held), addresses)
        self.agent.end()
        machine.remove(addresses[1])
        self.agent.start()
        missing = "it is not on the bus any more"
        self.assertEqual(self.gpus(), [(0, addresses[0], ""), (1, addresses[1], missing), (2, addresses[2], "")])
        again = [self.wait_task("all", "worker-%d" % i, state="Running") for i in range(3)]
        self.assertEqual({task["gpus"][0]: task["pid"] for task in again}, held)    # each still has the card that it was given
        gpus = self.agent.ask("nodes")[0]["gpus"]
        self.assertEqual((gpus["total"], gpus["free"]), (3, 0))
        self.agent.do("cancel", "all")
        self.wait_job("all", "Cancelled")
        until(lambda: self.agent.ask("nodes")[0]["gpus"]["free"] == 2, "two GPUs that are free")
        self.submit("two", {"worker": {"replicas": 1, "command": SLEEP, "resources": {"gpus": 2}}})
        self.assertEqual(self.wait_task("two", "worker-0", state="Running")["gpus"], [addresses[0], addresses[2]])
        self.submit("one", {"worker": {"replicas": 1, "command": SLEEP, "resources": {"gpus": 1}}})
        self.assertEqual(self.job("one")["state"], "Pending")               # the one that is missing is given to nobody
        with open(os.path.join(self.agent.data, "gpus")) as file:
            self.assertEqual(file.read(), "dtrain gpus 1\n" + "".join("%d %s\n" % entry for entry in enumerate(addresses)))

    def test_a_gpu_that_falls_sick_is_taken_out_and_everybody_hears_why(self):
        machine = FakeMachine(self.path("root"), nodes=1, cores=4)
        addresses = ["0000:%02x:00.0" % bus for bus in (0x10, 0x20, 0x30)]
        for address in addresses:
            machine.nvidia(address, 0)
        os.makedirs(self.path("root/dev"))
        os.mkfifo(self.path("root/dev/kmsg"))
        with open(self.path("root/dev/kmsg"), "r+b", buffering=0) as kernel_log:
            key = make_key(self.path("cluster.key"))
            self.agent = Member(self.top, "n1", self.ip, key)
            command = self.agent.command()
            self.agent.command = lambda: ["env", "HWLOC_FSROOT=" + self.path("root"), *command]
            self.agent.start()
            other = Member(self.top, "n2", self.ip.rsplit(".", 1)[0] + ".254", key, [self.ip])
            self.addCleanup(lambda: other.process and other.process.poll() is None and other.end())
            other.start()

            def heard(agent):
                return [gpu["reason"] for gpu in agent.nodes()["n1"]["gpus"]["devices"]], agent.nodes()["n1"]["gpus"]["free"]
            until(lambda: heard(other) == (["", "", ""], 3), "n2 knows n1's GPUs")
            # A program's own error is none of the GPU's; the next is.
            kernel_log.write(b"4,1,2,-;NVRM: Xid (PCI:0000:10:00): 31, pid=1, name=python3, MMU Fault\n")
            until(lambda: "event=gpu.fault" in self.agent.log(), "the fault in the log")
            kernel_log.write(b"3,2,2,-;NVRM: Xid (PCI:0000:20:00): 79, pid=1, name=python3, GPU has fallen off the bus.\n")
            sick = "Xid 79: GPU has fallen off the bus"
            for agent in (self.agent, other):
                until(lambda: heard(agent) == (["", sick, ""], 2), lambda: "%s hears it; %s" % (agent.name, heard(agent)))
            event, = (event for event in self.agent.events() if event["type"] == "gpu.sick")
            self.assertEqual(event["reason"], "GPU 1 (%s): %s" % (addresses[1], sick))
            self.assertIn("no: " + sick, self.agent.do("describe", "node", "n1"))
            # A card goes while the agent runs: the next word in the log makes it look.
            machine.remove(addresses[2])
            missing = "it is not on the bus any more"
            self.submit("one", {"worker": {"replicas": 1, "command": SLEEP, "resources": {"gpus": 1}}})
            self.assertEqual(self.wait_task("one", "worker-0", state="Running")["gpus"], [addresses[0]])
            kernel_log.write(b"4,3,2,-;NVRM: Xid (PCI:0000:10:00): 31, pid=1, name=python3, MMU Fault\n")
            until(lambda: heard(other) == (["", sick, missing], 0), lambda: heard(other))
            self.submit("two", {"worker": {"replicas": 1, "command": SLEEP, "resources": {"gpus": 1}}})
            self.assertIn("GPU", until(lambda: self.agent.ask("describe", "job", "two")["waiting_for"], "why it waits"))
            self.assertEqual(self.tasks("one")["worker-0"]["state"], "Running")     # what runs is left to itself
            # What only the log said does not outlive the agent: the samples are good, the card that is missing is not.
            self.agent.end()
            self.agent.start()
            self.assertEqual(self.wait_task("two", "worker-0", state="Running")["gpus"], [addresses[1]])
            until(lambda: heard(other) == (["", "", missing], 0), lambda: heard(other))

    def test_gpus_that_somebody_still_holds_are_given_to_nobody(self):
        machine = FakeMachine(self.path("root"), nodes=1, cores=4)
        for number, bus in enumerate((0x10, 0x20)):
            machine.nvidia("0000:%02x:00.0" % bus, 0, minor=number)
        self.starts_with(prefix=("env", "HWLOC_FSROOT=" + self.path("root")))
        # A process of a user that is in no task, as one that a task had begun through cron would be.
        uid = 65534 if os.geteuid() == 0 else os.geteuid()
        with open(self.path("root/dev/nvidia0")) as node:
            holder = subprocess.Popen(["sleep", "1000"], stdin=node, **({"user": uid} if os.geteuid() == 0 else {}))
        self.addCleanup(lambda: (holder.kill(), holder.wait()))
        self.submit("first", {"worker": {"replicas": 1, "command": ["true"], "resources": {"gpus": 2}}})
        self.wait_job("first", "Succeeded")
        self.assertEqual(self.agent.ask("nodes")[0]["gpus"]["free"], 0)         # while it is waited for
        unfit = until(lambda: self.agent.ask("nodes")[0]["unfit"], "the patience is over")
        self.assertIn("process %d (sleep of uid %d) holds GPU 0000:10:00.0 after the end of first/worker-0" % (holder.pid, uid), unfit)
        self.assertIn("gpu.held", self.agent.do("events"))
        self.submit("next", {"worker": {"replicas": 1, "command": SLEEP, "resources": {"gpus": 1}}})
        self.assertIn("process %d" % holder.pid, until(lambda: self.agent.ask("describe", "job", "next")["waiting_for"], "why it waits"))
        # A new life of the agent knows from its first moment.
        self.agent.end()
        self.agent.start()
        self.assertEqual(self.agent.ask("nodes")[0]["unfit"], unfit)
        self.assertEqual(self.job("next")["state"], "Pending")
        holder.kill()
        holder.wait()
        self.wait_task("next", "worker-0", state="Running")
        self.assertIn("gpu.released", self.agent.do("events"))

    def test_damaged_numbers_are_set_aside(self):
        machine = FakeMachine(self.path("root"), nodes=1, cores=4)
        machine.nvidia("0000:10:00.0", 0)
        os.makedirs(self.path("n1/data"))
        self.write("n1/data/gpus", "nonsense\n")
        self.starts_with(prefix=("env", "HWLOC_FSROOT=" + self.path("root")))
        self.assertIn("event=hardware.numbers-damaged", self.agent.log())
        self.assertEqual(self.lines("n1/data/gpus"), ["dtrain gpus 1", "0 0000:10:00.0"])
        self.assertEqual(self.lines("n1/data/gpus.damaged"), ["nonsense"])

    def test_numbers_that_cannot_be_read_now_are_left_alone(self):
        machine = FakeMachine(self.path("root"), nodes=1, cores=4)
        machine.nvidia("0000:10:00.0", 0)
        os.makedirs(self.path("n1/data/gpus"))          # reading it fails, and it is no damaged list
        node = self.starts_with(prefix=("env", "HWLOC_FSROOT=" + self.path("root")))
        self.assertEqual([(gpu["index"], gpu["pci"]) for gpu in node["gpus"]["devices"]], [(0, "0000:10:00.0")])
        self.assertIn("event=hardware.numbers-unread", self.agent.log())
        self.assertEqual(sorted(name for name in os.listdir(self.path("n1/data")) if name.startswith("gpus")), ["gpus"])

    def test_tasks_get_gpus_that_belong_together_and_their_makers_names(self):
        eight_and_eight(self.path("root"))
        node = self.starts_with(prefix=("env", "HWLOC_FSROOT=" + self.path("root")))
        self.assertEqual((node["gpus"]["total"], node["numa_nodes"], node["packages"]), (16, 2, 2))
        self.assertEqual([gpu["group"] for gpu in node["gpus"]["devices"]], [-1] * 8 + [0, 1] * 4)
        said = self.path("said-$DTRAIN_JOB")
        command = ["sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES/$ROCR_VISIBLE_DEVICES" > "%s"; exec sleep 1000000' % said]
        # Job, model, GPUs; buses of those that it gets: NVIDIA's of one node, AMD's of one ring.
        table = [("a", "H100", 1, [0x10]), ("b", "H100", 4, [0x14, 0x15, 0x16, 0x17]), ("c", "H100", 2, [0x11, 0x12]),
                 ("d", "MI300X", 2, [0x40, 0x42]), ("e", "MI300X", 4, [0x41, 0x43, 0x45, 0x47]), ("f", "MI300X", 2, [0x44, 0x46])]
        for name, model, count, buses in table:
            with self.subTest(name):
                self.submit(name, {"worker": {"replicas": 1, "command": command, "resources": {"gpus": count, "gpuModel": model}}})
                wanted = ["0000:%02x:00.0" % bus for bus in buses]
                self.assertEqual(self.wait_task(name, "worker-0", state="Running")["gpus"], wanted)
                maker = "nvidia" if model == "H100" else "amd"
                names = ",".join(FakeMachine.uuid(address, maker) for address in wanted)
                until(lambda: self.lines("said-" + name), "its environment")
                self.assertEqual(self.lines("said-" + name), [names + "/" if maker == "nvidia" else "/" + names])
        self.assertEqual(self.agent.ask("nodes")[0]["gpus"]["free"], 1)     # 13:00.0

    def test_another_root_of_proc_and_sys(self):
        device = "root/sys/bus/pci/devices/0000:0a:00.0/"
        config = bytearray(256)
        config[0:4], config[9:12] = b"\xde\x10\x30\x23", b"\x00\x02\x03"
        os.makedirs(self.path(device))
        with open(self.path(device + "config"), "wb") as file:
            file.write(config)
        for name, text in (("vendor", "0x10de"), ("device", "0x2330"), ("class", "0x030200"), ("revision", "0xa1"),
                           ("subsystem_vendor", "0x10de"), ("subsystem_device", "0x16c1")):
            self.write(device + name, text + "\n")
        for name, text in (("online", "0-3\n"), ("possible", "0-3\n"), ("present", "0-3\n")):
            self.write("root/sys/devices/system/cpu/" + name, text)
        self.write("root/proc/cpuinfo", "".join("processor\t: %d\n\n" % cpu for cpu in range(4)))
        self.write("root/proc/meminfo", "MemTotal:       8388608 kB\n")
        self.write("root/proc/driver/nvidia/gpus/0000:0a:00.0/information", "Model: \t NVIDIA Test\nGPU UUID: \t GPU-7\n")
        node = self.starts_with(prefix=("env", "HWLOC_FSROOT=" + self.path("root")))
        self.assertEqual([(gpu["pci"], gpu["model"], gpu["uuid"]) for gpu in node["gpus"]["devices"]],
                         [("0000:0a:00.0", "NVIDIA Test", "GPU-7")])
        self.assertEqual(node["memory"]["total_bytes"], 6 * GIB)

    def test_files_that_are_no_topology(self):
        later = TOPOLOGY.replace('version="2.0"', 'version="9.0"')
        for name, text, code, words in (("later.xml", later, 78, "has format 9"), ("noise.xml", "noise", 78, "is not hwloc XML"),
                                        ("cut.xml", TOPOLOGY[:900], 78, "could not read topology"), ("none.xml", None, 66, "none.xml")):
            with self.subTest(name):
                path = self.path(name) if text is None else self.write(name, text)
                for more in ((), ("--check-config",)):
                    ended, errors = self.ends_with("--topology", path, *more)
                    self.assertEqual(ended, code, errors)
                    self.assertIn(words, errors)
        ended, errors = self.ends_with("--topology", self.write("t.xml", TOPOLOGY), "--check-config")
        self.assertEqual(ended, 0, errors)

    def test_an_agent_whose_discoverer_crashes_or_is_missing_lives_without_gpus(self):
        programs = self.path("programs")
        os.makedirs(programs)
        for name in ("dtraind", "dtrain-shim"):
            shutil.copy(os.path.join(BIN, name), programs)
        discoverer = self.write("programs/dtrain-discover", "#!/bin/sh\nkill -SEGV $$\n")
        os.chmod(discoverer, 0o755)
        for words in ("was killed by signal 11", "could not find dtrain-discover"):
            self.agent = Agent(self.top, "n1", self.ip)
            command = self.agent.command()
            command[0] = os.path.join(programs, "dtraind")
            self.agent.command = lambda command=command: command
            self.agent.start()
            until(lambda: words in self.agent.log(), "the warning")
            node = self.agent.ask("nodes")[0]
            self.assertEqual(node["gpus"]["total"], 0)
            self.assertGreater(node["memory"]["total_bytes"], 64 << 20)
            self.agent.end()
            if os.path.exists(discoverer):
                os.remove(discoverer)


if __name__ == "__main__":
    main()
