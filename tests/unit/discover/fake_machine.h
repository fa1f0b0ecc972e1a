// A directory that looks like the /proc and /sys of another machine, as far as hwloc and the drivers' readers
// look.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace dtrain::discover {

class FakeMachine {
 public:
  // `numa` packages of one NUMA node each, `cores` in all, one thread each.
  explicit FakeMachine(unsigned numa = 2, unsigned cores = 8);
  ~FakeMachine();
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;

  struct Device {
    std::string address;  // "0000:10:00.0"
    unsigned numa = 0;
    std::uint16_t vendor = 0x10de, device = 0x2330;
    std::uint32_t pci_class = 0x030200;
    unsigned first_below = 0, last_below = 0;  // buses, of a bridge
  };
  void add_device(const Device& device);
  // A PCI bridge, below which are the buses from `first` to `last`.
  void add_bridge(const std::string& address, unsigned numa, unsigned first, unsigned last);
  // A network card with an interface and, where `rdma` is not "", an RDMA device.
  void add_nic(const std::string& address, unsigned numa, const std::string& interface, const std::string& rdma);
  // The driver's record: /proc/driver/nvidia/gpus/ADDRESS/information.
  void add_nvidia_record(const std::string& address, const std::string& model, const std::string& uuid);
  // The compute driver's node: /sys/class/kfd/kfd/topology/nodes/NUMBER, and what lies beside the device.
  void add_kfd_node(unsigned number, const std::string& address, const std::string& name, std::uint64_t memory_bytes,
                    std::uint64_t unique_id);
  void add_kfd_cpu(unsigned number);
  void add_xgmi(unsigned from, unsigned to);  // a link between two nodes of the compute driver, as one of them has it

  // All of a device: what the kernel and its driver have of it.
  void remove_device(const std::string& address) const;
  void write(const std::string& path, const std::string& text) const;  // below the root
  void link(const std::string& path, const std::string& target) const;
  std::vector<std::string> files() const;  // all of them, by their path below the root, sorted
  std::string root() const { return root_.string(); }

 private:
  std::string mask(unsigned first, unsigned count) const;

  std::filesystem::path root_;
  unsigned cores_per_node_, cores_;
};

}  // namespace dtrain::discover
