// What a launch through systemd does when systemd is away for a moment, and when an earlier life's came to nothing.
#include "agent/proc/systemd_launcher.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "agent/base/boot_clock.h"
#include "agent/base/small_file.h"
#include "agent/dtrain-shim/protocol.h"
#include "agent/proc/assignment_dir.h"
#include "agent/proc/took_effect.h"
#include "tests/unit/proc/log_files.h"

namespace dtrain::proc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct AskedUnit {
  std::string unit;
  std::vector<UnitProperty> properties;
  SystemBus::Answer answer;
};

class FakeBus final : public SystemBus {
 public:
  explicit FakeBus(std::vector<AskedUnit>& asked, std::vector<std::string>& stopped) : asked_(asked), stopped_(stopped) {}
  void start(const std::string& unit, const std::vector<UnitProperty>& properties, int input, Answer answer) override {
    EXPECT_GE(input, 0);
    asked_.push_back({unit, properties, std::move(answer)});
  }
  void stop(const std::string& unit) override { stopped_.push_back(unit); }
  void dispatch() override {}
  Instant deadline() const override { return kNever; }

 private:
  std::vector<AskedUnit>& asked_;
  std::vector<std::string>& stopped_;
};

class SystemdLaunch : public ::testing::Test {
 protected:
  SystemdLaunch() {
    RunnerOptions options;
    options.warn = [this](const Error& error) { warnings_.push_back(error.message); };
    launcher_ = make_systemd_launcher(options, std::make_unique<FakeBus>(asked_, stopped_), slice_.path(), "");
    spec_.id = {17, 2, {"worker", 1}};
    spec_.memory_bytes = 1 << 20;
    launch();
  }
  void launch() {
    int pair[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    ours_.reset(pair[0]);
    EXPECT_TRUE(launcher_->place(spec_, spec_.id.text(), launch_));
    EXPECT_TRUE(launcher_->launch(spec_, "/tasks/17.2.worker-1", launch_, UniqueFd(pair[1])));
  }
  std::optional<Bytes> asked(const std::string& name) const {  // at the last launch
    for (const UnitProperty& property : asked_.back().properties)
      if (property.name == name) return std::get<Bytes>(property.value);
    return std::nullopt;
  }
  void dispatch() {
    launcher_->dispatch(
        [this](const AssignmentId&, const std::string&, std::optional<Error> refusal) { told_.push_back(refusal.has_value()); });
  }
  void answer(SystemBus::Outcome outcome) { asked_.back().answer(outcome, "because"); }
  bool hung_up() const {
    pollfd end{ours_.get(), 0, 0};
    return ::poll(&end, 1, 0) == 1;
  }

  const testing::ScratchDir slice_;
  std::vector<AskedUnit> asked_;
  std::vector<std::string> stopped_, warnings_;
  std::vector<bool> told_;  // of each answer: was it refused
  std::unique_ptr<Launcher> launcher_;
  task::ShimSpec spec_;
  LaunchFile launch_;
  UniqueFd ours_;
};

TEST_F(SystemdLaunch, NobodyWhoAnswersIsAskedAgainForTheSame) {
  ASSERT_THAT(asked_, SizeIs(1));
  answer(SystemBus::Outcome::unknown);
  dispatch();
  EXPECT_THAT(told_, IsEmpty());
  EXPECT_FALSE(hung_up()) << "or the agent would take it for an end";
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("because")));
  for (const Instant end = boot_now() + 60s; asked_.size() == 1 && boot_now() < end; dispatch()) {
    ASSERT_LT(launcher_->deadline(), kNever);
    ::usleep(1000);
  }
  ASSERT_THAT(asked_, SizeIs(2));
  EXPECT_EQ(asked_[1].unit, asked_[0].unit);
  answer(SystemBus::Outcome::begun);
  dispatch();
  EXPECT_THAT(told_, ElementsAre(false));
  EXPECT_TRUE(hung_up()) << "what is left of the other end is systemd's";
  EXPECT_EQ(launcher_->deadline(), kNever);
}

TEST_F(SystemdLaunch, ARefusalIsToldAtOnce) {
  answer(SystemBus::Outcome::refused);
  EXPECT_LT(launcher_->deadline(), boot_now());
  dispatch();
  EXPECT_THAT(told_, ElementsAre(true));
}

TEST_F(SystemdLaunch, OneThatIsGivenUpIsStoppedAndNotAskedForAgain) {
  answer(SystemBus::Outcome::unknown);
  launcher_->settled(launch_, 0);
  EXPECT_THAT(stopped_, ElementsAre(asked_[0].unit));
  EXPECT_TRUE(hung_up());
  EXPECT_EQ(launcher_->deadline(), kNever);
  answer(SystemBus::Outcome::begun);  // too late
  dispatch();
  EXPECT_THAT(told_, IsEmpty());
}

// Of a process that is no longer there, or never was in the unit, nothing is in force: no word about its limits.
TEST_F(SystemdLaunch, ADeadShimIsNotCompared) {
  launcher_->settled(launch_, ::getpid());
  EXPECT_THAT(warnings_, IsEmpty());
}

// systemd would refuse the whole unit.
TEST_F(SystemdLaunch, CpusThatAreNotThereAreLeftOut) {
  const auto asked_cpus = [&](std::vector<std::uint32_t> cpus) {
    spec_.cpus = std::move(cpus);
    launch();
    return asked("CPUAffinity");
  };
  cpu_set_t mine;
  ASSERT_EQ(::sched_getaffinity(0, sizeof mine, &mine), 0);
  std::uint32_t first = 0;
  while (!CPU_ISSET(first, &mine)) ++first;
  constexpr std::uint32_t kNowhere = 60'000;
  EXPECT_EQ(asked_cpus({first}), bit_mask({first}));
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_EQ(asked_cpus({first, kNowhere}), bit_mask({first}));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("1 of 2 are offline")));
  EXPECT_EQ(asked_cpus({kNowhere}), std::nullopt);
  EXPECT_THAT(warnings_, SizeIs(1)) << "once";
}

TEST_F(SystemdLaunch, ANumaNodeWithoutMemoryIsLeftOut) {
  const auto asked_node = [&](std::uint32_t node) {
    spec_.numa_node = static_cast<std::int32_t>(node);
    launch();
    return asked("NUMAMask");
  };
  const auto has_memory = parse_cpu_list(read_small_file("/sys/devices/system/node/has_memory").value_or(""));
  const bool has_policies = ::syscall(SYS_get_mempolicy, nullptr, nullptr, 0, nullptr, 0) == 0;
  if (!has_memory.empty() && has_policies) {
    EXPECT_EQ(asked_node(has_memory[0]), bit_mask({has_memory[0]}));
    EXPECT_THAT(warnings_, IsEmpty());
    testing::append(slice_ / "cpuset.mems.effective", "60000\n");
    EXPECT_EQ(asked_node(has_memory[0]), std::nullopt) << "it is not the slice's";
    EXPECT_THAT(warnings_, ElementsAre(HasSubstr("cpuset.mems.effective")));
  }
  EXPECT_EQ(asked_node(60'000), std::nullopt);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("NUMA"))) << "once";
}

TEST(Launch, CameToNothingWhereNoShimHasComeUpSince) {
  std::string home = std::filesystem::temp_directory_path() / "dtrain-launch-XXXXXX";
  ASSERT_NE(::mkdtemp(home.data()), nullptr);
  const auto put = [&](const char* name, std::int64_t seconds) {
    std::ofstream(home + "/" + name) << "x";
    const timespec times[2] = {{seconds, 0}, {seconds, 0}};
    EXPECT_EQ(::utimensat(AT_FDCWD, (home + "/" + name).c_str(), times, 0), 0);
  };
  EXPECT_FALSE(launch_came_to_nothing(home)) << "there was none";
  put(shim::kLaunchFile, 100);
  EXPECT_TRUE(launch_came_to_nothing(home));
  put(shim::kStateFile, 101);
  EXPECT_FALSE(launch_came_to_nothing(home));
  put(shim::kLaunchFile, 102);
  EXPECT_TRUE(launch_came_to_nothing(home)) << "the state is an earlier shim's";
  std::filesystem::remove_all(home);
}

}  // namespace
}  // namespace dtrain::proc
