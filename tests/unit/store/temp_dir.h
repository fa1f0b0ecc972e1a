// A directory, or a small disk, of its own for one test, removed at its end.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace dtrain::store {

struct TempDir {
  std::string path;
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "dtrain-store-XXXXXX").string();
    if (!::mkdtemp(name.data())) ADD_FAILURE() << "mkdtemp";
    path = name;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  TempDir(const TempDir&) = delete;
};

// `size` as tmpfs takes it. Only root may mount: a test without it has nothing to show.
class SmallDisk {
 public:
  explicit SmallDisk(const std::string& size)
      : mounted_(::mount("tmpfs", directory_.path.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0) {
    if (!mounted_ && ::geteuid() == 0) ADD_FAILURE() << "mount";
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(directory_.path.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  bool mounted() const { return mounted_; }
  const std::string& path() const { return directory_.path; }

 private:
  TempDir directory_;
  const bool mounted_;
};

}  // namespace dtrain::store
