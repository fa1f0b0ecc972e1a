// What a real shim and its agent do under a lease beyond the conformance suite: scheduling, versions, what is left behind
// in a cgroup. Real processes on this host.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

#include "agent/proc/cgroup.h"
#include "agent/proc/launch_file.h"
#include "agent/proc/lease_keeper.h"
#include "tests/conformance/direct_world.h"

namespace dtrain::proc {
namespace {

using conformance::DirectWorld;

class LeasedShimTest : public ::testing::Test {
 protected:
  LeasedShimTest() : world_(std::make_unique<DirectWorld>()) {}
  ~LeasedShimTest() override {
    world_->runner().end(id_);
    EXPECT_TRUE(until([this] { return count<node::ShimGone>() > 0; }));
  }

  template <class E>
  const E* last() const {
    for (auto event = events_.rbegin(); event != events_.rend(); ++event)
      if (const auto* found = std::get_if<E>(&*event)) return found;
    return nullptr;
  }
  template <class E>
  int count() const {
    int n = 0;
    for (const node::Event& event : events_) n += std::holds_alternative<E>(event) ? 1 : 0;
    return n;
  }
  bool until(const std::function<bool()>& condition) {
    EventSink sink = [this](node::Event event) { events_.push_back(std::move(event)); };
    return world_->pump(sink, condition);
  }
  void launch(Duration lease) {
    task::ShimSpec spec = world_->command(id_, {"sleep", "1000000"});
    spec.lease = lease;
    spec.epoch = 1;
    world_->runner().launch(spec);
    ASSERT_TRUE(until([this] { return count<node::ShimUp>() > 0; }));
    ASSERT_TRUE(last<node::ShimUp>()->result);
  }
  std::int32_t start_granted(AttemptNumber attempt) {
    events_.clear();
    world_->runner().start(id_, attempt);
    EXPECT_TRUE(until([this] { return count<node::LeaseAsked>() > 0; }));
    world_->runner().answer_lease({id_, last<node::LeaseAsked>()->nonce, true, 1});
    EXPECT_TRUE(until([this] { return count<node::AttemptStarted>() > 0; }));
    return last<node::AttemptStarted>() != nullptr ? last<node::AttemptStarted>()->pid : 0;
  }
  std::int32_t shim_pid() const { return read_record(world_->directory(id_), "state")->fixed.shim_pid; }
  int timers(std::int32_t pid) const {
    int found = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
      std::error_code error;
      found += std::filesystem::read_symlink(entry, error).string().find("timerfd") != std::string::npos ? 1 : 0;
    }
    return found;
  }
  static bool may_be_urgent() {
    const pid_t child = ::fork();
    if (child == 0) {
      sched_param lowest{};
      lowest.sched_priority = 1;
      ::_exit(::sched_setscheduler(0, SCHED_FIFO, &lowest) == 0 ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return status == 0;
  }

  const AssignmentId id_{3, 2, {"ps", 0}};
  std::unique_ptr<DirectWorld> world_;
  std::vector<node::Event> events_;
};

TEST_F(LeasedShimTest, TheShimIsUrgentAndItsTaskIsNot) {
  launch(10s);
  const std::int32_t pid = start_granted(1);
  const int usual = ::sched_getscheduler(0);
  EXPECT_EQ(::sched_getscheduler(pid), usual);
  EXPECT_EQ(::sched_getscheduler(shim_pid()), may_be_urgent() ? SCHED_FIFO | SCHED_RESET_ON_FORK : usual);
  const std::string status = read_small_file("/proc/" + std::to_string(pid) + "/status").value_or("");
  EXPECT_NE(status.find("VmLck:\t       0 kB"), std::string::npos) << status;
}

TEST_F(LeasedShimTest, WithoutALeaseThereIsNoTimerAndNothingIsUrgent) {
  launch(Duration{0});
  world_->runner().start(id_, 1);
  ASSERT_TRUE(until([this] { return count<node::AttemptStarted>() > 0; }));
  EXPECT_EQ(timers(shim_pid()), 0);
  EXPECT_EQ(::sched_getscheduler(shim_pid()), ::sched_getscheduler(0));
  EXPECT_EQ(world_->runner().deadline(), kNever);
  world_->runner().require_lease({id_, 10s});
  ASSERT_TRUE(until([this] { return count<node::LeaseAsked>() > 0; }));
  EXPECT_EQ(timers(shim_pid()), 1);
}

TEST_F(LeasedShimTest, TheAgentsWatchEndsWithTheAttempt) {
  launch(10s);
  const std::int32_t pid = start_granted(1);
  EXPECT_NE(world_->runner().deadline(), kNever);
  world_->process_dies(id_, pid);
  ASSERT_TRUE(until([this] { return count<node::AttemptExited>() > 0; }));
  EXPECT_EQ(world_->runner().deadline(), kNever);
}

TEST_F(LeasedShimTest, WhatTheAgentDidToTheCgroupDoesNotMeetTheNextAttempt) {
  launch(10s);
  const std::int32_t first = start_granted(1);
  const std::string cgroup = read_launch(world_->directory(id_))->cgroup;
  if (cgroup.empty()) world_->process_dies(id_, first);  // this host has no cgroups: nothing can be left in them
  else cgroup_kill(cgroup + "/task");
  ASSERT_TRUE(until([this] { return count<node::AttemptExited>() > 0; }));
  ASSERT_TRUE(cgroup.empty() || write_control(cgroup + "/task/cgroup.freeze", "1"));
  const std::int32_t pid = start_granted(2);
  EXPECT_TRUE(until([&] { return world_->running_processes(id_) == 1; }));
  EXPECT_EQ(count<node::AttemptExited>(), 0);
  world_->process_dies(id_, pid);
  ASSERT_TRUE(until([this] { return count<node::AttemptExited>() > 0; }));
}

TEST_F(LeasedShimTest, TheRecordSaysUntilWhenTheLeaseIs) {
  launch(10s);
  const Instant before = boot_now();
  start_granted(1);
  const Instant after = boot_now();
  const auto record = read_record(world_->directory(id_), "state");
  ASSERT_TRUE(record);
  EXPECT_TRUE(record->has(shim::kLeased));
  EXPECT_EQ(record->fixed.epoch, 1u);
  EXPECT_GE(Instant{} + Duration(record->fixed.lease_until_ns), before + 10s);  // from asking
  EXPECT_LE(Instant{} + Duration(record->fixed.lease_until_ns), after + 10s);
}

// ---------------------------------------------------------------- a shim of version 1

// What one of before the leases says, without one: it answers, and knows two commands of a later agent less.
void old_shim(const std::string& directory) {
  if (::chdir(directory.c_str()) != 0) ::_exit(1);
  const int listener = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::strcpy(name.sun_path, "new.sock");  // renamed when it listens
  if (::bind(listener, reinterpret_cast<sockaddr*>(&name), sizeof(name)) != 0 || ::listen(listener, 4) != 0 ||
      ::rename("new.sock", shim::kSocketFile) != 0)
    ::_exit(1);
  while (true) {
    const int agent = ::accept(listener, nullptr, nullptr);
    char packet[256];
    while (::recv(agent, packet, sizeof(packet), 0) >= 16) {
      std::uint16_t command;
      std::memcpy(&command, packet, sizeof(command));
      shim::ReplyPacket reply;
      reply.command = command;
      std::memcpy(&reply.sequence, packet + 4, sizeof(reply.sequence));
      if (command > static_cast<std::uint16_t>(shim::Command::end))
        reply.outcome = static_cast<std::uint16_t>(shim::Outcome::unknown_command);
      reply.a = 1;
      ::send(agent, &reply, sizeof(reply), MSG_NOSIGNAL);
      if (command == static_cast<std::uint16_t>(shim::Command::end)) ::_exit(0);
      if (command != static_cast<std::uint16_t>(shim::Command::hello)) continue;
      shim::Record record;
      record.fixed_bytes = shim::kRecordV1Bytes;
      record.version = 1;
      record.shim_pid = ::getpid();
      record.attempt = 4;
      record.phase = static_cast<std::uint8_t>(shim::Phase::running);
      record.pid = ::getpid();
      ::send(agent, &record, shim::kRecordV1Bytes, MSG_NOSIGNAL);
    }
    ::close(agent);
  }
}

TEST_F(LeasedShimTest, AnOldShimIsAdoptedAndRunsOnWithoutALease) {
  const std::string directory = world_->directory(id_);
  std::filesystem::create_directories(directory);
  const pid_t child = ::fork();
  if (child == 0) old_shim(directory);
  ASSERT_TRUE(until([&] { return std::filesystem::exists(directory + "/shim.sock"); }));
  world_->agent_dies();
  world_->agent_returns();
  const auto found = world_->runner().list();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].running);
  EXPECT_EQ(found[0].attempt, 4u);
  EXPECT_FALSE(found[0].leased);
  world_->runner().require_lease({id_, 10s});
  world_->runner().freeze(id_, true);  // answered behind it
  ASSERT_TRUE(until([this] { return count<node::FreezeDone>() > 0; }));
  EXPECT_EQ(count<node::LeaseAsked>(), 0);
  EXPECT_EQ(world_->runner().deadline(), kNever);
}

// ---------------------------------------------------------------- the agent's watch, without a shim

ShimRecord leased_record(AttemptNumber attempt, shim::Phase phase, Instant until) {
  ShimRecord record;
  record.fixed.attempt = attempt;
  record.fixed.phase = static_cast<std::uint8_t>(phase);
  record.fixed.flags = shim::kLeased;
  record.fixed.lease_ns = Duration(10s).count();
  record.fixed.lease_until_ns = until.time_since_epoch().count();
  return record;
}

TEST(LeaseKeeperTest, AsksForNoTimeWithoutALease) {
  LeaseKeeper keeper;
  keeper.of("", "@none");
  ShimRecord record = leased_record(1, shim::Phase::running, Instant{} + 10s);
  record.fixed.flags = 0;
  keeper.told(record);
  EXPECT_EQ(keeper.deadline(), kNever);
  EXPECT_FALSE(keeper.enforce(Instant{} + 100s));
}

TEST(LeaseKeeperTest, AGrantThatComesLateEndsTheLooking) {
  LeaseKeeper keeper;
  keeper.of("/no-such-cgroup", "");  // so it never says frozen
  keeper.told(leased_record(1, shim::Phase::running, Instant{} + 10s));
  keeper.asked({.attempt = 1, .nonce = 5, .t0_ns = Duration(9s).count()});
  keeper.granted(Instant{} + 9500ms, 5);  // this agent was stopped when it should have frozen the task
  EXPECT_EQ(keeper.deadline(), Instant{} + 18s + task::LeaseGuard::kAfterShim);
}

TEST(LeaseKeeperTest, FreezesBehindTheShimAndGoesByWhatIsGranted) {
  LeaseKeeper keeper;
  keeper.of("", "@no-such-process-of-this-test");
  keeper.told(leased_record(1, shim::Phase::running, Instant{} + 10s));
  EXPECT_EQ(keeper.deadline(), Instant{} + 9s + task::LeaseGuard::kAfterShim);
  keeper.asked({.attempt = 1, .nonce = 5, .t0_ns = Duration(2s).count()});
  keeper.granted(Instant{} + 3s, 5);
  EXPECT_EQ(keeper.deadline(), Instant{} + 11s + task::LeaseGuard::kAfterShim);
  EXPECT_FALSE(keeper.enforce(Instant{} + 11s));
  Instant now = Instant{} + 12s;
  bool frozen = keeper.enforce(now);  // nothing is left to stop: two quiet looks
  for (int looks = 0; looks < 3 && !frozen; ++looks) frozen = keeper.enforce(now += 10ms);
  EXPECT_TRUE(frozen);
  EXPECT_EQ(keeper.deadline(), kNever);
  keeper.told(leased_record(1, shim::Phase::ended, Instant{} + 12s));
  EXPECT_EQ(keeper.deadline(), kNever);
}

}  // namespace
}  // namespace dtrain::proc
