// The logical CPUs of a machine, with their cores and NUMA nodes.
#include "tests/unit/discover/fake_machine.h"
#include "tests/unit/discover/harness.h"

namespace dtrain::discover {
namespace {

using ::testing::ElementsAre;

using Cpu = task::HostCpu;

// The kernel counts the cores of each package anew.
TEST(Cpus, CoresOfTwoPackagesAreNotOne) {
  const FakeMachine fake(2, 4);
  const auto machine = discover_root(fake.root());
  ASSERT_TRUE(machine) << machine.error().text();
  EXPECT_EQ(machine->cpus, 4u);
  EXPECT_THAT(machine->cpu_list, ElementsAre(Cpu{0, 0, 0}, Cpu{1, 1, 0}, Cpu{2, 2, 1}, Cpu{3, 3, 1}));
}

TEST(Cpus, HyperthreadsAreOfOneCore) {
  const FakeMachine fake(1, 4);
  const std::string cpus = "/sys/devices/system/cpu/cpu";
  for (unsigned cpu = 0; cpu < 4; ++cpu) {
    const std::string topology = cpus + std::to_string(cpu) + "/topology/";
    fake.write(topology + "core_id", std::to_string(cpu % 2) + "\n");
    fake.write(topology + "core_cpus", cpu % 2 == 0 ? "5\n" : "a\n");
  }
  const auto machine = discover_root(fake.root());
  ASSERT_TRUE(machine) << machine.error().text();
  EXPECT_THAT(machine->cpu_list, ElementsAre(Cpu{0, 0, 0}, Cpu{1, 1, 0}, Cpu{2, 0, 0}, Cpu{3, 1, 0}));
}

// One that is offline is no CPU, and the numbers of the others stay.
TEST(Cpus, OfflineOnesAreLeftOut) {
  const FakeMachine fake(1, 4);
  fake.write("/sys/devices/system/cpu/online", "0,2-3\n");
  const auto machine = discover_root(fake.root());
  ASSERT_TRUE(machine) << machine.error().text();
  EXPECT_THAT(machine->cpu_list, ElementsAre(Cpu{0, 0, 0}, Cpu{2, 1, 0}, Cpu{3, 2, 0}));
}

}  // namespace
}  // namespace dtrain::discover
