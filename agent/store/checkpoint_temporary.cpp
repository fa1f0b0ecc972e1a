#include "agent/store/checkpoint_temporary.h"

#include "agent/store/checkpoint_files.h"
#include "agent/store/file.h"

namespace dtrain::store {
namespace {

constexpr std::string_view kEnding = ".dtrain.tmp";

std::string host_prefix(const CopyOwner& owner) { return "copy-" + owner.host + "-"; }
std::string life_prefix(const CopyOwner& owner) { return host_prefix(owner) + std::to_string(owner.life) + "-"; }

}  // namespace

std::string temporary_name(const CopyOwner& owner, std::uint64_t writer) {
  return life_prefix(owner) + std::to_string(writer) + std::string(kEnding);
}

bool is_leftover(std::string_view name, const CopyOwner& owner) {
  return name.starts_with(host_prefix(owner)) && name.ends_with(kEnding) && !name.starts_with(life_prefix(owner));
}

void remove_leftovers(const std::string& directory, const CopyOwner& owner) {
  const auto opened = open_directory(directory);
  if (!opened) return;
  const auto names = list_names(*opened);
  if (!names) return;
  for (const std::string& name : *names)
    if (is_leftover(name, owner)) (void)remove_tree(directory + "/" + name);
}

}  // namespace dtrain::store
