#include "agent/base/small_file.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "agent/base/unique_fd.h"

namespace dtrain {
namespace {

class SmallFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "small-file-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  void put(const std::string& name, const std::string& text) const { std::ofstream(path(name)) << text; }

  std::string directory_;
};

TEST_F(SmallFile, IsReadWholeUpToItsLimit) {
  put("a", "0123456789");
  EXPECT_EQ(read_small_file(path("a"), 10), "0123456789");
  EXPECT_FALSE(read_small_file(path("a"), 9));
  EXPECT_EQ(errno, EFBIG);
  EXPECT_FALSE(read_small_file(path("b")));
  EXPECT_EQ(errno, ENOENT);
}

TEST_F(SmallFile, APipeWithoutAWriterHoldsNobodyUp) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(read_small_file(path("pipe")), "");
}

TEST_F(SmallFile, IsReadIntoWhatThereIsRoomFor) {
  put("a", "0123456789");
  const UniqueFd fd(::open(path("a").c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(4, '\0');
  ASSERT_TRUE(read_into(fd.get(), text));
  EXPECT_EQ(text, "0123");
  text.assign(100, '\0');
  ASSERT_TRUE(read_into(fd.get(), text));
  EXPECT_EQ(text, "456789");
  EXPECT_FALSE(read_into(-1, text));
  EXPECT_EQ(errno, EBADF);
}

TEST_F(SmallFile, IsReplacedWholeAndLeavesNoDraft) {
  put("a", "before");
  ASSERT_TRUE(replace_file(path("a"), "behind"));
  EXPECT_EQ(read_small_file(path("a")), "behind");
  EXPECT_FALSE(std::filesystem::exists(path("a.new")));
  const Status failed = replace_file(path("none/a"), "");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "could not write " + path("none/a") + ": No such file or directory");
  EXPECT_TRUE(write_control(path("a"), "12"));
  EXPECT_FALSE(write_control(path("b"), "12"));
}

}  // namespace
}  // namespace dtrain
