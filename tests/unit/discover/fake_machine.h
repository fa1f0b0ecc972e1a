// A directory that looks like the /proc and /sys of another machine, as far as hwloc and the drivers' readers
// look.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

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
  };
  void add_device(const Device& device);
  // The driver's record: /proc/driver/nvidia/gpus/ADDRESS/information.
  void add_nvidia_record(const std::string& address, const std::string& model, const std::string& uuid);
  // The compute driver's node: /sys/class/kfd/kfd/topology/nodes/NUMBER, and what lies beside the device.
  void add_kfd_node(unsigned number, const std::string& address, const std::string& name,
                    std::uint64_t memory_bytes, std::uint64_t unique_id);
  void add_kfd_cpu(unsigned number);

  void write(const std::string& path, const std::string& text) const;  // below the root
  std::string root() const { return root_.string(); }

 private:
  std::string mask(unsigned first, unsigned count) const;
  void link(const std::string& path, const std::string& target) const;

  std::filesystem::path root_;
  unsigned cores_per_node_, cores_;
};

}  // namespace dtrain::discover
