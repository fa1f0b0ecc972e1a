#include "agent/dtraind/log_sink.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

namespace dtrain::daemon {
namespace {

using ::testing::HasSubstr;

TEST(LogLine, QuotesWhatNeedsIt) {
  const LogField fields[] = {{"node", "n3"}, {"error", "a \"b\"\n=c"}, {"empty", ""}};
  EXPECT_EQ(render_log_line(WallTime(0ms), LogLevel::warn, "member.down", fields, false),
            "time=1970-01-01T00:00:00.000Z level=warn event=member.down node=n3 error=\"a \\\"b\\\"\\n=c\" empty=\"\"");
  // Whoever reads the log on a terminal is not steered by it.
  const LogField steering[] = {{"a", "x\u202ey"}, {"b", "\u009b31m"}, {"c", "\u00b5\xff"}};
  EXPECT_EQ(render_log_line(WallTime(0ms), LogLevel::warn, "e", steering, false),
            "time=1970-01-01T00:00:00.000Z level=warn event=e a=\"x\\u202ey\" b=\"\\u009b31m\" c=\u00b5\xff");
  EXPECT_THAT(render_log_line(WallTime(0ms), LogLevel::error, "x", {}, true), ::testing::StartsWith("<3>time="));
}

TEST(JournalEntry, HasAFieldForEachOfTheLines) {
  const LogField fields[] = {{"job", "mnist"}, {"exit-code", "9"}, {"error", "a\nb"}};
  std::string expected =
      "MESSAGE=event=task.failed job=mnist exit-code=9 error=\"a\\nb\"\nPRIORITY=4\nSYSLOG_IDENTIFIER=dtraind\n"
      "DTRAIN_EVENT=task.failed\nDTRAIN_JOB=mnist\nDTRAIN_EXIT_CODE=9\nDTRAIN_ERROR\n";
  expected += std::string("\x03\0\0\0\0\0\0\0", 8) + "a\nb\n";
  EXPECT_EQ(journal_entry(LogLevel::warn, "task.failed", fields), expected);
  const LogField task{"task", "mnist/ps-0"};
  EXPECT_THAT(journal_entry(LogLevel::info, "x", std::span(&task, 1)), HasSubstr("\nDTRAIN_JOB=mnist\nDTRAIN_TASK=ps-0\n"));
  const std::string key(100, 'k');
  const LogField lengthy{key, "v"};
  EXPECT_THAT(journal_entry(LogLevel::info, "x", std::span(&lengthy, 1)), HasSubstr("\nDTRAIN_" + std::string(57, 'K') + "=v\n"));
}

// A journal: stderr is a pipe that JOURNAL_STREAM names, entries come to a socket.
class Journal : public ::testing::Test {
 protected:
  Journal() {
    EXPECT_EQ(::pipe2(pipe_, O_CLOEXEC | O_NONBLOCK), 0);
    struct stat info {};
    EXPECT_EQ(::fstat(pipe_[1], &info), 0);
    ::setenv("JOURNAL_STREAM", (std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino)).c_str(), 1);
    char name[] = "/tmp/dtrain-journal-XXXXXX";
    directory_ = ::mkdtemp(name);
  }
  ~Journal() override {
    ::unsetenv("JOURNAL_STREAM");
    close_socket();
    ::close(pipe_[0]);
    ::close(pipe_[1]);
    std::filesystem::remove_all(directory_);
  }
  void listen() {
    socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::memcpy(at.sun_path, path().data(), path().size());
    ASSERT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
  }
  void close_socket() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
    std::filesystem::remove(path());
  }
  std::string path() const { return directory_ + "/socket"; }
  static std::string next(int fd) {
    std::string bytes(100'000, 0);
    const ssize_t count = ::read(fd, bytes.data(), bytes.size());
    bytes.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
    return bytes;
  }
  std::string entry() const { return next(socket_); }
  std::string lines() const { return next(pipe_[0]); }

  int pipe_[2] = {-1, -1};
  int socket_ = -1;
  std::string directory_;
};

TEST_F(Journal, HasEntriesInsteadOfLines) {
  ASSERT_NO_FATAL_FAILURE(listen());
  LogSink log(pipe_[1], LogLevel::info, path());
  log.write(LogLevel::info, "job.running", {{"job", "mnist"}});
  EXPECT_THAT(entry(), HasSubstr("\nDTRAIN_JOB=mnist\n"));
  EXPECT_EQ(lines(), "");
  log.write(LogLevel::debug, "job.running", {{"job", "mnist"}});
  EXPECT_EQ(entry(), "");
}

TEST_F(Journal, ThatIsNotThereOrTakesNoSuchEntryHasALine) {
  LogSink log(pipe_[1], LogLevel::info, path());
  log.write(LogLevel::info, "job.running", {{"job", "mnist"}});
  EXPECT_THAT(lines(), HasSubstr("<6>time="));
  ASSERT_NO_FATAL_FAILURE(listen());
  log.write(LogLevel::info, "job.running", {{"job", std::string(kJournalEntryBytes, 'm')}});
  EXPECT_EQ(lines().size(), kLogLineBytes);
  EXPECT_EQ(entry(), "");
}

TEST_F(Journal, ThatDoesNotReadStopsNobodyAndIsToldWhatItMissed) {
  ASSERT_NO_FATAL_FAILURE(listen());
  LogSink log(pipe_[1], LogLevel::info, path());
  constexpr std::size_t kMany = 100'000;  // more than any socket's queue takes
  for (std::size_t i = 0; i < kMany; ++i) log.write(LogLevel::info, "x", {{"number", std::to_string(i)}});
  EXPECT_EQ(lines(), "");
  std::size_t read = 0;
  while (!entry().empty()) ++read;
  ASSERT_LT(read, kMany);
  log.write(LogLevel::info, "after", {});
  EXPECT_THAT(entry(), HasSubstr("\nDTRAIN_EVENT=log.dropped\nDTRAIN_LINES=" + std::to_string(kMany - read) + "\n"));
  EXPECT_THAT(entry(), HasSubstr("\nDTRAIN_EVENT=after\n"));
}

TEST_F(Journal, ThatIsRestartedGoesOnHavingEntries) {
  ASSERT_NO_FATAL_FAILURE(listen());
  LogSink log(pipe_[1], LogLevel::info, path());
  log.write(LogLevel::info, "before", {});
  close_socket();
  ASSERT_NO_FATAL_FAILURE(listen());
  log.write(LogLevel::info, "after", {});
  EXPECT_THAT(entry(), HasSubstr("\nDTRAIN_EVENT=after\n"));
}

}  // namespace
}  // namespace dtrain::daemon
