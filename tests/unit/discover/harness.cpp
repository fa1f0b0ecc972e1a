#include "tests/unit/discover/harness.h"

#include <stdlib.h>

#include <fstream>
#include <stdexcept>

namespace dtrain::discover {

Directory::Directory() {
  std::string name = (std::filesystem::temp_directory_path() / "dtrain-discover-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
  path_ = name;
}

Directory::~Directory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string Directory::write(const std::string& name, const std::string& text, bool executable) const {
  std::ofstream file(path_ / name, std::ios::binary);
  file << text;
  if (!file.flush()) throw std::runtime_error("could not write " + name);
  if (executable) std::filesystem::permissions(path_ / name, std::filesystem::perms{0755});
  return path(name);
}

}  // namespace dtrain::discover
