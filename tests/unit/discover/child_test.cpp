// Topology files, and children that misbehave.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "agent/host/pci_address.h"
#include "tests/unit/discover/harness.h"

namespace dtrain::discover {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// One package of two cores, one GPU that cuda and nvml know, one console.
constexpr const char* kSmallTopology = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x3" complete_cpuset="0x3" allowed_cpuset="0x3" nodeset="0x1" complete_nodeset="0x1" allowed_nodeset="0x1" gp_index="1">
    <object type="Package" os_index="0" cpuset="0x3" complete_cpuset="0x3" nodeset="0x1" complete_nodeset="0x1" gp_index="2">
      <object type="NUMANode" os_index="0" cpuset="0x3" complete_cpuset="0x3" nodeset="0x1" complete_nodeset="0x1" gp_index="3" local_memory="8589934592"/>
      <object type="Core" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="4">
        <object type="PU" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="5"/>
      </object>
      <object type="Core" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x1" complete_nodeset="0x1" gp_index="6">
        <object type="PU" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x1" complete_nodeset="0x1" gp_index="7"/>
      </object>
      <object type="Bridge" gp_index="8" bridge_type="0-1" depth="0" bridge_pci="0000:[00-20]">
        <object type="PCIDev" gp_index="9" pci_busid="0000:02:00.0" pci_type="0302 [10de:15f9] [10de:116b] a1" pci_link_speed="15.75">
          <object type="OSDev" gp_index="10" name="cuda0" subtype="CUDA" osdev_type="5"><info name="GPUModel" value="Tesla P100"/><info name="CUDAGlobalMemorySize" value="16777216"/></object>
          <object type="OSDev" gp_index="11" name="nvml0" subtype="NVML" osdev_type="1"><info name="NVIDIAUUID" value="GPU-5"/></object>
        </object>
        <object type="PCIDev" gp_index="12" pci_busid="0000:03:00.0" pci_type="0300 [1a03:2000] [1a03:2000] 41" pci_link_speed="0.0"/>
      </object>
    </object>
  </object>
</topology>
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(TopologyFile, IsReadInsteadOfTheMachine) {
  const Directory directory;
  const auto machine = discover_file(directory.write("t.xml", kSmallTopology));
  ASSERT_TRUE(machine) << machine.error().text();
  EXPECT_EQ(machine->cpus, 2u);
  EXPECT_EQ(machine->memory_bytes, 8ull << 30);
  ASSERT_THAT(addresses_of(*machine), ElementsAre("0000:02:00.0"));
  EXPECT_EQ(machine->gpus[0].model, "Tesla P100");
  EXPECT_EQ(machine->gpus[0].uuid, "GPU-5");
  EXPECT_EQ(machine->gpus[0].memory_bytes, 16ull << 30);
  EXPECT_EQ(machine->gpus[0].numa, 0);
  EXPECT_TRUE(machine->gpus[0].healthy);
  EXPECT_THAT(warnings_of(*machine), IsEmpty());
}

TEST(TopologyFile, OfALaterFormatIsRefusedWithItsCure) {
  const Directory directory;
  const auto machine = discover_file(directory.write("t.xml", replaced(kSmallTopology, "version=\"2.0\"", "version=\"7.0\"")));
  ASSERT_FALSE(machine);
  EXPECT_EQ(machine.error().code, ErrorCode::invalid);
  EXPECT_THAT(machine.error().message, HasSubstr("t.xml: it has format 7, and hwloc"));
  EXPECT_THAT(machine.error().next, HasSubstr("--export-xml-flags v"));
}

TEST(TopologyFile, ThatIsNoneIsRefused) {
  const Directory directory;
  const std::string cut = std::string(kSmallTopology).substr(0, 900);
  for (const std::string& text :
       {std::string(), std::string("no xml"), std::string("<topology>"), std::string("<topology version=\"2.0\">"), cut}) {
    const auto machine = discover_file(directory.write("t.xml", text));
    ASSERT_FALSE(machine) << text;
    EXPECT_EQ(machine.error().code, ErrorCode::invalid) << text;
    EXPECT_THAT(machine.error().text(), HasSubstr("could not read topology " + directory.path("t.xml"))) << text;
  }
  EXPECT_EQ(discover_file(directory.path("")).error().code, ErrorCode::invalid);
  std::filesystem::resize_file(directory.write("big.xml", ""), host::kTopologyFileBytes + 1);
  EXPECT_THAT(discover_file(directory.path("big.xml")).error().message, HasSubstr("larger than 16 MiB"));
  EXPECT_EQ(discover_file(directory.path("none.xml")).error().code, ErrorCode::not_found);
}

// Whatever is in the file, the caller lives and gets an answer or an error.
RC_GTEST_PROP(TopologyFile, DamagedAnywhereNeverHurts, ()) {
  const Directory directory;
  std::string text = kSmallTopology;
  const auto hits = *rc::gen::inRange<std::size_t>(1, 5);
  for (std::size_t i = 0; i < hits; ++i) text[*rc::gen::inRange<std::size_t>(0, text.size())] = *rc::gen::arbitrary<char>();
  const auto machine = discover_file(directory.write("t.xml", text));
  if (!machine) RC_ASSERT(machine.error().message.starts_with("could not "));
  else RC_ASSERT(machine->topology.size() <= host::kTopologyTextBytes);
}

// ---- the other end of the pipe

Result<host::Machine> run(const std::string& program, Duration patience = 20s) {
  host::DiscoverOptions options;
  options.program = program;
  options.patience = patience;
  return host::discover(options);
}

TEST(Child, ThatMisbehavesIsAnErrorThatSaysHow) {
  const Directory directory;
  const auto script = [&](const std::string& name, const std::string& text) {
    return run(directory.write(name, "#!/bin/sh\n" + text + "\n", true)).error();
  };
  const Error silent = script("silent", "exit 0");
  EXPECT_EQ(silent.code, ErrorCode::unavailable);
  EXPECT_EQ(silent.message, "could not discover the hardware: dtrain-discover said nothing that can be read");
  EXPECT_THAT(script("failed", "echo broken pipe dream >&2; exit 3").message, HasSubstr("ended with 3 (broken pipe dream)"));
  EXPECT_THAT(script("killed", "kill -SEGV $$").message, HasSubstr("was killed by signal 11"));
  EXPECT_THAT(script("noise", "echo hello, world, here I am").message, HasSubstr("said nothing that can be read"));
  EXPECT_THAT(script("flood", "exec cat /dev/zero").message, HasSubstr("said too much"));
  EXPECT_THAT(script("complaints", "head -c 1000000 /dev/zero >&2; exit 4").message, HasSubstr("ended with 4"));
  EXPECT_THAT(run(directory.path("none")).error().text(), HasSubstr("No such file or directory; install or build all of dtrain"));
}

TEST(Child, ThatHangsIsKilled) {
  const Directory directory;
  const auto hung = run(directory.write("hung", "#!/bin/sh\nexec sleep 600\n", true), 300ms);
  ASSERT_FALSE(hung);
  EXPECT_THAT(hung.error().message, HasSubstr("did not end within 300 ms and was killed by signal 9"));
  // One that closes its output and stays.
  const auto lingering = run(directory.write("lingers", "#!/bin/sh\nexec sleep 600 >&- 2>&-\n", true), 20s);
  ASSERT_FALSE(lingering);
  EXPECT_THAT(lingering.error().message, HasSubstr("was killed by signal 9"));
}

// ---- addresses

RC_GTEST_PROP(PciAddress, ReadsWhatItWrites, ()) {
  const host::PciAddress address{*rc::gen::arbitrary<std::uint32_t>(), *rc::gen::arbitrary<std::uint8_t>(),
                                 static_cast<std::uint8_t>(*rc::gen::inRange(0, 32)), static_cast<std::uint8_t>(*rc::gen::inRange(0, 8))};
  RC_ASSERT(host::parse_pci_address(address.text()) == address);
}

TEST(PciAddress, IsReadAsPeopleAndDriversWriteIt) {
  const host::PciAddress wanted{0, 0xa1, 0x1f, 7};
  for (const char* text : {"0000:a1:1f.7", "a1:1f.7", "A1:1F.7", "00000000:A1:1F.7", "0:a1:1f.7"})
    EXPECT_EQ(host::parse_pci_address(text), wanted) << text;
  for (const char* text : {"", "0", "a1", "a1:00", "a1:20.0", "a1:1f.8", "a1:1f.70", ":a1:1f.7", "000000000:a1:1f.7", "g1:00.0",
                           "0000:a1:1f.7 ", "-1:00.0", "0000:a1:1f:7", "0x0:a1:1f.7"})
    EXPECT_FALSE(host::parse_pci_address(text)) << text;
  EXPECT_LT(*host::parse_pci_address("0000:9f:00.0"), *host::parse_pci_address("0001:01:00.0"));
}

}  // namespace
}  // namespace dtrain::discover
