#include "agent/store/package.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utime.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/transfer/digest.h"
#include "tests/unit/store/temp_dir.h"

namespace dtrain::store {
namespace {

namespace fs = std::filesystem;

class PackageTest : public ::testing::Test {
 protected:
  PackageTest() {
    fs::create_directories(top() + "/tmp");
    fs::create_directories(top() + "/src/sub");
    std::ofstream(top() + "/src/train.py") << "print('x')\n";
    std::ofstream(top() + "/src/sub/data") << std::string(100'000, 'd');
    fs::create_symlink("sub/data", top() + "/src/link");
    ::setenv("TMPDIR", (top() + "/tmp").c_str(), 1);
  }
  ~PackageTest() override { ::unsetenv("TMPDIR"); }

  std::string top() const { return dir_.path; }
  bool nothing_left() const { return fs::is_empty(top() + "/tmp"); }
  static std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  TempDir dir_;
};

TEST_F(PackageTest, HoldsTheDirectoryAndIsNamedByItsBytes) {
  const auto packed = pack_directory(top() + "/src");
  ASSERT_TRUE(packed.has_value()) << packed.error().text();
  EXPECT_EQ(packed->digest, transfer::blake2b_hex(read(packed->path)));
  fs::create_directories(top() + "/out");
  ASSERT_EQ(std::system(("tar -xf " + packed->path + " -C " + top() + "/out").c_str()), 0);
  EXPECT_EQ(read(top() + "/out/train.py"), "print('x')\n");
  EXPECT_EQ(fs::read_symlink(top() + "/out/link"), "sub/data");
}

TEST_F(PackageTest, EqualContentIsTheSameWhateverItsTimes) {
  const auto first = pack_directory(top() + "/src");
  ASSERT_TRUE(first.has_value());
  // Another place, another order of making, other times, another way to name it, and options that would
  // change it.
  fs::create_directories(top() + "/src2/sub");
  fs::create_symlink("sub/data", top() + "/src2/link");
  std::ofstream(top() + "/src2/sub/data") << std::string(100'000, 'd');
  std::ofstream(top() + "/src2/train.py") << "print('x')\n";
  const utimbuf times{1000, 1000};
  ::utime((top() + "/src2/train.py").c_str(), &times);
  ::setenv("TAR_OPTIONS", "--exclude=train.py", 1);
  const auto second = pack_directory(top() + "/src2/sub/..");
  ::unsetenv("TAR_OPTIONS");
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(first->content, second->content);
  EXPECT_NE(first->digest, second->digest) << "the times are in it";
  EXPECT_EQ(pack_directory(top() + "/src2")->digest, second->digest) << "equal times give equal bytes";
  EXPECT_NE(first->content, first->digest);

  std::ofstream(top() + "/src2/train.py") << "print('y')\n";
  ::utime((top() + "/src2/train.py").c_str(), &times);
  EXPECT_NE(pack_directory(top() + "/src2")->content, first->content);
}

// Names too long for a header take members of their own, whose data may hold anything; one header follows another wherever reads end.
TEST_F(PackageTest, TimesAreBlankedInHeadersAlone) {
  const std::string long_name = std::string(200, 'n');
  for (const char* copy : {"/a", "/b"}) {
    fs::create_directories(top() + copy);
    for (const std::size_t bytes : {0u, 1u, 511u, 512u, 513u, 262'143u, 1'000'000u})
      std::ofstream(top() + copy + "/" + long_name + std::to_string(bytes)) << std::string(bytes, 'x');
    fs::create_hard_link(top() + copy + "/" + long_name + "513", top() + copy + "/link");
  }
  EXPECT_EQ(pack_directory(top() + "/a")->content, pack_directory(top() + "/b")->content);
  std::fstream(top() + "/b/" + long_name + "1000000").seekp(999'999).put('y');
  EXPECT_NE(pack_directory(top() + "/a")->content, pack_directory(top() + "/b")->content);
}

TEST_F(PackageTest, FilesKeepTheirTimes) {
  const utimbuf times{1'600'000'000, 1'600'000'000};
  ::utime((top() + "/src/train.py").c_str(), &times);
  const auto packed = pack_directory(top() + "/src");
  ASSERT_TRUE(packed.has_value());
  fs::create_directories(top() + "/out");
  ASSERT_EQ(std::system(("tar -xf " + packed->path + " -C " + top() + "/out").c_str()), 0);
  struct stat info {};
  ASSERT_EQ(::stat((top() + "/out/train.py").c_str(), &info), 0);
  EXPECT_EQ(info.st_mtime, 1'600'000'000);
}

TEST_F(PackageTest, WhatIsNoDirectoryIsRefused) {
  EXPECT_EQ(pack_directory(top() + "/none").error().message, "could not pack " + top() + "/none: No such file or directory");
  EXPECT_EQ(pack_directory(top() + "/src/train.py").error().message, "could not pack " + top() + "/src/train.py: not a directory");
  EXPECT_TRUE(nothing_left());
}

// Root reads everything: the test is made as somebody else.
TEST_F(PackageTest, AnUnreadableFileIsNamed) {
  fs::permissions(top() + "/src/sub/data", fs::perms::none);
  fs::permissions(top(), fs::perms(0755));
  fs::permissions(top() + "/tmp", fs::perms(0777));
  constexpr uid_t kNobody = 65534;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(kNobody) != 0) ::_exit(2);
    const auto packed = pack_directory(top() + "/src");
    ::_exit(!packed && packed.error().code == ErrorCode::invalid &&
                    packed.error().message.ends_with("./sub/data: Cannot open: Permission denied")
                ? 0
                : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(nothing_left());
}

TEST_F(PackageTest, AnUnusableTemporaryDirectoryIsSaid) {
  ::setenv("TMPDIR", (top() + "/none").c_str(), 1);
  const auto packed = pack_directory(top() + "/src");
  ASSERT_FALSE(packed.has_value());
  EXPECT_EQ(packed.error().code, ErrorCode::io);
}

}  // namespace
}  // namespace dtrain::store
