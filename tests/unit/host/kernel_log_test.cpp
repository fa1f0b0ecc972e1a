// Lines of kernel logs, as the driver writes them and as others do.
#include "agent/host/kernel_log.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

namespace dtrain::host {
namespace {

TEST(KernelLog, XidsAreRead) {
  struct Row {
    const char *record, *pci;
    std::uint32_t xid;
    const char* text;
  };
  const Row rows[] = {
      {"3,1290,77,-;NVRM: Xid (PCI:0000:10:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n", "0000:10:00.0", 79,
       "GPU has fallen off the bus"},
      {"4,1,2,-;NVRM: Xid (PCI:0000:C1:00): 48, pid=1896, name=python3, An uncorrectable double bit error (DBE) has been detected\n",
       "0000:c1:00.0", 48, "An uncorrectable double bit error (DBE) has been detected"},
      {"6,1,2,c;[ 77.1] NVRM: Xid (0002:03:00): 13, Graphics Exception\n SUBSYSTEM=pci\n DEVICE=+pci:0002:03:00.0\n", "0002:03:00.0", 13,
       "Graphics Exception"},
      {"6,1,2,-;NVRM: Xid (PCI:0000:10:00): 45", "0000:10:00.0", 45, ""},
      {"6,1,2,-;NVRM: Xid (somewhere): 62, x\ty", "", 62, "x?y"},
  };
  for (const Row& row : rows) {
    const auto fault = parse_gpu_fault(row.record);
    ASSERT_TRUE(fault) << row.record;
    EXPECT_EQ(fault->pci, row.pci);
    EXPECT_EQ(fault->xid, row.xid);
    EXPECT_EQ(fault->text, row.text);
  }
}

TEST(KernelLog, WhatIsNoneIsNotTakenForOne) {
  for (const char* record :
       {"", ";", "6,1,2,-;", "6,1,2,-;usb 1-1: new device", "NVRM: Xid (PCI:0000:10:00): 79, x", "6,1,2,-;NVRM: Xid (PCI:0000:10:00): x",
        "6,1,2,-;NVRM: Xid (PCI:0000:10:00)", "6,1,2,-;NVRM: Xid (PCI:0000:10:00): 99999999999, x",
        "6,1,2,-;first\n NVRM: Xid (PCI:0000:10:00): 79, x", "12,1,2,-;NVRM: Xid (PCI:0000:10:00): 79, a program wrote this",
        "4,1,2,-;tmpfs: Unknown parameter 'NVRM: Xid (PCI:0000:10:00): 79, a user mounted this'"})
    EXPECT_FALSE(parse_gpu_fault(record)) << record;
}

TEST(KernelLog, LongTextIsCut) {
  const auto fault = parse_gpu_fault("6,1,2,-;NVRM: Xid (PCI:0000:10:00): 79, " + std::string(5000, 'x'));
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->text, std::string(kFaultTextBytes, 'x'));
}

RC_GTEST_PROP(KernelLogs, HurtNobody, (const std::string& noise)) {
  parse_gpu_fault(noise);
  parse_gpu_fault("6,1,2,-;NVRM: Xid (" + noise);
  const auto fault = parse_gpu_fault("6,1,2,-;NVRM: Xid (PCI:0000:10:00): 79, " + noise);
  RC_ASSERT(fault && fault->xid == 79 && fault->text.size() <= kFaultTextBytes);
}

}  // namespace
}  // namespace dtrain::host
