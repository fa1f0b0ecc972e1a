#include "tests/unit/job/kube_support.h"

#include <gtest/gtest.h>

#include "tests/unit/job/support.h"

namespace dtrain::job::testing {

JobFile read_file(const std::string& text, const wire::ManifestSettings& settings) {
  ParseOptions options;
  options.file_name = "f.yaml";
  return read_job_file(text, options, settings);
}

ParsedJob one_job(const std::string& text, const wire::ManifestSettings& settings) {
  JobFile file = read_file(text, settings);
  for (const FileError& error : file.errors) ADD_FAILURE() << error.text();
  EXPECT_EQ(file.jobs.size(), 1u);
  return file.jobs.empty() ? ParsedJob{} : std::move(file.jobs.front());
}

std::vector<std::string> errors_of(const std::string& text, const wire::ManifestSettings& settings) {
  std::vector<std::string> out;
  for (const FileError& error : read_file(text, settings).errors) out.push_back(error.text());
  return out;
}

std::string tf_job(const std::string& replica_specs, const std::string& rest) {
  return "apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: reed}\nspec:\n" + rest + "  tfReplicaSpecs:" + replica_specs;
}

Rendered rendered(const JobSpec& spec, const TaskId& task) {
  TaskView own;
  own.task = task;
  own.node = "gpu1";
  const auto out = render(spec, view_of(spec), own);
  EXPECT_TRUE(out) << (out ? "" : out.error().text());
  return out.value_or(Rendered{});
}

}  // namespace dtrain::job::testing
