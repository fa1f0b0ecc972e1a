#include "agent/proc/fork_server.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/unit/proc/processes.h"

namespace dtrain::proc {
namespace {

// What the child was asked, and whose child it is.
void answer_in_child(UniqueFd file) {
  std::string text(100, '\0');
  const ssize_t size = ::pread(file.get(), text.data(), text.size(), 0);
  text.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
  text += " for " + std::to_string(::getppid());
  std::size_t open = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++open;
  text += ", " + std::to_string(open) + " descriptors";  // one reads the directory
  if (::pwrite(file.get(), text.data(), text.size(), 0) < 0) ::_exit(EXIT_FAILURE);
}

UniqueFd memory(const std::string& text) {
  UniqueFd file(::memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(::write(file.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return file;
}

class ForkServerTest : public ::testing::Test {
 protected:
  std::unique_ptr<ForkServer> server_ = std::move(*ForkServer::open(answer_in_child));

  // What a child answered that ended with 0, as a child of this process.
  std::string answer_to(const std::string& asked) {
    const UniqueFd file = memory(asked);
    const pid_t child = server_->start(file.get());
    if (child <= 0) return "no child";
    int status = 0;
    if (::waitpid(child, &status, 0) != child) return "not our child";
    if (status != 0) return "ended with " + std::to_string(status);
    std::string text(200, '\0');
    const ssize_t size = ::pread(file.get(), text.data(), text.size(), 0);
    return text.substr(0, size < 0 ? 0 : static_cast<std::size_t>(size));
  }
  std::string right(const std::string& asked) const { return asked + " for " + std::to_string(::getpid()) + ", 5 descriptors"; }
};

TEST_F(ForkServerTest, ChildrenAreOursAndKeepNothingElseOpen) {
  const UniqueFd secret = memory("key");  // begun later than the server, so not in there at all
  EXPECT_EQ(answer_to("first"), right("first"));
  EXPECT_EQ(answer_to("second"), right("second"));
}

TEST_F(ForkServerTest, ChildrenRunBesideEachOther) {
  const UniqueFd one = memory("one"), two = memory("two");
  const pid_t first = server_->start(one.get()), second = server_->start(two.get());
  ASSERT_GT(first, 0);
  ASSERT_GT(second, 0);
  int status = 0;
  EXPECT_EQ(::waitpid(second, &status, 0), second);
  EXPECT_EQ(::waitpid(first, &status, 0), first);
}

TEST_F(ForkServerTest, OneThatDiedIsReplaced) {
  const pid_t before = server_->pid();
  ASSERT_EQ(::kill(before, SIGKILL), 0);
  EXPECT_EQ(answer_to("again"), right("again"));
  EXPECT_NE(server_->pid(), before);
  EXPECT_EQ(::kill(before, 0), -1) << "a zombie is left";
}

TEST_F(ForkServerTest, OneThatDoesNotAnswerIsReplaced) {
  const pid_t before = server_->pid();
  ASSERT_EQ(::kill(before, SIGSTOP), 0);
  EXPECT_EQ(answer_to("again"), right("again"));
  EXPECT_NE(server_->pid(), before);
}

TEST(ForkServer, EndsWithItsParent) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    const auto server = std::move(*ForkServer::open(answer_in_child));
    const pid_t pid = server->pid();
    if (::write(ends[1], &pid, sizeof pid) != sizeof pid) ::_exit(EXIT_FAILURE);
    ::kill(::getpid(), SIGKILL);
  }
  pid_t server = 0;
  ASSERT_EQ(::read(ends[0], &server, sizeof server), static_cast<ssize_t>(sizeof server));
  EXPECT_EQ(::waitpid(parent, nullptr, 0), parent);
  EXPECT_TRUE(testing::dies(server));
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace dtrain::proc
