// A job file, or a manifest of another system, of any bytes: answered without a crash and within the limits; what is accepted must hold its
// own rules, be read back from its own YAML as the same spec, and render for every task.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/base/check.h"
#include "common/job/cluster_spec.h"
#include "common/job/job_file.h"
#include "common/job/job_yaml.h"
#include "common/job/manifest.h"
#include "common/job/text.h"
#include "common/wire/codec.h"

namespace {

using namespace dtrain;

constexpr std::uint32_t kRenderedTasks = 50;  // of a job; the rest would only cost time

// What the client adds to the text is hostile, too: a first line "#set PATH=VALUE" is taken for --set.
job::ParseOptions options_of(std::string_view text) {
  constexpr std::string_view kSet = "#set ";
  job::ParseOptions options;
  options.params = {{"a", "1"}, {"b", "${param:a}"}};
  if (!text.starts_with(kSet)) return options;
  const std::string_view line = text.substr(kSet.size(), text.find('\n') - kSet.size());
  const std::size_t equals = line.find('=');
  if (equals != std::string_view::npos) options.sets.emplace_back(line.substr(0, equals), line.substr(equals + 1));
  return options;
}

void render_some(const job::JobSpec& spec) {
  job::ClusterView view;
  view.job_name = spec.name;
  std::uint16_t port = 20000;
  for (const auto& [name, role] : spec.roles)
    for (std::uint32_t i = 0; i < role.replicas && view.tasks.size() < kRenderedTasks; ++i) view.tasks[{name, i}] = {"127.0.0.1", port++};
  for (const auto& entry : view.tasks) {
    job::TaskView task;
    task.task = entry.first;
    const auto rendered = job::render(spec, view, task);
    // Names were checked at submit. Beyond the cut above a {host:R:I} may be missing; sizes depend on the
    // values.
    if (!rendered && view.tasks.size() < kRenderedTasks) CHECK(rendered.error().code == ErrorCode::limit);
    (void)job::is_stateful(spec, entry.first);
    (void)job::is_exclusive(spec, entry.first);
  }
}

// As dtrainctl reads it: also manifests of other systems, and several documents.
void read_as_file(std::string_view text) {
  wire::ManifestSettings settings;
  settings.volumes = {{"claim", "/claim"}};
  settings.image_fallback = true;
  (void)job::needs_settings(text);
  const job::JobFile file = job::read_job_file(text, options_of(text), settings);
  for (const auto& error : file.errors) {
    CHECK(!error.message.empty());
    CHECK(job::is_utf8(error.text()));
  }
  if (!file.errors.empty()) return;
  const job::JobFile back = job::read_job_file(job::to_job_file(file), {}, {});
  CHECK(back.errors.empty());
  CHECK(back.jobs.size() == file.jobs.size());
  for (std::size_t i = 0; i < file.jobs.size(); ++i) {
    CHECK(job::validate(file.jobs[i].spec).empty());
    CHECK(wire::encode(back.jobs[i].spec) == wire::encode(file.jobs[i].spec));
    render_some(file.jobs[i].spec);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read_as_file(text);
  const job::ParsedJob parsed = job::parse_manifest(text, options_of(text));
  for (const auto& error : parsed.errors) {
    CHECK(!error.message.empty());
    CHECK(job::is_utf8(error.text()));
  }
  CHECK(parsed.errors.size() <= job::kReportedMistakes + 1);
  if (!parsed.errors.empty()) return 0;
  CHECK(job::validate(parsed.spec).empty());
  const job::ParsedJob back = job::parse_manifest(job::to_yaml(parsed.spec), {});
  CHECK(back.errors.empty());
  CHECK(wire::encode(back.spec) == wire::encode(parsed.spec));
  render_some(parsed.spec);
  return 0;
}
