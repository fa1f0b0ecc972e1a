#include "agent/loop/service_manager.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <vector>

namespace dtrain::loop {
namespace {

// Stands for systemd: a datagram socket, at a path or under an abstract name.
class Manager {
 public:
  explicit Manager(const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path, sizeof address.sun_path - 1);
    if (name[0] == '@') address.sun_path[0] = '\0';
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::setenv("NOTIFY_SOCKET", name.c_str(), 1), 0);
  }
  ~Manager() { ::close(fd_); }
  // What arrived since the last call, one text per datagram.
  std::vector<std::string> heard() {
    std::vector<std::string> all;
    char text[4096];
    for (ssize_t n = 0; (n = ::recv(fd_, text, sizeof text, MSG_DONTWAIT)) >= 0;) all.emplace_back(text, static_cast<std::size_t>(n));
    return all;
  }

 private:
  int fd_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
};

class ServiceManagerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) ::unsetenv(name);
    std::string name = (std::filesystem::temp_directory_path() / "dtrain-notify-XXXXXX").string();
    ASSERT_TRUE(::mkdtemp(name.data()));
    dir_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string dir_;
  const Instant t0{100s};
};

using Texts = std::vector<std::string>;

TEST_F(ServiceManagerTest, WithoutAManagerNothingIsSaidAndNobodyIsWoken) {
  ::setenv("WATCHDOG_USEC", "3000000", 1);
  ServiceManager manager = ServiceManager::from_environment();
  EXPECT_FALSE(manager.listens());
  manager.ready(t0, "x");
  EXPECT_EQ(manager.deadline(), kNever);
  EXPECT_EQ(::getenv("WATCHDOG_USEC"), nullptr);
}

TEST_F(ServiceManagerTest, SaysWhenItIsReadyAndGivesASignOfLifeThreeTimesInTheTimeAllowed) {
  Manager systemd(dir_ + "/notify");
  ::setenv("WATCHDOG_USEC", "3000000", 1);
  ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
  ServiceManager manager = ServiceManager::from_environment();
  EXPECT_EQ(::getenv("NOTIFY_SOCKET"), nullptr);  // no child may speak for this process
  EXPECT_EQ(::getenv("WATCHDOG_PID"), nullptr);
  EXPECT_EQ(manager.deadline(), kNever) << "before it is ready no watchdog runs";
  manager.ready(t0, "no coordinator");
  EXPECT_EQ(systemd.heard(), (Texts{"READY=1\nSTATUS=no coordinator"}));
  EXPECT_EQ(manager.deadline(), t0 + 1s);
  manager.tell(t0 + 1s, "coordinator h1");
  manager.tell(t0 + 2s, "coordinator h1");  // known already
  EXPECT_EQ(manager.deadline(), t0 + 3s);
  manager.stopping("2 tasks run on");
  EXPECT_EQ(manager.deadline(), kNever) << "the next turn would take the last word back";
  EXPECT_EQ(systemd.heard(), (Texts{"WATCHDOG=1\nSTATUS=coordinator h1", "WATCHDOG=1", "STOPPING=1\nSTATUS=2 tasks run on"}));
}

TEST_F(ServiceManagerTest, ALongWatchdogStillBringsTheLineForPeopleInTime) {
  Manager systemd(dir_ + "/notify");
  ::setenv("WATCHDOG_USEC", "3600000000", 1);
  ServiceManager manager = ServiceManager::from_environment();
  manager.ready(t0, "");
  EXPECT_EQ(manager.deadline(), t0 + kTellEvery);
}

TEST_F(ServiceManagerTest, WithoutAWatchdogOnlyNewsAreSent) {
  Manager systemd("@dtrain-test-" + std::to_string(::getpid()));
  ServiceManager manager = ServiceManager::from_environment();
  manager.ready(t0, "a");
  manager.tell(t0 + 5s, "a");
  manager.tell(t0 + 10s, "b");
  EXPECT_EQ(systemd.heard(), (Texts{"READY=1\nSTATUS=a", "STATUS=b"}));
}

TEST_F(ServiceManagerTest, TheWatchdogOfAnotherProcessIsNotAnswered) {
  Manager systemd(dir_ + "/notify");
  ::setenv("WATCHDOG_USEC", "3000000", 1);
  ::setenv("WATCHDOG_PID", "1", 1);
  ServiceManager manager = ServiceManager::from_environment();
  manager.ready(t0, "a");
  manager.tell(t0 + 5s, "b");
  EXPECT_EQ(systemd.heard(), (Texts{"READY=1\nSTATUS=a", "STATUS=b"}));
}

TEST_F(ServiceManagerTest, ALineStaysOneLineOfBoundedLength) {
  Manager systemd(dir_ + "/notify");
  ServiceManager manager = ServiceManager::from_environment();
  manager.ready(t0, "a\nMAINPID=1");
  manager.tell(t0 + 5s, std::string(5000, 'x'));
  EXPECT_EQ(systemd.heard(), (Texts{"READY=1\nSTATUS=a MAINPID=1", "STATUS=" + std::string(kStatusBytes, 'x')}));
}

// systemctl daemon-reexec may leave another socket under the same name.
TEST_F(ServiceManagerTest, AManagerThatComesBackIsFoundAgain) {
  auto first = std::make_unique<Manager>(dir_ + "/notify");
  ServiceManager manager = ServiceManager::from_environment();
  manager.ready(t0, "a");
  first.reset();
  std::filesystem::remove(dir_ + "/notify");
  manager.tell(t0 + 5s, "b");  // nobody there
  Manager second(dir_ + "/notify");
  manager.tell(t0 + 10s, "b");
  EXPECT_EQ(second.heard(), (Texts{"STATUS=b"}));
}

// The manager is stopped, or slow: its socket is full. Nothing waits, and what was lost is said again.
TEST_F(ServiceManagerTest, AManagerThatDoesNotReadHoldsNobodyUp) {
  Manager systemd(dir_ + "/notify");
  ServiceManager manager = ServiceManager::from_environment();
  for (int i = 0; i < 10'000; ++i) manager.tell(t0, "line " + std::to_string(i));
  EXPECT_LT(systemd.heard().size(), 10'000u);
  manager.tell(t0, "line 9999");
  EXPECT_EQ(systemd.heard(), (Texts{"STATUS=line 9999"}));
}

TEST_F(ServiceManagerTest, NamesThatCannotBeMeantAreIgnored) {
  for (const std::string& name : {std::string("relative"), std::string("/"), std::string(200, '/')}) {
    ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
    EXPECT_FALSE(ServiceManager::from_environment().listens()) << name;
  }
}

}  // namespace
}  // namespace dtrain::loop
