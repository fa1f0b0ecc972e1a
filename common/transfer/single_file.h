// What formats have in common whose checkpoints are one file each: its name ends in a certain way, it is its own table of contents, and the
// path of the checkpoint is that of the file.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "common/transfer/format.h"
#include "common/transfer/manifest.h"
#include "common/transfer/selection.h"
#include "common/transfer/step_name.h"

namespace dtrain::transfer {

// `kEndings`: an array of endings, with their dot.
template <const auto& kEndings>
struct SingleFile {
  static std::string_view stem(std::string_view name) {
    for (const std::string_view ending : kEndings)
      if (name.size() > ending.size() && name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
    return {};
  }
  static std::string_view base_of(std::string_view name) { return stem(name).empty() || is_ignored_name(name) ? std::string_view() : name; }
  static std::vector<Found> find(const std::vector<std::string>& names) {
    std::vector<Found> found;
    for (const std::string& name : names)
      if (!base_of(name).empty()) found.push_back({name});
    return found;
  }

  // Leaves out `parse` and `table`.
  static constexpr Format format(std::string_view name, std::string_view seen_as, std::string_view named_as, std::size_t contents_bytes) {
    Format f{};
    f.name = name;
    f.seen_as = seen_as;
    f.named_as = named_as;
    f.directory = false;
    f.contents_name = [](std::string_view base) { return std::string(base); };
    f.contents_bytes = contents_bytes;
    f.is_file_of = [](std::string_view file_name, std::string_view base) { return file_name == base && is_inner_name(file_name); };
    f.named_clearly = [](std::string_view base) { return step_said_by(stem(base)) && named_as_checkpoint(base); };
    f.find = find;
    f.base_of = base_of;
    f.step_of = [](std::string_view base) { return step_of_name(stem(base)); };
    return f;
  }
};

}  // namespace dtrain::transfer
