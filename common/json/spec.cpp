// A job spec as JSON, in the words of a job file, so that the output of `describe` can be compared with the file.
#include <yaml-cpp/yaml.h>

#include <charconv>

#include "common/job/job_yaml.h"
#include "common/json/answers.h"

namespace dtrain::json {
namespace {

Json scalar_json(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;  // was quoted
  if (text == "true" || text == "false") return text == "true";
  std::int64_t number = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (wrong == std::errc() && end == text.data() + text.size()) return number;
  return text;
}

Json node_json(const YAML::Node& node) {
  if (node.IsMap()) {
    Json object = Json::object();
    for (const auto& entry : node) object[entry.first.Scalar()] = node_json(entry.second);
    return object;
  }
  if (node.IsSequence()) {
    Json array = Json::array();
    for (const auto& element : node) array.push_back(node_json(element));
    return array;
  }
  return node.IsScalar() ? scalar_json(node) : Json(nullptr);
}

}  // namespace

Json of_spec(const job::JobSpec& spec) {
  try {
    Json json = node_json(YAML::Load(job::to_yaml(spec))["spec"]);
    if (!spec.package_digest.empty()) json["packageDigest"] = spec.package_digest;
    return json;
  } catch (const YAML::Exception&) {
    return nullptr;  // an agent sent a spec that no job file can express
  }
}

}  // namespace dtrain::json
