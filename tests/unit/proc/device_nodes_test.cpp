// Device nodes of GPUs, by what discovery knows of them.
#include "agent/proc/device_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/store/temp_dir.h"

namespace dtrain::proc {
namespace {

using ::testing::ElementsAre;

class DeviceNodes : public ::testing::Test {
 protected:
  DeviceNodes() {
    std::filesystem::create_directories(root_ + "/proc");
    drivers("195 nvidia\n511 nvidia-uvm\n");
  }

  void drivers(const std::string& text) { std::ofstream(root_ + "/proc/devices") << "Character devices:\n" << text; }
  std::vector<std::string> of(const std::vector<task::OwnGpu>& gpus) {
    const auto found = device_nodes(gpus, root_);
    EXPECT_TRUE(found) << found.error().text();
    return found.value_or(std::vector<std::string>{});
  }

  const store::TempDir dir_;
  const std::string& root_ = dir_.path;
  const task::OwnGpu three_{"0000:10:00.0", "nvidia", 3}, twelve_{"0000:20:00.0", "nvidia", 12};
};

TEST_F(DeviceNodes, OfNvidiaByItsMinorNumber) {
  EXPECT_THAT(of({three_}), ElementsAre("/dev/nvidia3", "/dev/nvidiactl", "char-nvidia-uvm", "/dev/nvidia-modeset", "char-nvidia-caps",
                                        "char-nvidia-caps-imex-channels", "char-nvidia-fs", "char-gdrdrv"));
  EXPECT_THAT(of({three_, twelve_}), ::testing::Contains("/dev/nvidia12"));
  EXPECT_EQ(of({three_, twelve_}).size(), 9u) << "each once";
}

TEST_F(DeviceNodes, OfAmdByItsDriversNumber) {
  drivers("");
  EXPECT_THAT(of({{"0000:03:00.0", "amd", 129}}), ElementsAre("/dev/dri/renderD129", "/dev/kfd"));
}

TEST_F(DeviceNodes, OfNoneThereAreNone) { EXPECT_THAT(of({}), ElementsAre()); }

TEST_F(DeviceNodes, WhatCannotBeToldIsAnError) {
  EXPECT_FALSE(device_nodes({three_, {"0000:20:00.0", "nvidia", -1}}, root_)) << "no number";
  EXPECT_FALSE(device_nodes({{"0000:03:00.0", "amd", -1}}, root_)) << "no driver";
  EXPECT_FALSE(device_nodes({{"0000:03:00.0", "", 1}}, root_)) << "whose?";
  drivers("195 nvidia\n");
  EXPECT_FALSE(device_nodes({three_}, root_)) << "nothing opens nvidia-uvm for it";
}

}  // namespace
}  // namespace dtrain::proc
