// Machines that are not as they were, or not as they should be.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

#include "agent/host/pci_address.h"

#include "tests/unit/discover/fake_machine.h"
#include "tests/unit/discover/harness.h"

namespace dtrain::discover {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr const char* kDevices = "/sys/bus/pci/devices/";

// "2 0000:30:00.0" and, where it is not healthy, why.
std::vector<std::string> lines_of(const host::Machine& machine) {
  std::vector<std::string> lines;
  for (const node::Gpu& gpu : machine.gpus)
    lines.push_back(std::to_string(gpu.index) + " " + gpu.pci + (gpu.healthy ? "" : " " + gpu.reason));
  return lines;
}

class Mutation : public ::testing::Test {
 protected:
  void add(const std::string& address) const {
    fake_.add_device({address, 0});
    fake_.add_nvidia_record(address, "M", "GPU-of-" + address);
  }
  Result<host::Machine> discover(std::vector<std::string> exclude = {}) {
    auto machine = discover_root(fake_.root(), std::move(exclude), "", host::kDiscoveryPatience, known_);
    if (machine) known_ = machine->known;
    return machine;
  }
  void SetUp() override {
    for (const char* address : {"0000:10:00.0", "0000:20:00.0", "0000:30:00.0"}) add(address);
  }
  mutable FakeMachine fake_{1, 2};
  std::vector<host::KnownGpu> known_;
};

TEST_F(Mutation, AGpuThatVanishesKeepsItsNumberAndSoDoTheOthers) {
  EXPECT_THAT(lines_of(*discover()), ElementsAre("0 0000:10:00.0", "1 0000:20:00.0", "2 0000:30:00.0"));
  fake_.remove_device("0000:20:00.0");
  const auto without = discover();
  EXPECT_THAT(lines_of(*without), ElementsAre("0 0000:10:00.0", "1 0000:20:00.0 it is not on the bus any more", "2 0000:30:00.0"));
  EXPECT_EQ(without->gpus[2].uuid, "GPU-of-0000:30:00.0");
  EXPECT_EQ(without->gpus[2].ordinal, 1);  // as CUDA counts what is left
  EXPECT_THAT(without->topology, HasSubstr("gpu 1  0000:20:00.0 (unhealthy: it is not on the bus any more)"));
  add("0000:08:00.0");  // a card that was never here gets a number that no card had
  fake_.remove_device("0000:30:00.0");
  EXPECT_THAT(lines_of(*discover()), ElementsAre("0 0000:10:00.0", "1 0000:20:00.0 it is not on the bus any more",
                                                 "2 0000:30:00.0 it is not on the bus any more", "3 0000:08:00.0"));
  add("0000:20:00.0");
  add("0000:30:00.0");
  EXPECT_THAT(lines_of(*discover()), ElementsAre("0 0000:10:00.0", "1 0000:20:00.0", "2 0000:30:00.0", "3 0000:08:00.0"));
}

TEST_F(Mutation, AGpuThatItsDriverGivesUpIsShownOnlyWhereItWasOnesOwn) {
  fake_.add_device({"0000:40:00.0"});  // another container's
  EXPECT_THAT(lines_of(*discover()), SizeIs(3));
  std::filesystem::remove_all(fake_.root() + "/proc/driver/nvidia/gpus/0000:10:00.0");
  EXPECT_THAT(lines_of(*discover()), ElementsAre("0 0000:10:00.0 the NVIDIA driver does not hold it", "1 0000:20:00.0", "2 0000:30:00.0"));
}

TEST_F(Mutation, WhatIsExcludedIsNotMissed) {
  discover();
  fake_.remove_device("0000:20:00.0");
  for (const char* name : {"0000:20:00.0", "1"}) {
    const auto machine = discover({name});
    EXPECT_THAT(lines_of(*machine), ElementsAre("0 0000:10:00.0", "2 0000:30:00.0"));
    EXPECT_THAT(warnings_of(*machine), IsEmpty());
    EXPECT_THAT(machine->known, SizeIs(3));
  }
}

TEST_F(Mutation, MoreThanAMachineMayHaveForgetsWhatIsGone) {
  for (std::uint32_t i = 0; i < host::kMostGpus - 1; ++i)
    known_.push_back({i + 7, host::PciAddress{1, static_cast<std::uint8_t>(i), 0, 0}.text()});
  const auto machine = discover();
  ASSERT_THAT(machine->gpus, SizeIs(host::kMostGpus));
  EXPECT_EQ(machine->gpus.front().index, 9u);  // two had to go
  EXPECT_EQ(machine->gpus[29].index, 7 + host::kMostGpus - 1);
  EXPECT_TRUE(machine->gpus[29].healthy);
}

TEST_F(Mutation, VirtualFunctionsAreNoDevicesOfTheirOwn) {
  fake_.add_device({"0000:10:00.4", 0});
  fake_.link(kDevices + std::string("0000:10:00.4/physfn"), "../0000:10:00.0");
  fake_.add_nvidia_record("0000:10:00.4", "M", "GPU-4");
  fake_.write(kDevices + std::string("0000:10:00.0/sriov_numvfs"), "1\n");
  fake_.write(kDevices + std::string("0000:20:00.0/sriov_numvfs"), "0\n");
  EXPECT_THAT(lines_of(*discover()), ElementsAre("0 0000:10:00.0 it is cut into 1 virtual functions", "1 0000:20:00.0", "2 0000:30:00.0"));
}

TEST_F(Mutation, MigMakesNoDevicesAndIsNotGivenOut) {
  fake_.write("/proc/driver/nvidia/gpus/0000:20:00.0/information", "Model: \t M\nDevice Minor: \t 5\n");
  fake_.write("/proc/driver/nvidia/capabilities/gpu5/mig/config", "");
  EXPECT_THAT(lines_of(*discover()), ElementsAre("0 0000:10:00.0", "1 0000:20:00.0", "2 0000:30:00.0"));
  fake_.write("/proc/driver/nvidia/capabilities/gpu5/mig/gi0/access", "");
  const auto machine = discover();
  EXPECT_THAT(lines_of(*machine),
              ElementsAre("0 0000:10:00.0", "1 0000:20:00.0 MIG is on: this version gives out whole GPUs only", "2 0000:30:00.0"));
  EXPECT_EQ(machine->gpus[1].minor, 5);
}

TEST_F(Mutation, MigIsKnownToNvmlToo) {
  const Directory directory;
  const std::string library = directory.path("libfake-cuts.so");
  std::filesystem::copy_file(DTRAIN_FAKE_NVML, library);
  fake_.remove_device("0000:30:00.0");
  const auto machine = discover_root(fake_.root(), {}, library);
  EXPECT_THAT(lines_of(*machine), ElementsAre("0 0000:10:00.0 MIG is on: this version gives out whole GPUs only", "1 0000:20:00.0"));
}

TEST_F(Mutation, WithoutNumaInformationGpusAreNearToNone) {
  FakeMachine several(2, 8);
  several.add_device({"0000:10:00.0", 1});
  several.add_nvidia_record("0000:10:00.0", "M", "GPU-1");
  several.write(kDevices + std::string("0000:10:00.0/local_cpus"), "ff\n");
  several.write(kDevices + std::string("0000:10:00.0/numa_node"), "-1\n");
  EXPECT_EQ(discover_root(several.root())->gpus.at(0).numa, -1);
  // No nodes at all: all that there is is one.
  std::filesystem::remove_all(several.root() + "/sys/devices/system/node");
  const auto machine = discover_root(several.root());
  EXPECT_EQ(machine->numa_nodes, 1u);
  EXPECT_EQ(machine->gpus.at(0).numa, 0);
}

TEST_F(Mutation, OneDeviceHoweverManyBackEndsReportIt) {
  const Directory directory;
  const std::string library = directory.path("libfake-works.so");  // 10:00.0 and 20:00.0 once more
  std::filesystem::copy_file(DTRAIN_FAKE_NVML, library);
  fake_.add_nvidia_record("00000000:10:00.0", "again", "GPU-again");  // as other drivers write the address
  fake_.add_device({"0000:50:00.0", 0, 0x1002, 0x74a1, 0x120000});
  for (unsigned node = 1; node < 9; ++node) fake_.add_kfd_node(node, "0000:50:00.0", "aqua_vanjaram", 1 << 20, 5);
  const auto machine = discover_root(fake_.root(), {}, library);
  EXPECT_THAT(addresses_of(*machine), ElementsAre("0000:10:00.0", "0000:20:00.0", "0000:30:00.0", "0000:50:00.0"));
  EXPECT_EQ(machine->gpus[3].ordinal, 0);
}

// A file or directory of the machine that all draws share, moved aside for one of them.
struct MovedAside {
  MovedAside(std::string from, std::string to) : path(std::move(from)), aside(std::move(to)) { std::filesystem::rename(path, aside); }
  ~MovedAside() {
    std::filesystem::remove_all(path);
    std::filesystem::rename(aside, path);
  }
  MovedAside(const MovedAside&) = delete;
  const std::string path, aside;
};

// Eight of each maker on two NUMA nodes; then one file is gone, empty or another's.
RC_GTEST_PROP(Mutations, OfAnyFileAddNoGpuAndNeverHurt, ()) {
  static const FakeMachine* const machine = [] {
    auto* fake = new FakeMachine(2, 16);
    for (unsigned i = 0; i < 8; ++i) {
      const std::string nvidia = "0000:" + std::to_string(10 + i) + ":00.0", amd = "0000:" + std::to_string(40 + i) + ":00.0";
      fake->add_device({nvidia, i / 4});
      fake->add_nvidia_record(nvidia, "H100", "GPU-" + std::to_string(i));
      fake->add_device({amd, i / 4, 0x1002, 0x74a1, 0x120000});
      fake->add_kfd_node(2 + i, amd, "aqua_vanjaram", 1ull << 37, 100 + i);
    }
    return fake;
  }();
  static const std::vector<std::string> files = machine->files();
  const std::string &file = *rc::gen::elementOf(files), &other = *rc::gen::elementOf(files);
  const int how = *rc::gen::inRange(0, 3);
  const std::string path = machine->root() + file;
  const auto found = [&] {
    const MovedAside moved(path, machine->root() + ".aside");  // not among the files of the machine
    if (how == 1) machine->write(file, "");
    std::error_code none_left;  // the other file may be this one, or lead to it
    if (how == 2) std::filesystem::copy(machine->root() + other, path, std::filesystem::copy_options::recursive, none_left);
    return discover_root(machine->root());
  }();
  RC_ASSERT(!found || found->gpus.size() <= 16u);
  if (!found) RC_ASSERT(found.error().message.starts_with("could not "));
  if (found) {
    std::set<std::string> addresses;
    for (const node::Gpu& gpu : found->gpus) RC_ASSERT(addresses.insert(gpu.pci).second);
  }
}

// ---- the file

TEST(KnownGpus, AreReadAsTheyAreWritten) {
  const std::vector<host::KnownGpu> gpus{{0, "0000:10:00.0"}, {7, "0001:20:00.0"}};
  EXPECT_EQ(host::known_gpus_file(gpus), "dtrain gpus 1\n0 0000:10:00.0\n7 0001:20:00.0\n");
  EXPECT_EQ(*host::parse_known_gpus(host::known_gpus_file(gpus)), gpus);
  EXPECT_THAT(*host::parse_known_gpus("dtrain gpus 1\n"), IsEmpty());
}

TEST(KnownGpus, ThatAreDamagedAreRefused) {
  const std::string head = "dtrain gpus 1\n";
  std::string many = head;
  for (std::size_t i = 0; i <= host::kMostGpus; ++i)
    many += std::to_string(i) + " " + host::PciAddress{0, static_cast<std::uint8_t>(i), 0, 0}.text() + "\n";
  for (const std::string& text :
       {std::string(), std::string("dtrain gpus 2\n"), head + "0 0000:10:00.0", head + "0 10:00.0\n", head + "x 0000:10:00.0\n",
        head + "-1 0000:10:00.0\n", head + "4294967295 0000:10:00.0\n", head + "0\n", head + "\n",
        head + "0 0000:10:00.0\n0 0000:11:00.0\n", head + "0 0000:10:00.0\n1 0000:10:00.0\n", many}) {
    const auto read = host::parse_known_gpus(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code, ErrorCode::invalid) << text;
  }
}

}  // namespace
}  // namespace dtrain::discover
