// What is seen of a host: of this one where that is certain, else of trees of files that look like one.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <stdexcept>

#include "agent/host/doctor_facts.h"
#include "agent/host/examiner.h"
#include "agent/host/listen_port.h"

namespace dtrain::host {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Answer = node::Contact::Answer;

class Tree : public ::testing::Test {
 protected:
  Tree() {
    std::string name = fs::temp_directory_path().string() + "/dtrain-doctor-XXXXXX";
    root = ::mkdtemp(name.data());
  }
  ~Tree() override { fs::remove_all(root); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }
  void device(const std::string& address, const std::string& vendor, const std::string& kind) {
    write("/sys/bus/pci/devices/" + address + "/vendor", vendor + "\n");
    write("/sys/bus/pci/devices/" + address + "/class", kind + "\n");
    write("/sys/bus/pci/devices/" + address + "/device", "0x20b0\n");
  }
  std::string root;
};

TEST_F(Tree, PortsOfTheKernel) {
  EXPECT_EQ(local_port_range(root), node::PortSpan{});
  EXPECT_THAT(reserved_ports(root), IsEmpty());
  write("/proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n");
  write("/proc/sys/net/ipv4/ip_local_reserved_ports", "7400-7402,8080,20000-29999\n");
  EXPECT_EQ(local_port_range(root), (node::PortSpan{32768, 60999}));
  EXPECT_THAT(reserved_ports(root), ElementsAre(node::PortSpan{7400, 7402}, node::PortSpan{8080, 8080}, node::PortSpan{20000, 29999}));
}

TEST_F(Tree, NvidiaDriver) {
  node::Driver none = gpu_driver("0x10de", root);
  EXPECT_EQ(none.devices, 0u);
  EXPECT_EQ(none.module, "");
  device("0000:10:00.0", "0x10de", "0x030200");
  device("0000:11:00.0", "0x10de", "0x030000");
  device("0000:11:00.1", "0x10de", "0x040300");  // its sound
  device("0000:02:00.0", "0x1a03", "0x030000");  // the board's screen
  write("/sys/module/nouveau/refcnt", "1");
  const node::Driver nouveau = gpu_driver("0x10de", root);
  EXPECT_EQ(nouveau.devices, 2u);
  EXPECT_TRUE(nouveau.other_driver);
  EXPECT_THAT(nouveau.missing, IsEmpty()) << "of a driver that is not there";
  write("/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version:  gcc 12\n");
  write("/dev/nvidiactl", "");
  write("/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14", "");
  fs::create_symlink("libcuda.so.550.54.14", root + "/usr/lib/x86_64-linux-gnu/libcuda.so.1");
  const node::Driver seen = gpu_driver("0x10de", root);
  EXPECT_EQ(seen.module, "535.104.05");
  EXPECT_EQ(seen.library, "550.54.14");
  EXPECT_TRUE(seen.library_found);
  EXPECT_THAT(seen.missing, ElementsAre("/dev/nvidia-uvm"));
  // The open kernel module words it otherwise.
  write("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build\n");
  EXPECT_EQ(gpu_driver("0x10de", root).module, "550.54.14");
}

TEST_F(Tree, AmdDriver) {
  device("0000:03:00.0", "0x1002", "0x038000");
  EXPECT_EQ(gpu_driver("0x1002", root).module, "");
  write("/sys/module/amdgpu/refcnt", "1");
  EXPECT_THAT(gpu_driver("0x1002", root).missing, ElementsAre("/dev/kfd"));
  write("/dev/kfd", "");
  EXPECT_THAT(gpu_driver("0x1002", root).missing, IsEmpty());
}

TEST_F(Tree, ControlGroupsAreThoseThatAreMounted) {
  DoctorOptions options;
  options.root = root;
  EXPECT_FALSE(examine(options).cgroup2);
  write("/proc/self/mountinfo",
        "24 1 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n25 24 0:23 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
        "26 24 0:24 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "27 24 0:25 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  write("/sys/fs/cgroup/unified/cgroup.controllers", "hugetlb pids\n");
  const node::Examination seen = examine(options);
  ASSERT_TRUE(seen.cgroup2);
  EXPECT_THAT(*seen.cgroup2, ElementsAre("hugetlb", "pids"));
  EXPECT_THAT(seen.cgroup1, ElementsAre("cpu", "memory"));
}

TEST_F(Tree, ADiskIsThatOfTheNearestDirectoryThatIsThere) {
  const node::Disk disk = look_at_disk("paths.data", root + "/not/made/yet");
  EXPECT_EQ(disk.error, "");
  EXPECT_EQ(disk.path, root + "/not/made/yet");
  EXPECT_GT(disk.total, 0u);
  EXPECT_LE(disk.free, disk.total);
  EXPECT_TRUE(look_at_disk("paths.data", "/dev/shm").in_memory);
  EXPECT_NE(look_at_disk("paths.data", "relative").error, "");
}

// ---------------------------------------------------------------- connections

struct Door {  // listens on loopback
  explicit Door(int backlog) : fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size), 0);
    if (backlog >= 0) {
      EXPECT_EQ(::listen(fd, backlog), 0);
    }
  }
  ~Door() { ::close(fd); }
  std::uint16_t port() const { return ntohs(at.sin_port); }
  const int fd;
  sockaddr_in at{};
};

Answer answer_at(std::uint16_t port) { return try_contacts({{"n2", {"127.0.0.1", port}}}, 300ms, 5s).at(0).answer; }

TEST(Contacts, WhoAcceptsRefusesOrKeepsSilent) {
  const Door open(8), closed(-1), full(0);
  EXPECT_EQ(answer_at(open.port()), Answer::accepts);
  EXPECT_EQ(answer_at(closed.port()), Answer::refused);
  // The kernel drops what finds no room in the queue of those to be accepted.
  std::vector<int> queue;
  for (int i = 0; i < 4; ++i) {
    queue.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    (void)::connect(queue.back(), reinterpret_cast<const sockaddr*>(&full.at), sizeof full.at);
  }
  EXPECT_EQ(answer_at(full.port()), Answer::silent);
  for (const int fd : queue) ::close(fd);
}

TEST(Contacts, BothPortsOfEachPeerInOrder) {
  const auto contacts = try_contacts({{"n2", {"127.0.0.1", 1}}, {"n3", {"not an address", 1}}}, 1s, 5s);
  ASSERT_EQ(contacts.size(), 4u);
  EXPECT_EQ(contacts[0].to.text(), "127.0.0.1:1");
  EXPECT_EQ(contacts[1].to.text(), "127.0.0.1:2");
  EXPECT_TRUE(contacts[1].bulk);
  EXPECT_EQ(contacts[2].peer, "n3");
  EXPECT_EQ(contacts[3].answer, Answer::failed);
  EXPECT_EQ(contacts[3].cause, "Invalid argument");
}

TEST(Contacts, ManyAreTriedAsFarAsTimeAllows) {
  const Door open(4096);
  std::vector<node::ExamPeer> peers(kContactsAtOnce * 2, {"n2", {"127.0.0.1", open.port()}});
  std::size_t accepted = 0;
  for (const node::Contact& c : try_contacts(peers, 2s, 20s)) accepted += c.answer == Answer::accepts;
  EXPECT_GE(accepted, peers.size());
  for (const node::Contact& c : try_contacts(peers, 2s, Duration{})) EXPECT_EQ(c.answer, Answer::not_tried);
}

TEST(Listeners, AreKnownByTheirPort) {
  const Door open(1), bound(-1);
  const auto found = listeners(open.port(), open.port(), 10);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].port, open.port());
  EXPECT_EQ(found[0].pid, ::getpid());
  EXPECT_NE(found[0].name, "");
  EXPECT_THAT(listeners(bound.port(), bound.port(), 10), IsEmpty()) << "nobody listens there";
  DoctorOptions options;
  options.terms.task_ports = {open.port(), open.port()};
  EXPECT_THAT(examine(options).strangers.at(0).owner, HasSubstr("(pid " + std::to_string(::getpid()) + ")"));
  options.is_task = [](pid_t pid) { return pid == ::getpid(); };
  EXPECT_THAT(examine(options).strangers, IsEmpty());
}

TEST(Lookups, SayWhatTheResolverSays) {
  std::vector<node::Lookup> lookups{{node::Lookup::Of::host, "localhost", {}, true}};
  look_up(lookups, 30s);
  EXPECT_TRUE(lookups[0].answered);
  EXPECT_THAT(lookups[0].addresses, ::testing::Contains(::testing::AnyOf("127.0.0.1", "::1")));
}

TEST(Examine, WithoutAnAgentItsPortsAreTried) {
  const Door open(1);
  DoctorOptions options;
  options.terms.agent = false;
  options.terms.listen_ip = "127.0.0.1";
  options.terms.port = open.port();
  const node::Examination seen = examine(options);
  ASSERT_EQ(seen.trials.size(), 2u);
  ASSERT_TRUE(seen.trials[0].error);
  EXPECT_THAT(seen.trials[0].error->message, HasSubstr("the port is taken by "));
}

TEST(Examiner, AnswersBesideTheLoop) {
  auto examiner = Examiner::open();
  ASSERT_TRUE(examiner);
  DoctorOptions options;
  options.terms.name = "n1";
  options.terms.ulimits = {{"nofile", 1}, {"memlock", 0}};
  (*examiner)->begin(7, options);
  (*examiner)->begin(8, options);
  std::vector<std::uint64_t> tokens;
  pollfd ready{(*examiner)->fd(), POLLIN, 0};
  while (tokens.size() < 2 && ::poll(&ready, 1, 60'000) == 1)
    (*examiner)->dispatch([&](std::uint64_t token, Result<node::Examination> seen) {
      tokens.push_back(token);
      ASSERT_TRUE(seen) << seen.error().message;
      EXPECT_EQ(seen->terms.name, "n1");
      EXPECT_EQ(seen->limits.size(), 2u);
      EXPECT_NE(seen->host_name, "");
      EXPECT_NE(seen->local_ports, node::PortSpan{});
    });
  EXPECT_THAT(tokens, ::testing::UnorderedElementsAre(7u, 8u));
}

// A host that hangs keeps one thread for each that asked, and no more than so many.
TEST(Examiner, SaysWhyItExaminesNothing) {
  const Door open(1);
  auto examiner = Examiner::open();
  ASSERT_TRUE(examiner);
  DoctorOptions hangs, throws;
  hangs.terms.task_ports = throws.terms.task_ports = {open.port(), open.port()};
  std::promise<void> released;
  hangs.is_task = [over = released.get_future().share()](pid_t) { return over.wait(), true; };
  throws.is_task = [](pid_t) -> bool { throw std::runtime_error("short of something"); };
  std::map<std::uint64_t, std::string> told;
  const auto hear = [&](std::size_t until) {
    pollfd ready{(*examiner)->fd(), POLLIN, 0};
    while (told.size() < until && ::poll(&ready, 1, 60'000) == 1)
      (*examiner)->dispatch(
          [&](std::uint64_t token, Result<node::Examination> seen) { told[token] = seen ? "seen" : seen.error().message; });
  };
  (*examiner)->begin(100, throws);
  hear(1);
  EXPECT_EQ(told[100], "short of something");
  for (std::uint64_t token = 0; token < kExaminations; ++token) (*examiner)->begin(token, hangs);
  (*examiner)->begin(101, hangs);
  hear(2);
  EXPECT_EQ(told[101], "16 earlier examinations of it have not ended");
  released.set_value();
  hear(2 + kExaminations);
  EXPECT_EQ(told[0], "seen");
}

}  // namespace
}  // namespace dtrain::host
