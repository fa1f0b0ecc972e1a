// What a host has for tasks in images, and what their shims are started with.
#include "agent/proc/container_host.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "agent/proc/launch_plan.h"
#include "tests/unit/proc/log_files.h"
#include "tests/unit/proc/processes.h"

namespace dtrain::proc {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ScratchDir;

class ContainerHostTest : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& content, mode_t mode = 0755) {
    const std::string path = top_ / name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << content;
    ::chmod(path.c_str(), mode);
    return path;
  }
  task::ShimSpec spec() {
    task::ShimSpec spec;
    spec.id = {12, 1, {"worker", 0}};
    spec.user = {"", ::geteuid()};
    spec.argv = {"python3", "train.py"};
    spec.env = {{"A", "b"}};
    spec.work_dir = top_ / "work/12";
    spec.stop_grace = 30s;
    spec.image = task::TaskImage{"localhost/small", {top_ / "data", "/"}, {}};
    return spec;
  }
  RunnerOptions options() {
    RunnerOptions options;
    options.tasks_dir = top_ / "tasks";
    options.work_root = top_ / "work";
    options.image_engine = "podman";
    options.image_program = "/usr/bin/podman";
    std::filesystem::create_directories(options.tasks_dir);
    std::filesystem::create_directories(top_ / "work/12");
    return options;
  }

  ScratchDir top_;
};

TEST_F(ContainerHostTest, AnEngineIsThereIfAllItsProgramsAre) {
  const std::string path = top_ / "a" + ":" + (top_ / "b");
  EXPECT_EQ(find_engine_here("", path, true).name, "");
  EXPECT_EQ(find_engine_here("podman", path, true).lacks, "podman");
  const std::string podman = file("a/podman", "");
  const EngineHere half = find_engine_here("", path, true);
  EXPECT_EQ(half.name, "podman");
  EXPECT_EQ(half.program, "");
  EXPECT_EQ(half.lacks, "newuidmap");
  file("b/newuidmap", "", 0644);
  EXPECT_EQ(find_engine_here("", path, true).lacks, "newuidmap") << "it cannot be executed";
  file("b/newuidmap", "");
  const EngineHere here = find_engine_here("", path, true);
  EXPECT_EQ(here.name, "podman");
  EXPECT_EQ(here.program, podman);
  EXPECT_EQ(here.lacks, "");
  EXPECT_EQ(find_engine_here("", path, false).lacks, kLacksCgroupV2) << "crun refuses hybrid hierarchies";
  EXPECT_EQ(find_engine_here("enroot", path, true).program, "");
}

TEST_F(ContainerHostTest, WherePodmanIsMissingOrCannotWorkEnrootIsTaken) {
  const std::string path = top_ / "a";
  const std::string enroot = file("a/enroot", "");
  EXPECT_EQ(find_engine_here("", path, true).lacks, "unsquashfs");
  file("a/unsquashfs", "");
  EXPECT_EQ(find_engine_here("", path, true).program, enroot);
  file("a/podman", "");
  file("a/newuidmap", "");
  EXPECT_EQ(find_engine_here("", path, false).name, "enroot");
  EXPECT_EQ(find_engine_here("", path, true).name, "podman");
  EXPECT_EQ(find_engine_here("enroot", path, true).program, enroot);
}

TEST_F(ContainerHostTest, ATaskIsStartedInItsImage) {
  const auto launch = plan_launch(options(), spec(), top_ / "tasks/12.1.worker-0", 0, true);
  ASSERT_TRUE(launch) << launch.error().text();
  const std::string work = top_ / "work/12";
  EXPECT_EQ(launch->work_dir, work);
  EXPECT_EQ(launch->stop_grace, Duration{0}) << "what is left ends with the command";
  EXPECT_THAT(launch->notify, ::testing::StartsWith("@dtrain/")) << "a path would not be there";
  EXPECT_THAT(launch->argv,
              AllOf(Contains("/usr/bin/podman"), Contains("--env=A"), Contains("--env=DTRAIN_IMAGE"), Contains("--env=DTRAIN_ATTEMPT"),
                    Contains("--env=NOTIFY_SOCKET=" + launch->notify), Contains("--env=HOME=" + work), Contains("--workdir=" + work),
                    Contains("--volume=" + work + ":" + work)));
  EXPECT_THAT(launch->argv, Contains("--volume=" + (top_ / "data") + ":" + (top_ / "data")));
  EXPECT_THAT(launch->argv, Not(Contains("--volume=/:/"))) << "the host's root would hide the image";
  EXPECT_EQ(launch->env.at("DTRAIN_IMAGE"), "localhost/small") << "by which exec knows the task";
  const std::vector<std::string> end(launch->argv.end() - 3, launch->argv.end());
  EXPECT_THAT(end, ElementsAre("localhost/small", "python3", "train.py"));
}

TEST_F(ContainerHostTest, RanksHaveAContainerEach) {
  task::ShimSpec two = spec();
  two.ranks = {{{"LOCAL_RANK", "0"}, {"GROUP", "0"}}, {{"LOCAL_RANK", "1"}, {"GROUP", "0"}}};
  const auto launch = plan_launch(options(), two, top_ / "tasks/12.1.worker-0", 0, true);
  ASSERT_TRUE(launch);
  EXPECT_THAT(launch->argv.at(2), HasSubstr("n=$2-$LOCAL_RANK;"));
  EXPECT_THAT(launch->argv, AllOf(Contains("--env=LOCAL_RANK"), Contains("--env=GROUP")));
}

TEST_F(ContainerHostTest, AHostThatLostItsEngineSaysSo) {
  RunnerOptions none = options();
  none.image_engine.clear();
  const auto launch = plan_launch(none, spec(), top_ / "tasks/12.1.worker-0", 0, true);
  ASSERT_FALSE(launch);
  EXPECT_THAT(launch.error().message, HasSubstr("this host runs no images any more"));
}

// Two that are inside, of which the second began first; the engine's own; one that only mentions the mark.
TEST_F(ContainerHostTest, TheFirstProcessInAnImageIsFoundByItsMark) {
  const auto process = [&](const std::string& number, const std::string& environment, const std::string& start) {
    file("proc/" + number + "/environ", environment);
    file("proc/" + number + "/stat", number + " (a b) c) S 1 1 1 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 " + start + " 1 1\n");
  };
  using namespace std::string_literals;
  process("10", "A=b\0containers=x\0"s, "50");
  process("20", "A=b\0container=podman\0"s, "90");
  process("30", "container=podman\0A=b\0"s, "70");
  process("40", "A=container=podman\0"s, "10");
  file("group/cgroup.procs", "10\n20\n30\n40\n99\n");
  EXPECT_EQ(process_in_image({"", top_ / "group"}, "@n", "container", top_ / "proc"), 30);
  EXPECT_EQ(process_in_image({top_ / "none"}, "@n", "container", top_ / "proc"), 0);
  process("50", "container=podman\0NOTIFY_SOCKET=@n\0"s, "99");
  process("60", "container=podman\0NOTIFY_SOCKET=@nn\0"s, "60");
  EXPECT_EQ(process_in_image({"", ""}, "@n", "container", top_ / "proc"), 50) << "without control groups";
}

TEST_F(ContainerHostTest, ATaskGetsTheDevicesOfItsGpus) {
  for (const char* node : {"dev/kfd", "dev/dri/renderD128", "dev/dri/renderD129", "dev/nvidia0", "dev/nvidia1", "dev/nvidiactl",
                           "dev/nvidia-uvm", "dev/infiniband/not-a-device"})
    file(node, "");
  const auto devices = [&](const std::string& vendor, const std::string& id, std::int32_t minor) {
    task::ShimSpec of = spec();
    of.gpu_ids = {id};
    of.image->gpus = {{"0000:03:00.0", vendor, minor}};
    return image_devices(of, top_.path());
  };
  EXPECT_THAT(devices("amd", "GPU-1f", 129), ElementsAre("/dev/dri/renderD129", "/dev/kfd"));
  EXPECT_THAT(devices("nvidia", "GPU-4f", 1), ElementsAre("/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm")) << "those that are there";
  file("etc/cdi/nvidia.yaml", "kind: nvidia.com/gpu\ndevices:\n- name: \"0\"\n- name: GPU-4f\n");
  EXPECT_THAT(devices("nvidia", "GPU-4f", 1), ElementsAre("nvidia.com/gpu=GPU-4f"));
  EXPECT_THAT(devices("nvidia", "GPU-50", 0), ElementsAre("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm")) << "CDI does not know it";
  EXPECT_THAT(devices("amd", "0", 128), ElementsAre("/dev/dri/renderD128", "/dev/kfd")) << "number 0 of CDI is another maker's";
  EXPECT_THAT(image_devices(spec(), top_.path()), ::testing::IsEmpty());
}

TEST_F(ContainerHostTest, AUsersImagesAreInTheHome) {
  account::HostUser user;
  user.uid = 12345;
  user.home = top_ / "home";
  EXPECT_EQ(images_directory(user), std::filesystem::path(top_ / "home").parent_path().string());
  std::filesystem::create_directories(top_ / "home/.local/share/containers");
  EXPECT_EQ(images_directory(user), top_ / "home/.local/share/containers");
}

}  // namespace
}  // namespace dtrain::proc
