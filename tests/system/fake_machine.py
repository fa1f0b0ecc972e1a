"""A directory that looks like the /proc and /sys of a machine with GPUs, as far as dtrain-discover looks: HWLOC_FSROOT names it."""
import os
import shutil

NODE_KIB = 64 << 20         # memory of a NUMA node


class FakeMachine:
    def __init__(self, root, nodes=2, cores=16, threads=1):
        """`cores` in all, one package for each node."""
        self.root, self.cpus_of_node = root, cores * threads // nodes
        self.cpus = cores * threads
        for name in ("online", "possible", "present"):
            self.write("sys/devices/system/cpu/" + name, "0-%d\n" % (self.cpus - 1))
        for cpu in range(self.cpus):
            topology = "sys/devices/system/cpu/cpu%d/topology/" % cpu
            node, core = cpu // self.cpus_of_node, cpu // threads
            self.write(topology + "physical_package_id", "%d\n" % node)
            self.write(topology + "core_id", "%d\n" % core)
            self.write(topology + "package_cpus", self.mask(node * self.cpus_of_node, self.cpus_of_node))
            self.write(topology + "core_cpus", self.mask(core * threads, threads))
        self.write("proc/cpuinfo", "".join("processor\t: %d\n\n" % cpu for cpu in range(self.cpus)))
        self.write("proc/meminfo", "MemTotal: %d kB\n" % (nodes * NODE_KIB))
        self.write("sys/devices/system/node/online", "0-%d\n" % (nodes - 1))
        for node in range(nodes):
            self.write("sys/devices/system/node/node%d/cpumap" % node, self.mask(node * self.cpus_of_node, self.cpus_of_node))
            self.write("sys/devices/system/node/node%d/meminfo" % node, "Node %d MemTotal: %d kB\n" % (node, NODE_KIB))

    def write(self, name, content):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)

    def mask(self, first, count):
        """As the kernel writes it: words of 32 bits in hex, the highest first."""
        bits = ((1 << count) - 1) << first
        words = [bits >> shift & 0xffffffff for shift in range(0, max(self.cpus, 1), 32)]
        return ",".join("%08x" % word for word in reversed(words)) + "\n"

    def device(self, address, node, vendor, device, pci_class):
        directory = "sys/devices/pci%s/%s/" % (address[:7], address)
        config = bytearray(256)
        config[0:2], config[2:4], config[9:12] = (number.to_bytes(size, "little") for number, size in
                                                  ((vendor, 2), (device, 2), (pci_class, 3)))
        self.write(directory + "config", bytes(config))
        for name, text in (("vendor", "0x%04x" % vendor), ("device", "0x%04x" % device), ("class", "0x%06x" % pci_class),
                           ("revision", "0xa1"), ("subsystem_vendor", "0x0000"), ("subsystem_device", "0x0000"), ("numa_node", str(node))):
            self.write(directory + name, text + "\n")
        self.write(directory + "local_cpus", self.mask(node * self.cpus_of_node, self.cpus_of_node))
        link = os.path.join(self.root, "sys/bus/pci/devices", address)
        os.makedirs(os.path.dirname(link), exist_ok=True)
        os.symlink("../../../devices/pci%s/%s" % (address[:7], address), link)

    def nvidia(self, address, node, model="NVIDIA H100", minor=None):
        """`minor`: of its device node, which is a file of ours."""
        self.device(address, node, 0x10de, 0x2330, 0x030200)
        self.write("proc/driver/nvidia/gpus/%s/information" % address, "Model: \t\t %s\nGPU UUID: \t %s\n" % (model, self.uuid(address))
                   + ("" if minor is None else "Device Minor: \t %d\n" % minor))
        if minor is not None:
            self.write("dev/nvidia%d" % minor, "")

    def amd(self, address, node, number, linked=(), model="MI300X"):
        """`number`: of the compute driver's node; `linked`: those that XGMI joins it with."""
        self.device(address, node, 0x1002, 0x74a1, 0x120000)
        directory = "sys/class/kfd/kfd/topology/nodes/%d/" % number
        self.write(directory + "name", "aqua_vanjaram\n")
        self.write(directory + "properties", "simd_count 1216\nlocation_id %d\ndomain 0\nunique_id %d\n" % (
            int(address[5:7], 16) << 8, int(address[5:7], 16)))
        for link, other in enumerate(linked):
            self.write(directory + "io_links/%d/properties" % link, "type 11\nnode_from %d\nnode_to %d\n" % (number, other))
        self.write("sys/bus/pci/devices/%s/product_name" % address, model + "\n")
        self.write("sys/bus/pci/devices/%s/mem_info_vram_total" % address, "206141652992\n")

    @staticmethod
    def uuid(address, maker="nvidia"):
        return "GPU-of-" + address if maker == "nvidia" else "GPU-%016x" % int(address[5:7], 16)

    def remove(self, address):
        link = os.path.join(self.root, "sys/bus/pci/devices", address)
        shutil.rmtree(os.path.realpath(link))
        os.unlink(link)
        shutil.rmtree(os.path.join(self.root, "proc/driver/nvidia/gpus", address), ignore_errors=True)


def eight_and_eight(root):
    """Eight NVIDIA GPUs at 10:00.0 to 17:00.0 and eight of AMD at 40:00.0 to 47:00.0, four of each on either of two NUMA nodes; XGMI
    joins AMD's with even numbers, and those with odd ones."""
    machine = FakeMachine(root, nodes=2, cores=16)
    for i in range(8):
        machine.nvidia("0000:%02x:00.0" % (0x10 + i), i // 4)
        machine.amd("0000:%02x:00.0" % (0x40 + i), i // 4, 2 + i, [2 + other for other in range(i % 2, 8, 2) if other != i])
    return machine
