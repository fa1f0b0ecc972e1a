// The grammar of templates: which braces form a template, and what its name means. templates.cpp renders them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/job/cluster_spec.h"
#include "common/job/job_spec.h"

namespace dtrain::job {

// A stretch of text: literal, or what stands between the braces of a template.
struct TemplatePiece {
  bool is_template = false;
  std::string_view text;
};

// The pieces in order. Every template starts with one of the known prefixes; its name may still be unknown.
std::vector<TemplatePiece> split_templates(std::string_view text);

// What a template's name asks for, e.g. "host:ps:0" -> {host, "ps", 0}, "job.name" -> {job_name}.
struct TemplateName {
  enum class Kind : unsigned char {
    hosts,
    host,
    ip,
    count,
    count_all,
    port,
    job_name,
    job_generation,
    task_name,
    task_type,
    task_index,
    task_rank,
    task_address,
    task_host,
    task_port,
    work_dir,
    package_dir,
    checkpoint_dir,
    checkpoint_path,
    checkpoint_step,
    variable,
  };
  Kind kind{};
  std::string_view role;    // of hosts, host, ip, count and port; of variable its name
  std::uint32_t index = 0;  // of host and ip
};
std::optional<TemplateName> parse_template_name(std::string_view name);

// Renders the texts of one task. Each name is looked up once, however often it occurs: a generation may have 10,000
// tasks, and a text may hold as many templates. A result longer than limits::kArgumentBytes is refused.
class TemplateRenderer {
 public:
  using Variables = std::map<std::string, std::string>;
  // Keeps references to all of them. `variables`: what {env:NAME} stands for, the task's variables without those of its job file.
  TemplateRenderer(const JobSpec& spec, const ClusterView& cluster, const TaskView& task, const Variables& variables);
  Result<std::string> render(std::string_view text);

 private:
  const JobSpec& spec_;
  const ClusterView& cluster_;
  const TaskView& task_;
  const Variables& variables_;
  std::map<std::string, std::string, std::less<>> values_;
};

// True if the text holds a template that only programs of version 3 of the ledger render: {ip:R:I}, {count}, {env:NAME}.
bool has_later_template(std::string_view text);

// The names that are valid for this job, for suggestions.
std::vector<std::string> known_template_names(const JobSpec& spec);

// `text` as a template that renders to it.
std::string escape_templates(std::string_view text);

}  // namespace dtrain::job
