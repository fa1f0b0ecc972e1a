"""Which hardware an agent says it has: from a topology file, from another machine's /sys and /proc, and when it cannot tell."""
import os
import shutil
import subprocess
import unittest

from harness import BIN, Agent, SystemTest, main, until

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
