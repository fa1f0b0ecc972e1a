// Who has a device node open: real processes, and files in place of the nodes.
#include "agent/proc/gpu_holders.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "agent/base/unique_fd.h"
#include "tests/unit/store/temp_dir.h"

namespace dtrain::proc {
namespace {

using ::testing::HasSubstr;

// A process that has a file open until it is ended.
class Holder {
 public:
  explicit Holder(const std::string& path) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    pid = ::fork();
    if (pid == 0) {
      const bool opened = ::open(path.c_str(), O_RDONLY) >= 0;
      if (!opened || ::write(ready[1], "x", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    ::close(ready[1]);
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
  }
  ~Holder() { end(); }
  void end() {
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(std::exchange(pid, -1), nullptr, 0);
  }
  pid_t pid = -1;
};

class GpuHolders : public ::testing::Test {
 protected:
  GpuHolders() {
    for (const char* node : {"dev/nvidia0", "dev/nvidia1", "dev/dri/renderD128", "elsewhere/nvidia0"}) {
      const auto path = std::filesystem::path(dir_.path) / node;
      std::filesystem::create_directories(path.parent_path());
      std::ofstream(path) << "node\n";
    }
  }
  std::string path(const std::string& name) { return dir_.path + "/" + name; }
  std::vector<node::GpuHolder> find(const std::vector<task::OwnGpu>& gpus) {
    auto found = find_gpu_holders(gpus, {dir_.path, "/proc", path("tasks")});
    EXPECT_TRUE(found) << found.error().text();
    return found.value_or(std::vector<node::GpuHolder>());
  }
  const store::TempDir dir_;
  const task::OwnGpu first_{"0000:10:00.0", "nvidia", 0}, second_{"0000:20:00.0", "nvidia", 1}, amd_{"0000:40:00.0", "amd", 128};
};

TEST_F(GpuHolders, AreNamedUntilTheyHaveEnded) {
  EXPECT_TRUE(find({first_, second_, amd_}).empty());
  timespec time{};
  ASSERT_EQ(::clock_gettime(CLOCK_BOOTTIME, &time), 0);
  const Instant before(std::chrono::seconds(time.tv_sec) + Duration(time.tv_nsec));
  Holder one(path("dev/nvidia1")), other(path("dev/dri/renderD128"));
  auto found = find({first_, second_});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].pci, second_.pci);
  EXPECT_EQ(found[0].pid, one.pid);
  EXPECT_EQ(found[0].uid, ::getuid());
  EXPECT_THAT(found[0].program, HasSubstr("unit_"));
  EXPECT_FALSE(found[0].in_task);
  EXPECT_GT(found[0].began, before - 100ms) << "in ticks of 10 ms";
  EXPECT_LT(found[0].began, before + 60s);
  found = find({amd_});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].pid, other.pid);
  one.end();
  EXPECT_TRUE(find({first_, second_}).empty());
}

TEST_F(GpuHolders, OneWithSeveralGpusIsToldForEach) {
  const UniqueFd first(::open(path("dev/nvidia0").c_str(), O_RDONLY)), twice(::open(path("dev/nvidia0").c_str(), O_RDONLY)),
      second(::open(path("dev/nvidia1").c_str(), O_RDONLY));
  const auto found = find({first_, second_});
  ASSERT_EQ(found.size(), 2u);
  for (const auto& holder : found) EXPECT_EQ(holder.pid, ::getpid());
  EXPECT_NE(found[0].pci, found[1].pci);
}

TEST_F(GpuHolders, ALookGoesByPieces) {
  const Holder holder(path("dev/nvidia1"));
  GpuHolderSearch search({first_, second_}, {dir_.path, "/proc", path("tasks")});
  int pieces = 1;
  for (; !search.look(3).value_or(true); ++pieces) {
  }
  EXPECT_GT(pieces, 3) << "this process alone has more descriptors than one piece";
  const auto found = search.take();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].pid, holder.pid);
}

TEST_F(GpuHolders, AnotherFileOfThatNameIsNone) {
  const Holder holder(path("elsewhere/nvidia0"));
  EXPECT_TRUE(find({first_}).empty());
}

TEST_F(GpuHolders, AGpuWithoutANodeIsHeldByNobody) {
  EXPECT_TRUE(find({{"0000:30:00.0", "nvidia", 7}}).empty());
  EXPECT_FALSE(find_gpu_holders({first_}, {dir_.path, path("no-proc"), path("tasks")}));
}

}  // namespace
}  // namespace dtrain::proc
