// Where a test finds the other programs of its build: in the directory that it lies in itself. No object holds the path of a build
// directory, so that ccache finds it again from every checkout.
#pragma once

#include <filesystem>
#include <string>

namespace dtrain::test {

inline std::string beside(const std::string& program) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / program).string();
}

}  // namespace dtrain::test
