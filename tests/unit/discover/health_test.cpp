// How GPUs are, as the real program says it; and the watch that asks it.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <iterator>

#include "agent/host/gpu_watch.h"
#include "tests/unit/discover/fake_machine.h"
#include "tests/unit/discover/harness.h"

namespace dtrain::discover {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr const char *kGpu0 = "0000:10:00.0", *kGpu1 = "0000:20:00.0";

class Health : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* address : {kGpu0, kGpu1}) {
      fake_.add_device({address});
      fake_.add_nvidia_record(address, "M", "GPU");
    }
    options_.program = kProgram;
    options_.root = fake_.root();
    options_.gpus = {{0, kGpu0}, {1, kGpu1}};
  }
  ~Health() override {
    if (log_ >= 0) ::close(log_);
  }
  static std::string device(const char* address) { return std::string("/sys/bus/pci/devices/") + address; }
  std::string library(const std::string& behaviour) {
    const std::string path = directory_.path("libfake-" + behaviour + ".so");
    std::filesystem::copy_file(DTRAIN_FAKE_NVML, path);
    return path;
  }
  // A pipe in place of the kernel's log.
  void make_log() {
    std::filesystem::create_directories(fake_.root() + "/dev");
    const std::string path = fake_.root() + "/dev/kmsg";
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    log_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(log_, 0);
  }
  void say(const std::string& record) const { ASSERT_EQ(::write(log_, record.data(), record.size()), static_cast<ssize_t>(record.size())); }

  void open() {
    host::GpuWatch::Sinks sinks;
    sinks.sampled = [this](std::vector<node::GpuSample> gpus) { samples_.push_back(std::move(gpus)); };
    sinks.faulted = [this](node::GpuFault fault) { faults_.push_back(std::move(fault)); };
    sinks.failed = [this](const Error& error) { failures_.push_back(error.message); };
    auto watch = host::GpuWatch::open(options_, std::move(sinks));
    ASSERT_TRUE(watch) << watch.error().text();
    watch_ = std::move(*watch);
  }
  // As the agent's loop does it. Where nothing happens the clock goes on: to the next look, or a little while a child is at it.
  void run_until(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done() && std::chrono::steady_clock::now() < end) {
      pollfd waiting{watch_->fd(), POLLIN, 0};
      const int ready = ::poll(&waiting, 1, watch_->deadline() <= now_ ? 0 : 20);
      const Instant due = watch_->deadline();
      if (ready == 0 && jumps_) now_ = std::max(now_, due - now_ > host::kLookPatience ? due : std::min(due, now_ + host::kLogPause));
      watch_->dispatch(now_);
    }
    EXPECT_TRUE(done());
  }
  std::vector<node::GpuSample> first_look() {
    open();
    run_until([&] { return !samples_.empty() || failures_.size() > 1; });
    return samples_.empty() ? std::vector<node::GpuSample>() : samples_.front();
  }

  FakeMachine fake_{1, 2};
  Directory directory_;
  host::GpuWatch::Options options_;
  std::unique_ptr<host::GpuWatch> watch_;
  Instant now_ = Instant{} + 1000s;
  bool jumps_ = true;
  int log_ = -1;
  std::vector<std::vector<node::GpuSample>> samples_;
  std::vector<node::GpuFault> faults_;
  std::vector<std::string> failures_;
};

TEST_F(Health, IsGoodWhereNothingIsSaid) {
  const auto gpus = first_look();
  ASSERT_THAT(gpus, SizeIs(2));
  EXPECT_EQ(gpus[0].pci, kGpu0);
  EXPECT_EQ(gpus[0].lost, "");
  EXPECT_FALSE(gpus[0].celsius || gpus[0].slowdown || gpus[0].uncorrected || gpus[0].remap_pending || gpus[0].refused);
}

TEST_F(Health, LostFromTheBus) {
  fake_.remove_device(kGpu0);
  fake_.write(device(kGpu1) + "/config", std::string(64, '\xff'));
  const auto gpus = first_look();
  ASSERT_THAT(gpus, SizeIs(2));
  EXPECT_EQ(gpus[0].lost, "it is not on the bus any more");
  EXPECT_EQ(gpus[1].lost, "it does not answer on the bus");
}

TEST_F(Health, OfAmdIsInItsFiles) {
  fake_.write(device(kGpu0) + "/hwmon/hwmon3/temp1_input", "61000\n");
  fake_.write(device(kGpu0) + "/hwmon/hwmon3/temp1_crit", "100000\n");
  fake_.write(device(kGpu0) + "/hwmon/hwmon3/temp2_input", "99000\n");  // nearer to its limit
  fake_.write(device(kGpu0) + "/hwmon/hwmon3/temp2_crit", "110000\n");
  fake_.write(device(kGpu0) + "/hwmon/hwmon3/temp3_crit", "not a number\n");
  fake_.write(device(kGpu0) + "/ras/umc_err_count", "ue: 2\nce: 17\n");
  const auto gpus = first_look();
  ASSERT_THAT(gpus, SizeIs(2));
  EXPECT_EQ(gpus[0].celsius, 99);
  EXPECT_EQ(gpus[0].slowdown, 110);
  EXPECT_EQ(gpus[0].uncorrected, 2u);
}

TEST_F(Health, OfNvidiaIsWhatNvmlSays) {
  options_.nvml = library("works");
  const auto gpus = first_look();
  ASSERT_THAT(gpus, SizeIs(2));
  EXPECT_EQ(gpus[0].celsius, 61);
  EXPECT_EQ(gpus[1].celsius, 62);
  EXPECT_EQ(gpus[0].slowdown, 92);
  EXPECT_EQ(gpus[0].uncorrected, 0u);
  EXPECT_FALSE(gpus[0].remap_pending || gpus[0].remap_failed);
}

TEST_F(Health, WhatNvmlHasLostOrCallsBroken) {
  struct Row {
    const char *behaviour, *lost;
    std::optional<std::string> refused;
    std::uint64_t uncorrected;
    bool pending;
  };
  // Only what NVML itself calls lost is lost at once.
  for (const Row& row :
       {Row{"loses", "NVML has lost it: GPU is lost", std::nullopt, 0, false}, Row{"refuses", "", "NVML: Driver Not Loaded", 0, false},
        Row{"mumbles", "", "NVML does not name it: Driver Not Loaded", 0, false}, Row{"rots", "", "", 3, true},
        Row{"falls", "NVML: GPU is lost", "", 0, false}}) {
    SCOPED_TRACE(row.behaviour);
    samples_.clear();
    failures_.clear();
    options_.nvml = library(row.behaviour);
    const auto gpus = first_look();
    ASSERT_THAT(gpus, SizeIs(2));
    EXPECT_EQ(gpus[1].lost, row.lost);
    EXPECT_EQ(gpus[1].refused, row.refused);
    EXPECT_EQ(gpus[1].uncorrected.value_or(0), row.uncorrected);
    EXPECT_EQ(gpus[1].remap_pending, row.pending);
  }
}

TEST_F(Health, IsLookedAtEveryMinuteOneChildAtATime) {
  open();
  const Instant begun = now_;
  run_until([&] { return samples_.size() == 3; });
  EXPECT_GE(now_ - begun, 2 * host::kLookEvery);
  EXPECT_LT(now_ - begun, 3 * host::kLookEvery);
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("/dev/kmsg: No such file or directory")));
}

TEST_F(Health, AChildThatHangsIsKilledAndItsFirstWordCounts) {
  options_.nvml = library("hangs");
  open();
  run_until([&] { return samples_.size() == 1; });
  siginfo_t ended{};  // the clock that goes on by itself does not wait for it
  ASSERT_EQ(::waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT), 0);
  run_until([&] { return samples_.size() == 2; });
  EXPECT_THAT(samples_[0], SizeIs(2));
  EXPECT_EQ(samples_[0][0].lost, "");
  EXPECT_FALSE(samples_[0][0].refused) << "it did not say no";
  EXPECT_THAT(failures_, SizeIs(2));  // of the log, and of the first look: the second would say the same
  EXPECT_THAT(failures_[1], HasSubstr("did not end in time"));
}

// Holds a process back from its parent when it has died, as a driver does that it is stuck in.
class Tracer {
 public:
  explicit Tracer(pid_t of) {
    int said[2];
    if (::pipe2(said, O_CLOEXEC) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      const char done = ::ptrace(PTRACE_SEIZE, of, nullptr, nullptr) == 0 ? 1 : 0;
      (void)!::write(said[1], &done, 1);
      for (;;) ::pause();
    }
    ::close(said[1]);
    char done = 0;
    holds_ = ::read(said[0], &done, 1) == 1 && done == 1;
    ::close(said[0]);
  }
  ~Tracer() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  bool holds() const { return holds_; }

 private:
  pid_t pid_ = -1;
  bool holds_ = false;
};

TEST_F(Health, AChildThatCannotBeKilledIsSaidAndNoOtherBegins) {
  options_.nvml = library("hangs");
  const std::string begun = directory_.path("begun");
  options_.program = directory_.write("watched", "#!/bin/sh\necho $$ >> " + begun + "\nexec " + kProgram + " \"$@\"\n", true);
  const auto children = [&] {
    std::vector<pid_t> pids;
    std::ifstream file(begun);
    for (pid_t pid = 0; file >> pid;) pids.push_back(pid);
    return pids;
  };
  // It has given its first word by the time it asks NVML.
  const auto asks_nvml = [&] {
    if (children().empty()) return false;
    std::ifstream maps("/proc/" + std::to_string(children().back()) + "/maps");
    return std::string(std::istreambuf_iterator<char>(maps), {}).find("libfake-hangs") != std::string::npos;
  };
  open();
  jumps_ = false;
  run_until(asks_nvml);
  std::unique_ptr<Tracer> tracer;
  run_until([&] {
    if (tracer && tracer->holds()) return true;
    tracer.reset();
    tracer = std::make_unique<Tracer>(children().back());
    return tracer->holds();
  });
  now_ += host::kLookPatience;
  watch_->dispatch(now_);
  ASSERT_THAT(samples_, SizeIs(1)) << "it waits for nobody's end";
  EXPECT_THAT(failures_.back(), HasSubstr("did not end in time"));
  for (int i = 0; i < 3; ++i) {
    now_ = watch_->deadline();
    watch_->dispatch(now_);
  }
  EXPECT_THAT(children(), SizeIs(1));
  EXPECT_THAT(failures_, SizeIs(3)) << "once";
  EXPECT_THAT(failures_.back(), HasSubstr("(pid " + std::to_string(children()[0]) + "), cannot be killed"));
}

TEST_F(Health, AChildThatTalksTooMuchHoldsNobodyUp) {
  for (const char* where : {">&2", ""}) {
    SCOPED_TRACE(where);
    failures_.clear();
    options_.program = directory_.write(std::string("talks") + where, std::string("#!/bin/sh\nexec yes ") + where + "\n", true);
    open();
    run_until([&] { return failures_.size() == 2; });
    EXPECT_THAT(failures_.back(), HasSubstr("said too much"));
  }
}

TEST_F(Health, AChildThatCannotRunIsSaidOnce) {
  options_.program = directory_.path("none");
  open();
  const Instant begun = now_;
  run_until([&] { return now_ - begun > 5 * host::kLookEvery; });
  EXPECT_THAT(samples_, IsEmpty());
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("kmsg"), HasSubstr("No such file or directory")));
}

TEST_F(Health, TheKernelsLogIsHeardAtOnceAndALookFollows) {
  make_log();
  open();
  run_until([&] { return samples_.size() == 1; });
  now_ += host::kLookSoonest;
  jumps_ = false;  // nothing that waits for time is due
  say("3,1,2,-;NVRM: Xid (PCI:0000:20:00): 79, pid=1, GPU has fallen off the bus.\n");
  run_until([&] { return !faults_.empty() && samples_.size() == 2; });
  ASSERT_THAT(faults_, SizeIs(1));
  EXPECT_EQ(faults_[0].pci, kGpu1);
  EXPECT_EQ(faults_[0].xid, 79u);
  // Further ones wait for the pause, and bring no look forward that was just taken.
  say("3,1,2,-;NVRM: Xid (PCI:0000:10:00): 48, x\n");
  EXPECT_GT(watch_->deadline(), now_);
  EXPECT_LE(watch_->deadline(), now_ + host::kLogPause);
  jumps_ = true;
  run_until([&] { return faults_.size() == 2; });
  EXPECT_THAT(samples_, SizeIs(2));
  EXPECT_THAT(failures_, IsEmpty());
}

}  // namespace
}  // namespace dtrain::discover
