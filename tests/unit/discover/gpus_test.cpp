// GPUs of fake machines, read by the real program.
#include "tests/unit/discover/fake_machine.h"
#include "tests/unit/discover/harness.h"

namespace dtrain::discover {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(Gpus, OfNvidiaWithWhatTheDriverSays) {
  FakeMachine fake(2, 8);
  // Neither the order of adding nor of buses' text decides, but that of addresses.
  fake.add_device({"0000:e0:00.0", 1});
  fake.add_device({"0000:10:00.0", 0});
  fake.add_nvidia_record("0000:10:00.0", "NVIDIA H100 80GB HBM3", "GPU-aaaa");
  fake.add_nvidia_record("0000:e0:00.0", "NVIDIA H100 80GB HBM3", "GPU-" + std::string(8, '?'));
  const auto machine = discover_root(fake.root());
  ASSERT_TRUE(machine) << machine.error().text();
  EXPECT_TRUE(machine->complete);
  EXPECT_EQ(machine->cpus, 8u);
  EXPECT_EQ(machine->packages, 2u);
  EXPECT_EQ(machine->numa_nodes, 2u);
  EXPECT_EQ(machine->memory_bytes,
            (128ull << 30) + (4096ull << 10));  // the kernel's figure, not the sum of the nodes
  EXPECT_THAT(warnings_of(*machine), IsEmpty());
  ASSERT_THAT(addresses_of(*machine), ElementsAre("0000:10:00.0", "0000:e0:00.0"));
  const node::Gpu &first = machine->gpus[0], &second = machine->gpus[1];
  EXPECT_EQ(first.index, 0u);
  EXPECT_EQ(first.vendor, "nvidia");
  EXPECT_EQ(first.model, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(first.uuid, "GPU-aaaa");
  EXPECT_EQ(first.numa, 0);
  EXPECT_TRUE(first.healthy);
  EXPECT_FALSE(first.pretended);
  EXPECT_EQ(second.index, 1u);
  EXPECT_EQ(second.numa, 1);
  EXPECT_EQ(second.uuid, "");  // the driver does not know it yet
}

TEST(Gpus, OfAmdWithWhatTheDriverSays) {
  FakeMachine fake(2, 8);
  fake.add_device({"0000:23:00.0", 1, 0x1002, 0x74a1, 0x120000});
  fake.add_device({"0000:13:00.0", 0, 0x1002, 0x66a1, 0x038000});
  fake.add_kfd_cpu(0);
  fake.add_kfd_node(1, "0000:13:00.0", "vega20", 32ull << 30, 0xabc1);
  fake.add_kfd_node(2, "0000:23:00.0", "aqua_vanjaram", 96ull << 30, 0);
  fake.add_kfd_node(3, "0000:23:00.0", "aqua_vanjaram", 96ull << 30,
                    0);  // a second partition of the same device
  fake.write("/sys/bus/pci/devices/0000:23:00.0/product_name", "Instinct MI300X\n");
  fake.write("/sys/bus/pci/devices/0000:23:00.0/unique_id", "00000000000000ff\n");
  const auto machine = discover_root(fake.root());
  ASSERT_TRUE(machine) << machine.error().text();
  EXPECT_THAT(warnings_of(*machine), IsEmpty());
  ASSERT_THAT(addresses_of(*machine), ElementsAre("0000:13:00.0", "0000:23:00.0"));
  EXPECT_EQ(machine->gpus[0].vendor, "amd");
  EXPECT_EQ(machine->gpus[0].model, "vega20");
  EXPECT_EQ(machine->gpus[0].uuid, "GPU-000000000000abc1");
  EXPECT_EQ(machine->gpus[0].memory_bytes, 32ull << 30);
  EXPECT_EQ(machine->gpus[0].numa, 0);
  EXPECT_EQ(machine->gpus[1].model, "Instinct MI300X");
  EXPECT_EQ(machine->gpus[1].uuid, "GPU-00000000000000ff");
  EXPECT_EQ(machine->gpus[1].memory_bytes, 192ull << 30);
  fake.write("/sys/bus/pci/devices/0000:23:00.0/mem_info_vram_total", "206141652992\n");
  EXPECT_EQ(discover_root(fake.root())->gpus[1].memory_bytes, 206141652992u);
}

TEST(Gpus, ConsolesAndOtherDevicesAreNone) {
  FakeMachine fake(1, 2);
  fake.add_device({"0000:01:00.0", 0, 0x1a03, 0x2000, 0x030000});  // ASPEED
  fake.add_device({"0000:02:00.0", 0, 0x102b, 0x0534, 0x030000});  // Matrox
  fake.add_device({"0000:03:00.0", 0, 0x1002, 0x515e, 0x030000});  // AMD ES1000
  fake.add_device({"0000:04:00.0", 0, 0x15b3, 0x1021, 0x020700});  // InfiniBand
  fake.add_device({"0000:05:00.0", 0, 0x10de, 0x22a3, 0x068000});  // NVSwitch
  fake.add_device({"0000:06:00.0", 0, 0x10de, 0x10f0, 0x040300});  // a GPU's sound
  fake.add_device({"0000:07:00.0", 0, 0x8086, 0x56c0, 0x038000});  // another maker
  const auto none = discover_root(fake.root());
  ASSERT_TRUE(none);
  EXPECT_THAT(addresses_of(*none), IsEmpty());
  EXPECT_THAT(warnings_of(*none), IsEmpty());
  fake.add_device({"0000:08:00.0", 0, 0x10de, 0x1b81, 0x030000});
  fake.add_nvidia_record("0000:08:00.0", "M", "GPU-1");
  EXPECT_THAT(addresses_of(*discover_root(fake.root())), ElementsAre("0000:08:00.0"));
}

TEST(Gpus, WithoutADriverAreSeenAndNotUsed) {
  FakeMachine fake(1, 2);
  fake.add_device({"0000:10:00.0"});
  fake.add_device({"0000:11:00.0", 0, 0x1002, 0x66a1, 0x038000});
  const auto machine = discover_root(fake.root());
  ASSERT_TRUE(machine);
  ASSERT_EQ(machine->gpus.size(), 2u);
  EXPECT_FALSE(machine->gpus[0].healthy);
  EXPECT_FALSE(machine->gpus[1].healthy);
  EXPECT_EQ(machine->gpus[0].model, "10de:2330");  // still something to say
  EXPECT_THAT(warnings_of(*machine), HasSubstr("could not use GPUs 0000:10:00.0: the NVIDIA driver is not loaded"));
  EXPECT_THAT(warnings_of(*machine), HasSubstr("could not use GPUs 0000:11:00.0: the AMD driver is not loaded"));
  EXPECT_THAT(machine->topology, HasSubstr("gpu 0  0000:10:00.0  10de:2330 (unhealthy: the NVIDIA driver is not loaded)\n"));
}

TEST(Gpus, OfSomebodyElseAreLeftOut) {
  FakeMachine fake(1, 2);
  for (const char* address : {"0000:10:00.0", "0000:20:00.0", "0000:30:00.0"}) fake.add_device({address});
  fake.add_nvidia_record("0000:20:00.0", "M", "GPU-2");
  fake.add_device({"0000:40:00.0", 0, 0x1002, 0x66a1, 0x038000});
  fake.add_kfd_cpu(0);
  const auto machine = discover_root(fake.root());
  ASSERT_TRUE(machine);
  ASSERT_THAT(addresses_of(*machine), ElementsAre("0000:20:00.0"));
  EXPECT_EQ(machine->gpus[0].index, 0u);
  EXPECT_THAT(warnings_of(*machine), HasSubstr("could not use GPUs 0000:10:00.0, 0000:30:00.0: the NVIDIA driver does not hold"));
  EXPECT_THAT(warnings_of(*machine), HasSubstr("could not use GPUs 0000:40:00.0: the AMD driver does not hold"));
}

TEST(Gpus, AreExcludedByAddressOrIndexAndTheOthersKeepTheirNumbers) {
  FakeMachine fake(1, 2);
  for (const char* address : {"0000:10:00.0", "0000:20:00.0", "0000:30:00.0", "0000:40:00.0"}) {
    fake.add_device({address});
    fake.add_nvidia_record(address, "M", std::string("GPU-") + address);
  }
  const auto machine = discover_root(fake.root(), {"00000000:20:00.0", "0", "0000:99:00.0", "7"});
  ASSERT_TRUE(machine);
  ASSERT_THAT(addresses_of(*machine), ElementsAre("0000:30:00.0", "0000:40:00.0"));
  EXPECT_EQ(machine->gpus[0].index, 2u);
  EXPECT_EQ(machine->gpus[1].index, 3u);
  EXPECT_THAT(warnings_of(*machine), HasSubstr("could not exclude GPU 0000:99:00.0: this machine has no such GPU; mend "
                                               "resources.excludeGpus; GPUs here: 0000:10:00.0, 0000:20:00.0"));
  EXPECT_THAT(warnings_of(*machine), HasSubstr("could not exclude GPU 7"));
  EXPECT_THAT(machine->topology, HasSubstr("0000:20:00.0  M (excluded)"));
}

TEST(Gpus, HaveALimitPerMachine) {
  FakeMachine fake(1, 2);
  for (unsigned i = 0; i < host::kMostGpus + 1; ++i) {
    char address[16];
    std::snprintf(address, sizeof address, "0000:%02x:00.0", 0x10 + i);
    fake.add_device({address});
    fake.add_nvidia_record(address, std::string(300, 'm') + "\x01", "GPU-1");
  }
  const auto machine = discover_root(fake.root());
  ASSERT_TRUE(machine);
  EXPECT_EQ(machine->gpus.size(), host::kMostGpus);
  EXPECT_THAT(warnings_of(*machine), HasSubstr("could not use all GPUs"));
  EXPECT_EQ(machine->gpus[0].model, std::string(host::kDeviceTextBytes, 'm'));
  EXPECT_LE(machine->topology.size(), host::kTopologyTextBytes);
  EXPECT_THAT(machine->topology, HasSubstr("... (longer than 2 KiB"));
}

TEST(Topology, IsASmallTree) {
  FakeMachine fake(4, 16);
  fake.add_device({"0000:10:00.0", 1});
  fake.add_nvidia_record("0000:10:00.0", "NVIDIA H100", "GPU-1");
  const auto machine = discover_root(fake.root());
  ASSERT_TRUE(machine);
  EXPECT_EQ(machine->topology,
            "machine: 16 cores, 256.0 GiB, 1 GPU\n"
            "  package 0: 4 cores\n"
            "    numa 0: 64.0 GiB, 4 cores\n"
            "  package 1: 4 cores\n"
            "    numa 1: 64.0 GiB, 4 cores\n"
            "      gpu 0  0000:10:00.0  NVIDIA H100\n"
            "  package 2: 4 cores\n"
            "    numa 2: 64.0 GiB, 4 cores\n"
            "  package 3: 4 cores\n"
            "    numa 3: 64.0 GiB, 4 cores\n");
}

// ---- NVML: a stand-in whose file name says what it does wrong

class Nvml : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* address : {"0000:10:00.0", "0000:20:00.0"}) {
      fake_.add_device({address});
      fake_.add_nvidia_record(address, "of the driver", "GPU-of-the-driver");
    }
  }
  Result<host::Machine> ask(const std::string& behaviour, Duration patience = host::kDiscoveryPatience) {
    const std::string library = directory_.path("libfake-" + behaviour + ".so");
    std::filesystem::copy_file(DTRAIN_FAKE_NVML, library);
    return discover_root(fake_.root(), {}, library, patience);
  }
  FakeMachine fake_{1, 2};
  Directory directory_;
};

TEST_F(Nvml, KnowsMemoryUuidAndModel) {
  const auto machine = ask("works");
  ASSERT_TRUE(machine) << machine.error().text();
  EXPECT_THAT(warnings_of(*machine), IsEmpty());
  ASSERT_THAT(addresses_of(*machine), ElementsAre("0000:10:00.0", "0000:20:00.0"));
  EXPECT_EQ(machine->gpus[1].memory_bytes, 80ull << 30);
  EXPECT_EQ(machine->gpus[1].uuid, "GPU-of-nvml-1");
  EXPECT_EQ(machine->gpus[1].model, "NVIDIA Fake 80GB");
  EXPECT_TRUE(machine->gpus[1].healthy);
  EXPECT_THAT(machine->topology, HasSubstr("gpu 1  0000:20:00.0  NVIDIA Fake 80GB, 80.0 GiB\n"));
}

TEST_F(Nvml, AddsGpusThatNoPciListShows) {
  FakeMachine empty(1, 2);
  const std::string library = directory_.path("libfake-works.so");
  std::filesystem::copy_file(DTRAIN_FAKE_NVML, library);
  const auto machine = discover_root(empty.root(), {"1"}, library);
  ASSERT_TRUE(machine);
  ASSERT_THAT(addresses_of(*machine), ElementsAre("0000:10:00.0"));
  EXPECT_EQ(machine->gpus[0].numa, -1);
  EXPECT_EQ(machine->gpus[0].vendor, "nvidia");
}

TEST_F(Nvml, ThatCannotReachTheDriverMakesGpusUnhealthy) {
  const auto machine = ask("refuses");
  ASSERT_TRUE(machine);
  ASSERT_EQ(machine->gpus.size(), 2u);
  EXPECT_FALSE(machine->gpus[0].healthy);
  EXPECT_EQ(machine->gpus[0].uuid, "GPU-of-the-driver");
  EXPECT_EQ(machine->gpus[0].reason, "NVML: Driver Not Loaded");
  EXPECT_THAT(warnings_of(*machine), HasSubstr("could not use the NVIDIA GPUs: NVML: Driver Not Loaded; see what nvidia-smi"));
}

TEST_F(Nvml, ThatLostOneGpuSaysSo) {
  const auto machine = ask("loses");
  ASSERT_TRUE(machine);
  ASSERT_EQ(machine->gpus.size(), 2u);
  EXPECT_TRUE(machine->gpus[0].healthy);
  EXPECT_FALSE(machine->gpus[1].healthy);
  EXPECT_EQ(machine->gpus[1].reason, "NVML has lost it: GPU is lost");
  EXPECT_THAT(warnings_of(*machine), HasSubstr("could not ask GPU number 1: NVML: GPU is lost"));
}

TEST_F(Nvml, ThatCrashesLeavesWhatTheKernelSaid) {
  const auto machine = ask("crashes");
  ASSERT_TRUE(machine);
  ASSERT_EQ(machine->gpus.size(), 2u);
  EXPECT_EQ(machine->gpus[0].model, "of the driver");
  EXPECT_FALSE(machine->gpus[0].healthy);
  EXPECT_EQ(machine->gpus[0].reason, "NVML gave no answer: dtrain-discover was killed by signal 6");
  EXPECT_EQ(machine->cpus, 2u);
  EXPECT_THAT(warnings_of(*machine), HasSubstr("could not ask the NVIDIA GPUs' library: dtrain-discover was killed by signal 6"));
}

TEST_F(Nvml, ThatHangsIsKilled) {
  const auto machine = ask("hangs", 4s);
  ASSERT_TRUE(machine);
  ASSERT_EQ(machine->gpus.size(), 2u);
  EXPECT_FALSE(machine->gpus[1].healthy);
  EXPECT_THAT(warnings_of(*machine), HasSubstr("did not end within 4 s and was killed by signal 9"));
}

TEST_F(Nvml, ThatIsNotThereCostsTheMemoryOnly) {
  const auto machine = discover_root(fake_.root(), {}, directory_.path("libnone.so"));
  ASSERT_TRUE(machine);
  ASSERT_EQ(machine->gpus.size(), 2u);
  EXPECT_TRUE(machine->gpus[0].healthy);
  EXPECT_EQ(machine->gpus[0].memory_bytes, 0u);
  EXPECT_THAT(warnings_of(*machine), HasSubstr("libnone.so cannot be loaded"));
  // A library of that name with nothing in it.
  const auto other = discover_root(fake_.root(), {}, "libm.so.6");
  ASSERT_TRUE(other);
  EXPECT_THAT(warnings_of(*other), HasSubstr("libm.so.6 has no nvmlInit_v2"));
  EXPECT_TRUE(other->gpus[0].healthy);
}

TEST(ThisMachine, CanBeDiscovered) {
  const auto machine = discover_root("");
  ASSERT_TRUE(machine) << machine.error().text();
  EXPECT_GE(machine->cpus, 1u);
  EXPECT_GT(machine->memory_bytes, 64u << 20);
  EXPECT_THAT(machine->topology, Not(IsEmpty()));
}

}  // namespace
}  // namespace dtrain::discover
