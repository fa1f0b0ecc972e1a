#include <algorithm>
#include <array>

#include "common/job/container_engine.h"
#include "common/job/text.h"

namespace dtrain::job {

extern const ContainerEngine kPodman, kEnroot;

namespace {

constexpr std::array kEngines = {&kPodman, &kEnroot};  // a host has the first of them that works there
constexpr std::string_view kCdiKind = "nvidia.com/gpu";

bool is_inside(const std::string& path, const std::string& directory) {
  return directory == "/" || (path.starts_with(directory) && (path.size() == directory.size() || path[directory.size()] == '/'));
}

// `name: "0"` in YAML or `"name": "0"` in JSON.
bool names_device(std::string_view text, const std::string& id) {
  constexpr std::string_view kKey = "name";
  for (std::size_t at = text.find(kKey); at != std::string_view::npos; at = text.find(kKey, at + 1)) {
    std::string_view rest = text.substr(at + kKey.size());
    const auto skip = [&rest](std::string_view characters) {
      rest.remove_prefix(std::min(rest.find_first_not_of(characters), rest.size()));
    };
    skip("\"' ");
    if (!rest.starts_with(':')) continue;
    skip(":\"' ");
    if (rest.starts_with(id) &&
        (rest.size() == id.size() || std::string_view("\"' \n\r,}").find(rest[id.size()]) != std::string_view::npos))
      return true;
  }
  return false;
}

}  // namespace

std::span<const ContainerEngine* const> container_engines() { return kEngines; }

const ContainerEngine* find_engine(std::string_view name) {
  const auto at = std::ranges::find(kEngines, name, &ContainerEngine::name);
  return at == kEngines.end() ? nullptr : *at;
}

bool is_image_name(std::string_view text) {
  constexpr std::string_view kAllowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./:@";
  return text.size() <= kImageNameBytes && text.find_first_not_of(kAllowed) == std::string_view::npos &&
         std::string_view("-./:@_").find(text.empty() ? 'a' : text.front()) == std::string_view::npos;
}

std::string engine_names() {
  std::vector<std::string> names;
  for (const ContainerEngine* engine : kEngines) names.emplace_back(engine->name);
  return one_of(names);
}

const PullFault& fault_of(const ContainerEngine& engine, std::string_view complaint) {
  return *std::ranges::find_if(engine.faults,
                               [&](const PullFault& fault) { return complaint.find(fault.words) != std::string_view::npos; });
}

std::vector<std::string> without_nested(std::vector<std::string> directories) {
  for (std::string& path : directories)
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  std::ranges::sort(directories);
  std::vector<std::string> kept;
  for (std::string& path : directories)
    if (std::ranges::none_of(kept, [&](const std::string& other) { return is_inside(path, other); })) kept.push_back(std::move(path));
  return kept;
}

std::vector<std::string> cdi_names(std::string_view specifications, const std::vector<std::string>& gpu_ids) {
  std::vector<std::string> names;
  for (const std::string& id : gpu_ids) {
    if (specifications.find(kCdiKind) == std::string_view::npos || !names_device(specifications, id)) return {};
    names.push_back(std::string(kCdiKind) + "=" + id);
  }
  return names;
}

}  // namespace dtrain::job
