// A directory of its own for one test, removed at its end.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

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

}  // namespace dtrain::store
