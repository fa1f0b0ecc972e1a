#include "tests/unit/job/support.h"

#include <gtest/gtest.h>

namespace dtrain::job::testing {

std::string job_text(const std::string& roles, const std::string& rest, const std::string& framework) {
  return "apiVersion: dtrain/v1\nkind: Job\nmetadata: {name: x}\nspec:\n  framework: " + framework + "\n  roles:\n" + roles + "\n" + rest +
         "\n";
}

ParsedJob parse(const std::string& text) {
  ParseOptions options;
  options.file_name = "f.yaml";
  return parse_manifest(text, options);
}

JobSpec parse_good(const std::string& text) {
  const ParsedJob job = parse(text);
  for (const auto& error : job.errors) ADD_FAILURE() << error.text();
  return job.spec;
}

std::vector<std::string> error_lines(const std::string& text) {
  std::vector<std::string> out;
  for (const auto& error : parse(text).errors) out.push_back(error.text());
  return out;
}

ClusterView view_of(const JobSpec& spec) {
  ClusterView view;
  view.job_name = spec.name;
  view.job = 7;
  view.generation = 1;
  for (const auto& [name, role] : spec.roles)
    for (std::uint32_t i = 0; i < role.replicas; ++i) view.tasks[{name, i}] = {"10.0.0.1", 0};
  std::uint16_t port = 20000;
  for (auto& entry : view.tasks) entry.second.port = port++;
  return view;
}

}  // namespace dtrain::job::testing
