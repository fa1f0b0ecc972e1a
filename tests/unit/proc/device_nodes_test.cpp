// Device nodes of GPUs, from a /sys and /proc of our own making.
#include "agent/proc/device_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace dtrain::proc {
namespace {

using testing::ElementsAre;

class DeviceNodes : public ::testing::Test {
 protected:
  DeviceNodes() {
    std::string name = std::filesystem::temp_directory_path() / "dtrain-dev-XXXXXX";
    root_ = ::mkdtemp(name.data());
    put("/proc/devices", "Character devices:\n195 nvidia\n511 nvidia-uvm\n");
  }
  ~DeviceNodes() override { std::filesystem::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void nvidia(const std::string& pci, int minor) {
    put("/sys/bus/pci/devices/" + pci + "/vendor", "0x10de\n");
    put("/proc/driver/nvidia/gpus/" + pci + "/information", "Model: \t\t X\nDevice Minor: \t " + std::to_string(minor) + "\nGPU Excluded:\t No\n");
  }
  void amd(const std::string& pci, int card) {
    put("/sys/bus/pci/devices/" + pci + "/vendor", "0x1002\n");
    put("/sys/bus/pci/devices/" + pci + "/drm/card" + std::to_string(card) + "/dev", "");
    put("/sys/bus/pci/devices/" + pci + "/drm/renderD" + std::to_string(128 + card) + "/dev", "");
  }
  std::vector<std::string> of(const std::vector<std::string>& pci) {
    const auto found = device_nodes(pci, root_);
    EXPECT_TRUE(found) << found.error().text();
    return found.value_or(std::vector<std::string>{});
  }

  std::string root_;
};

TEST_F(DeviceNodes, OfNvidiaByItsMinorNumber) {
  nvidia("0000:10:00.0", 3);
  nvidia("0000:20:00.0", 12);
  EXPECT_THAT(of({"0000:10:00.0"}), ElementsAre("/dev/nvidia3", "/dev/nvidiactl", "char-nvidia-uvm", "/dev/nvidia-modeset", "char-nvidia-caps",
                                                "char-gdrdrv"));
  EXPECT_THAT(of({"0000:10:00.0", "0000:20:00.0"}), testing::Contains("/dev/nvidia12"));
  EXPECT_EQ(of({"0000:10:00.0", "0000:20:00.0"}).size(), 7u) << "each once";
}

TEST_F(DeviceNodes, OfAmdByItsDriversNames) {
  amd("0000:03:00.0", 1);
  EXPECT_THAT(of({"0000:03:00.0"}), ElementsAre("/dev/dri/card1", "/dev/dri/renderD129", "/dev/kfd"));
}

TEST_F(DeviceNodes, OfNoneThereAreNone) { EXPECT_THAT(of({}), ElementsAre()); }

TEST_F(DeviceNodes, WhatCannotBeToldIsAnError) {
  nvidia("0000:10:00.0", 3);
  put("/proc/driver/nvidia/gpus/0000:10:00.0/information", "Device Minor: \nx 1\n");
  EXPECT_FALSE(device_nodes({"0000:10:00.0"}, root_)) << "no number in that line";
  put("/sys/bus/pci/devices/0000:03:00.0/vendor", "0x1002\n");
  EXPECT_FALSE(device_nodes({"0000:03:00.0"}, root_)) << "no driver";
  EXPECT_FALSE(device_nodes({"0000:99:00.0"}, root_)) << "not there";
  nvidia("0000:20:00.0", 1);
  put("/proc/devices", "Character devices:\n195 nvidia\n");
  EXPECT_FALSE(device_nodes({"0000:20:00.0"}, root_)) << "nothing opens nvidia-uvm for it";
}

}  // namespace
}  // namespace dtrain::proc
