// Bridges, network cards and links between GPUs.
#include "agent/dtrain-discover/links.h"
#include "tests/unit/discover/fake_machine.h"
#include "tests/unit/discover/harness.h"

namespace dtrain::discover {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char *kFirst = "0000:03:00.0", *kSecond = "0000:07:00.0", *kThird = "0000:13:00.0";

// Two roots. The first: a switch with a GPU and a NIC, a port with a GPU. The second, at the other NUMA node: one of each, ports of
// their own.
class Surroundings : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_.add_bridge("0000:00:01.0", 0, 1, 5);
    fake_.add_bridge("0000:01:00.0", 0, 2, 5);
    fake_.add_bridge("0000:02:00.0", 0, 3, 3);
    fake_.add_bridge("0000:02:01.0", 0, 4, 4);
    fake_.add_bridge("0000:00:02.0", 0, 7, 7);
    gpu(kFirst, 0);
    gpu(kSecond, 0);
    gpu(kThird, 1);
    fake_.add_nic("0000:04:00.0", 0, "ib0", "mlx5_0");
    fake_.add_nic("0000:00:1f.0", 0, "eth0", "");
    fake_.add_nic("0000:20:00.0", 1, "eth1", "");
    fake_.add_nic("0000:21:00.0", 1, "ib1", "mlx5_1");
  }
  void gpu(const char* address, unsigned numa) {
    fake_.add_device({address, numa});
    fake_.add_nvidia_record(address, "M", std::string("GPU-of-") + address);
  }
  FakeMachine fake_{2, 8};
};

TEST_F(Surroundings, BridgesAndTheNearestNics) {
  const auto machine = discover_root(fake_.root());
  ASSERT_TRUE(machine) << machine.error().text();
  ASSERT_THAT(addresses_of(*machine), ElementsAre(kFirst, kSecond, kThird));
  EXPECT_THAT(machine->gpus[0].bridges, ElementsAre("0000:00:01.0", "0000:01:00.0", "0000:02:00.0"));
  EXPECT_THAT(machine->gpus[0].nics, ElementsAre("mlx5_0"));  // the same switch
  EXPECT_THAT(machine->gpus[1].bridges, ElementsAre("0000:00:02.0"));
  EXPECT_THAT(machine->gpus[1].nics, ElementsAre("mlx5_0"));  // the same root: of its two NICs that with RDMA
  EXPECT_THAT(machine->gpus[2].bridges, IsEmpty());
  EXPECT_THAT(machine->gpus[2].nics, ElementsAre("mlx5_1"));  // only the NUMA node is the same
  EXPECT_THAT(machine->topology, HasSubstr("gpu 2  0000:13:00.0  M, near mlx5_1\n"));
}

TEST_F(Surroundings, WithoutRdmaThereIsTheInterface) {
  fake_.remove_device("0000:04:00.0");
  std::filesystem::remove(fake_.root() + "/sys/class/infiniband/mlx5_0");
  std::filesystem::remove(fake_.root() + "/sys/class/net/ib0");
  EXPECT_THAT(discover_root(fake_.root())->gpus.at(0).nics, ElementsAre("eth0"));
}

TEST_F(Surroundings, XgmiJoinsInGroups) {
  const char* amd[] = {"0000:30:00.0", "0000:31:00.0", "0000:32:00.0", "0000:33:00.0", "0000:34:00.0"};
  fake_.add_kfd_cpu(0);
  for (unsigned i = 0; i < 5; ++i) {
    fake_.add_device({amd[i], 0, 0x1002, 0x74a1, 0x120000});
    fake_.add_kfd_node(i + 1, amd[i], "aqua_vanjaram", 1ull << 37, i + 1);
    fake_.add_xgmi(i + 1, 0);  // to the processor: joins nobody
  }
  fake_.add_xgmi(1, 3);
  fake_.add_xgmi(3, 1);
  fake_.add_xgmi(3, 4);  // 1 and 4 are joined through 3
  fake_.write("/sys/class/kfd/kfd/topology/nodes/2/io_links/0/properties", "type 2\nnode_from 2\nnode_to 5\n");  // PCI Express
  const auto machine = discover_root(fake_.root());
  std::vector<std::int32_t> groups;
  for (const node::Gpu& each : machine->gpus) groups.push_back(each.group);
  EXPECT_THAT(groups, ElementsAre(-1, -1, -1, 0, -1, 0, 0, -1));
}

TEST_F(Surroundings, NvlinkJoinsAsNvmlSays) {
  const Directory directory;
  const auto groups = [&](const std::string& behaviour) {
    const std::string library = directory.path("libfake-" + behaviour + ".so");
    std::filesystem::copy_file(DTRAIN_FAKE_NVML, library);
    FakeMachine pair(1, 2);
    for (const char* address : {"0000:10:00.0", "0000:20:00.0"}) {
      pair.add_device({address});
      pair.add_nvidia_record(address, "M", std::string("GPU-") + address);
    }
    const auto machine = discover_root(pair.root(), {}, library);
    return std::vector{machine->gpus.at(0).group, machine->gpus.at(1).group};
  };
  EXPECT_THAT(groups("works"), ElementsAre(-1, -1));
  EXPECT_THAT(groups("links"), ElementsAre(0, 0));
  EXPECT_THAT(groups("switches"), ElementsAre(0, 0));
}

// Three GPUs, a matrix of bandwidths between them and the processor; a NIC beside the first.
constexpr const char* kLinkedTopology = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x1" complete_cpuset="0x1" allowed_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" allowed_nodeset="0x1" gp_index="1">
    <object type="Package" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="2">
      <object type="NUMANode" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="3" local_memory="8589934592"/>
      <object type="PU" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="4"/>
      <object type="Bridge" gp_index="5" bridge_type="0-1" depth="0" bridge_pci="0000:[00-20]">
        <object type="Bridge" gp_index="6" bridge_type="1-1" depth="1" bridge_pci="0000:[01-02]" pci_busid="0000:00:03.0" pci_type="0604 [8086:6f08] [8086:0000] 01" pci_link_speed="0.0">
          <object type="PCIDev" gp_index="7" pci_busid="0000:01:00.0" pci_type="0302 [10de:15f9] [10de:116b] a1" pci_link_speed="0.0">
            <object type="OSDev" gp_index="8" name="nvml0" subtype="NVML" osdev_type="1"/>
          </object>
          <object type="PCIDev" gp_index="9" pci_busid="0000:02:00.0" pci_type="0207 [15b3:1021] [15b3:0041] 00" pci_link_speed="0.0">
            <object type="OSDev" gp_index="10" name="mlx5_0" osdev_type="3"/>
          </object>
        </object>
        <object type="PCIDev" gp_index="11" pci_busid="0000:05:00.0" pci_type="0302 [10de:15f9] [10de:116b] a1" pci_link_speed="0.0">
          <object type="OSDev" gp_index="12" name="nvml1" subtype="NVML" osdev_type="1"/>
        </object>
        <object type="PCIDev" gp_index="13" pci_busid="0000:06:00.0" pci_type="0302 [10de:15f9] [10de:116b] a1" pci_link_speed="0.0">
          <object type="OSDev" gp_index="14" name="nvml2" subtype="NVML" osdev_type="1"/>
        </object>
      </object>
    </object>
  </object>
  <distances2hetero nbobjs="4" kind="25" name="NVLinkBandwidth">
    <indexes length="36">OSDev:8 OSDev:12 OSDev:14 Package:2 </indexes>
    <u64values length="32">9 0 4 4 0 9 0 4 4 0 9 4 4 4 4 9 </u64values>
  </distances2hetero>
</topology>
)";

TEST(LinkedTopology, IsReadFromAFileToo) {
  const Directory directory;
  const auto machine = discover_file(directory.write("t.xml", kLinkedTopology));
  ASSERT_TRUE(machine) << machine.error().text();
  ASSERT_THAT(addresses_of(*machine), ElementsAre("0000:01:00.0", "0000:05:00.0", "0000:06:00.0"));
  EXPECT_EQ(machine->gpus[0].group, 0);
  EXPECT_EQ(machine->gpus[1].group, -1);  // only the processor is between it and the others
  EXPECT_EQ(machine->gpus[2].group, 0);
  EXPECT_THAT(machine->gpus[0].bridges, ElementsAre("0000:00:03.0"));
  EXPECT_THAT(machine->gpus[0].nics, ElementsAre("mlx5_0"));
  EXPECT_THAT(machine->gpus[1].bridges, IsEmpty());
}

// ---- groups by themselves

std::vector<std::int32_t> groups_of(const std::vector<std::vector<int>>& links) {
  const auto address = [](int i) { return i < 0 ? kAnySwitch : host::PciAddress{0, static_cast<std::uint8_t>(i), 0, 0}; };
  std::vector<FoundGpu> gpus;
  for (std::size_t i = 0; i < links.size(); ++i) {
    gpus.push_back(make_gpu(address(static_cast<int>(i)), kNvidia, 0x2330));
    for (const int other : links[i]) gpus.back().linked.push_back(address(other));
  }
  set_groups(gpus);
  std::vector<std::int32_t> groups;
  for (const FoundGpu& gpu : gpus) groups.push_back(gpu.facts.group);
  return groups;
}

TEST(LinkGroups, AreWhatIsJoined) {
  EXPECT_THAT(groups_of({{}, {}}), ElementsAre(-1, -1));
  EXPECT_THAT(groups_of({{1}, {}, {3}, {2}}), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(groups_of({{3}, {2}, {}, {}}), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(groups_of({{1}, {2}, {3}, {}, {}}), ElementsAre(0, 0, 0, 0, -1));  // a chain
  EXPECT_THAT(groups_of({{-1}, {}, {-1}, {-1}}), ElementsAre(0, -1, 0, 0));      // switches
  EXPECT_THAT(groups_of({{-1}, {77}}), ElementsAre(-1, -1));                     // with none of these
}

}  // namespace
}  // namespace dtrain::discover
