#include "tests/unit/discover/fake_machine.h"

#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <stdexcept>

namespace dtrain::discover {
namespace {

constexpr std::uint64_t kNodeKilobytes = 64ull << 20;

std::string hex(std::uint64_t value, int digits) {
  char text[24];
  std::snprintf(text, sizeof text, "%0*llx", digits, static_cast<unsigned long long>(value));
  return text;
}

std::string number(std::uint64_t value) { return std::to_string(value); }

}  // namespace

FakeMachine::FakeMachine(unsigned numa, unsigned cores) : cores_per_node_(cores / numa), cores_(cores) {
  std::string name = (std::filesystem::temp_directory_path() / "dtrain-machine-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
  root_ = name;
  const std::string all = "0-" + number(cores - 1) + "\n", cpus = "/sys/devices/system/cpu/";
  for (const char* file : {"online", "possible", "present"}) write(cpus + file, all);
  std::string info;
  for (unsigned cpu = 0; cpu < cores; ++cpu) {
    const unsigned node = cpu / cores_per_node_;
    const std::string topology = cpus + "cpu" + number(cpu) + "/topology/";
    write(topology + "physical_package_id", number(node) + "\n");
    write(topology + "core_id", number(cpu % cores_per_node_) + "\n");
    write(topology + "package_cpus", mask(node * cores_per_node_, cores_per_node_));
    write(topology + "core_cpus", mask(cpu, 1));
    info += "processor\t: " + number(cpu) + "\nphysical id\t: " + number(node) + "\n\n";
  }
  write("/proc/cpuinfo", info);
  write("/proc/meminfo", "MemTotal:       " + number(numa * kNodeKilobytes + 4096) + " kB\nMemFree:  1 kB\n");
  const std::string nodes = "/sys/devices/system/node/";
  write(nodes + "online", "0-" + number(numa - 1) + "\n");
  for (unsigned node = 0; node < numa; ++node) {
    const std::string directory = nodes + "node" + number(node) + "/";
    write(directory + "cpumap", mask(node * cores_per_node_, cores_per_node_));
    write(directory + "meminfo", "Node " + number(node) + " MemTotal: " + number(kNodeKilobytes) + " kB\n");
  }
}

FakeMachine::~FakeMachine() {
  std::error_code ignored;
  std::filesystem::remove_all(root_, ignored);
}

void FakeMachine::write(const std::string& path, const std::string& text) const {
  const std::filesystem::path whole = root_ / path.substr(1);
  std::filesystem::create_directories(whole.parent_path());
  std::ofstream file(whole, std::ios::binary);
  file << text;
  if (!file.flush()) throw std::runtime_error("could not write " + whole.string());
}

void FakeMachine::remove_device(const std::string& address) const {
  const std::filesystem::path device = root_ / "sys/bus/pci/devices" / address;
  std::filesystem::remove_all(std::filesystem::canonical(device));
  std::filesystem::remove(device);
  std::filesystem::remove_all(root_ / "proc/driver/nvidia/gpus" / address);
}

std::vector<std::string> FakeMachine::files() const {
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root_))
    if (!entry.is_directory() || entry.is_symlink()) all.push_back("/" + entry.path().lexically_relative(root_).string());
  std::sort(all.begin(), all.end());
  return all;
}

void FakeMachine::link(const std::string& path, const std::string& target) const {
  const std::filesystem::path whole = root_ / path.substr(1);
  std::filesystem::create_directories(whole.parent_path());
  std::filesystem::create_symlink(target, whole);
}

// As the kernel writes CPU masks: words of 32 bits in hex, the highest first.
std::string FakeMachine::mask(unsigned first, unsigned count) const {
  std::string text;
  for (unsigned word = (cores_ + 31) / 32; word-- > 0;) {
    std::uint32_t bits = 0;
    for (unsigned bit = 0; bit < 32; ++bit)
      if (word * 32 + bit >= first && word * 32 + bit < first + count) bits |= 1u << bit;
    text += (text.empty() ? "" : ",") + hex(bits, 8);
  }
  return text + "\n";
}

void FakeMachine::add_device(const Device& device) {
  const std::string domain = device.address.substr(0, 7);  // "0000:10": each device has a root of its own
  const std::string directory = "/sys/devices/pci" + domain + "/" + device.address;
  std::string config(256, '\0');  // configuration space, little-endian
  const auto put = [&](std::size_t at, std::uint32_t value, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) config[at + i] = static_cast<char>(value >> (8 * i));
  };
  put(0, device.vendor, 2);
  put(2, device.device, 2);
  put(9, device.pci_class, 3);
  if (device.last_below != 0) {  // a bridge's header
    put(0x0e, 1, 1);
    put(0x18, static_cast<std::uint32_t>(std::stoul(device.address.substr(5, 2), nullptr, 16)), 1);
    put(0x19, device.first_below, 1);
    put(0x1a, device.last_below, 1);
  }
  write(directory + "/config", config);
  write(directory + "/vendor", "0x" + hex(device.vendor, 4) + "\n");
  write(directory + "/device", "0x" + hex(device.device, 4) + "\n");
  write(directory + "/class", "0x" + hex(device.pci_class, 6) + "\n");
  for (const char* file : {"/subsystem_vendor", "/subsystem_device"}) write(directory + file, "0x0000\n");
  write(directory + "/revision", "0xa1\n");
  write(directory + "/local_cpus", mask(device.numa * cores_per_node_, cores_per_node_));
  link("/sys/bus/pci/devices/" + device.address, "../../../devices/pci" + domain + "/" + device.address);
}

void FakeMachine::add_bridge(const std::string& address, unsigned numa, unsigned first, unsigned last) {
  add_device({address, numa, 0x1000, 0xc030, 0x060400, first, last});
}

void FakeMachine::add_nic(const std::string& address, unsigned numa, const std::string& interface, const std::string& rdma) {
  add_device({address, numa, 0x15b3, 0x1021, 0x020000});
  const std::string device = "devices/pci" + address.substr(0, 7) + "/" + address;
  const auto add = [&](const std::string& kind, const std::string& name) {
    write("/sys/" + device + "/" + kind + "/" + name + "/uevent", "");
    link("/sys/class/" + kind + "/" + name, "../../" + device + "/" + kind + "/" + name);
    link("/sys/" + device + "/" + kind + "/" + name + "/device", "../../../" + address);
  };
  add("net", interface);
  if (!rdma.empty()) add("infiniband", rdma);
}

void FakeMachine::add_xgmi(unsigned from, unsigned to) {
  write("/sys/class/kfd/kfd/topology/nodes/" + number(from) + "/io_links/" + number(to) + "/properties",
        "type 11\nnode_from " + number(from) + "\nnode_to " + number(to) + "\nweight 15\n");
}

void FakeMachine::add_nvidia_record(const std::string& address, const std::string& model, const std::string& uuid) {
  write("/proc/driver/nvidia/gpus/" + address + "/information", "Model: \t\t " + model + "\nIRQ:   \t\t 77\nGPU UUID: \t " + uuid +
                                                                    "\nBus Location: \t " + address +
                                                                    "\nDevice Minor: \t 0\nGPU Excluded:\t No\n");
}

void FakeMachine::add_kfd_cpu(unsigned number_of_node) {
  const std::string directory = "/sys/class/kfd/kfd/topology/nodes/" + number(number_of_node);
  write(directory + "/properties", "cpu_cores_count 4\nsimd_count 0\nlocation_id 0\ndomain 0\n");
}

void FakeMachine::add_kfd_node(unsigned number_of_node, const std::string& address, const std::string& name, std::uint64_t memory_bytes,
                               std::uint64_t unique_id) {
  const std::string directory = "/sys/class/kfd/kfd/topology/nodes/" + number(number_of_node);
  const unsigned bus = static_cast<unsigned>(std::stoul(address.substr(5, 2), nullptr, 16));
  write(directory + "/name", name + "\n");
  write(directory + "/properties",
        "cpu_cores_count 0\nsimd_count 1216\nlocation_id " + number(bus << 8) + "\ndomain 0\nunique_id " + number(unique_id) + "\n");
  write(directory + "/mem_banks/0/properties", "heap_type 2\nsize_in_bytes " + number(memory_bytes) + "\n");
}

}  // namespace dtrain::discover
