"""GPUs that are there: what is found is what the driver says, a task sees its own alone, and what still holds one is named.

Runs where an NVIDIA driver has GPUs, and is skipped elsewhere: test_hardware.py and test_isolation.py show the same on machines that are
not there.
"""
import glob
import os
import subprocess
import sys

import harness
from harness import SLEEP, SystemTest, python, until

ROOT = ""           # of /proc and /dev
SKIPPED = 77
# What CUDA itself says, without any framework.
CUDA = """
import ctypes, os, uuid
cuda = ctypes.CDLL("libcuda.so.1")
count, device, raw = ctypes.c_int(), ctypes.c_int(), (ctypes.c_ubyte * 16)()
for call, arguments in (("cuInit", (0,)), ("cuDeviceGetCount", (ctypes.byref(count),)),
                        ("cuDeviceGet", (ctypes.byref(device), 0)), ("cuDeviceGetUuid", (raw, device))):
    code = getattr(cuda, call)(*arguments)
    assert code == 0, "%s: %d" % (call, code)
print(count.value, "GPU-%s" % uuid.UUID(bytes=bytes(raw)), os.environ["CUDA_VISIBLE_DEVICES"])
"""


def driver_gpus():
    """By PCI address, as the kernel's driver describes them: {"GPU UUID": ..., "Model": ..., "Device Minor": ...}."""
    gpus = {}
    for path in glob.glob(ROOT + "/proc/driver/nvidia/gpus/*/information"):
        with open(path) as file:
            gpus[path.split("/")[-2].lower()] = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in file)}
    return gpus


class RealGpu(SystemTest):
    def gpus(self):
        return next(node for node in self.agent.ask("nodes") if node["name"] == "n1")["gpus"]

    def test_they_are_what_the_driver_says(self):
        found = {gpu["pci"]: gpu for gpu in self.gpus()["devices"]}
        said = driver_gpus()
        self.assertEqual(sorted(found), sorted(said))
        for pci, gpu in found.items():
            print("GPU", gpu["index"], pci, gpu["uuid"], gpu["model"], gpu["memory_bytes"], gpu["reason"], file=sys.stderr)
            self.assertEqual((gpu["healthy"], gpu["reason"], gpu["pretended"]), (True, "", False), gpu)
            self.assertEqual(gpu["uuid"], said[pci]["GPU UUID"])
            self.assertGreater(gpu["memory_bytes"], 1 << 30)

    def test_a_task_sees_its_own_alone(self):
        self.submit("cuda", {"worker": {"replicas": 1, "command": python(CUDA), "resources": {"gpus": 1}}})
        self.wait_job("cuda", "Succeeded")
        own = driver_gpus()[self.tasks("cuda")["worker-0"]["gpus"][0]]["GPU UUID"]
        self.assertEqual(self.agent.do("logs", "cuda", "worker-0").split(), ["1", own, own])
        free = self.gpus()
        self.assertEqual(free["free"], free["total"])       # once it has ended nobody holds it

    def test_what_still_holds_one_is_named(self):
        pci, gpu = sorted(driver_gpus().items())[0]
        uid = 65534 if os.geteuid() == 0 else os.geteuid()
        with open("%s/dev/nvidia%s" % (ROOT, gpu["Device Minor"])) as node:
            holder = subprocess.Popen(SLEEP, stdin=node, **({"user": uid} if os.geteuid() == 0 else {}))
        self.addCleanup(lambda: (holder.kill(), holder.wait()))
        every = {"worker": {"replicas": 1, "command": ["true"], "resources": {"gpus": self.gpus()["total"]}}}
        self.submit("first", every)
        self.wait_job("first", "Succeeded")
        self.assertEqual(self.gpus()["free"], 0)
        unfit = until(lambda: self.agent.ask("nodes")[0]["unfit"], "the patience is over")
        self.assertIn("process %d (sleep of uid %d) holds GPU %s after the end of first/worker-0" % (holder.pid, uid, pci), unfit)
        self.agent.end()
        self.agent.start()
        self.assertEqual(self.agent.ask("nodes")[0]["unfit"], unfit)
        self.submit("next", every)
        self.assertEqual(self.job("next")["state"], "Pending")
        holder.kill()
        holder.wait()
        self.wait_job("next", "Succeeded")


if __name__ == "__main__":
    if not driver_gpus():
        print("skipped: no NVIDIA driver has a GPU here", file=sys.stderr)
        sys.exit(SKIPPED)
    harness.main()
