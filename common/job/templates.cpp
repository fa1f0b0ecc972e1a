#include "common/job/templates.h"

#include <algorithm>
#include <array>

#include "common/base/limits.h"
#include "common/job/framework_roles.h"
#include "common/job/text.h"

namespace dtrain::job {

namespace {

using NameKind = TemplateName::Kind;

constexpr std::string_view kAllTasks = "count";  // the only name without one of the prefixes
constexpr std::string_view kVariable = "env:";
constexpr std::array<std::string_view, 11> kPrefixes{"hosts:", "host:", "ip:",      "count:",      "port:",  "job.",
                                                     "task.",  "work.", "package.", "checkpoint.", kVariable};
constexpr std::array<std::pair<std::string_view, NameKind>, 15> kPlainNames{{{kAllTasks, NameKind::count_all},
                                                                             {"job.name", NameKind::job_name},
                                                                             {"job.generation", NameKind::job_generation},
                                                                             {"task.name", NameKind::task_name},
                                                                             {"task.type", NameKind::task_type},
                                                                             {"task.index", NameKind::task_index},
                                                                             {"task.rank", NameKind::task_rank},
                                                                             {"task.address", NameKind::task_address},
                                                                             {"task.host", NameKind::task_host},
                                                                             {"task.port", NameKind::task_port},
                                                                             {"work.dir", NameKind::work_dir},
                                                                             {"package.dir", NameKind::package_dir},
                                                                             {"checkpoint.dir", NameKind::checkpoint_dir},
                                                                             {"checkpoint.path", NameKind::checkpoint_path},
                                                                             {"checkpoint.step", NameKind::checkpoint_step}}};
constexpr std::array<std::pair<std::string_view, NameKind>, 3> kRoleNames{
    {{"hosts:", NameKind::hosts}, {"count:", NameKind::count}, {"port:", NameKind::port}}};
// Followed by a role and an index.
constexpr std::array<std::pair<std::string_view, NameKind>, 2> kTaskNames{{{"host:", NameKind::host}, {"ip:", NameKind::ip}}};
constexpr std::size_t kIndexDigits = 5;  // limits::kTasksPerJob

// The name of the template that starts at text[0] == '{', or empty when these braces are literal.
std::string_view name_at(std::string_view text) {
  const std::size_t end = text.find_first_of("{} \t\r\n\"'", 1);
  if (end == std::string_view::npos || text[end] != '}') return {};
  const std::string_view name = text.substr(1, end - 1);
  const bool known =
      name == kAllTasks || std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](std::string_view p) { return name.starts_with(p); });
  return known ? name : std::string_view();
}

std::string braced(std::string_view name) { return "{" + std::string(name) + "}"; }

const TaskAddress* address_of(const ClusterView& cluster, const TaskId& task) {
  const auto found = cluster.tasks.find(task);
  return found == cluster.tasks.end() ? nullptr : &found->second;
}

std::string join_addresses(const ClusterView& cluster, std::string_view role) {
  std::string out;
  for (const auto& [task, address] : cluster.tasks) {
    if (task.role != role) continue;
    if (!out.empty()) out += ',';
    out += address.text();
  }
  return out;
}

std::size_t count_tasks(const ClusterView& cluster, std::string_view role) {
  return static_cast<std::size_t>(
      std::count_if(cluster.tasks.begin(), cluster.tasks.end(), [&](const auto& entry) { return entry.first.role == role; }));
}

bool is_known(const TemplateName& name, const JobSpec& spec) {
  switch (name.kind) {
    case NameKind::hosts:
    case NameKind::host:
    case NameKind::ip:
    case NameKind::count:
    case NameKind::port: {
      const auto role = spec.roles.find(std::string(name.role));
      return role != spec.roles.end() && name.index < role->second.replicas;
    }
    case NameKind::checkpoint_dir: return spec.checkpoint.has_value();
    default: return true;
  }
}

// A shrunk job has no such task at present.
bool may_be_left_out(const TemplateName& name, const JobSpec& spec) {
  if (name.kind != NameKind::host && name.kind != NameKind::ip) return false;
  const std::uint32_t least = spec.roles.at(std::string(name.role)).min_replicas;
  return least != 0 && name.index >= least;
}

// nullopt: the generation has no such task.
std::optional<std::string> value_of(const TemplateName& name, const JobSpec& spec, const ClusterView& cluster, const TaskView& view) {
  const auto text_of = [](const TaskAddress* a) { return a ? std::optional(a->text()) : std::nullopt; };
  const auto ip_of = [](const TaskAddress* a) { return a ? std::optional(a->host) : std::nullopt; };
  const auto port_of = [](const TaskAddress* a) { return a ? std::optional(std::to_string(a->port)) : std::nullopt; };
  const TaskAddress* own = address_of(cluster, view.task);
  switch (name.kind) {
    case NameKind::hosts: return join_addresses(cluster, name.role);
    case NameKind::host: return text_of(address_of(cluster, {std::string(name.role), name.index}));
    case NameKind::ip: return ip_of(address_of(cluster, {std::string(name.role), name.index}));
    case NameKind::count_all: return std::to_string(cluster.tasks.size());
    case NameKind::count: return std::to_string(count_tasks(cluster, name.role));
    case NameKind::port: return port_of(name.role == view.task.role ? own : address_of(cluster, {std::string(name.role), 0}));
    case NameKind::job_name: return cluster.job_name;
    case NameKind::job_generation: return std::to_string(cluster.generation);
    case NameKind::task_name: return view.task.text();
    case NameKind::task_type: return view.task.role;
    case NameKind::task_index: return std::to_string(view.task.index);
    case NameKind::task_rank: return std::to_string(rank_of(spec, cluster, view.task));
    case NameKind::task_address: return text_of(own);
    case NameKind::task_host: return ip_of(own);
    case NameKind::task_port: return port_of(own);
    case NameKind::work_dir: return view.work_dir;
    case NameKind::package_dir: return view.package_dir;
    case NameKind::checkpoint_dir: return spec.checkpoint ? spec.checkpoint->dir : "";
    case NameKind::checkpoint_path: return cluster.restore ? cluster.restore->path : "";
    case NameKind::checkpoint_step: return cluster.restore ? std::to_string(cluster.restore->step) : "";
    case NameKind::variable: return "";  // that are the renderer's
  }
  return std::nullopt;
}

}  // namespace

std::vector<TemplatePiece> split_templates(std::string_view text) {
  std::vector<TemplatePiece> pieces;
  std::size_t literal = 0;  // start of the literal that is being read
  const auto end_literal = [&](std::size_t end) {
    if (end > literal) pieces.push_back({false, text.substr(literal, end - literal)});
  };
  for (std::size_t i = text.find('{'); i != std::string_view::npos; i = text.find('{', i)) {
    const std::string_view rest = text.substr(i);
    const std::string_view escaped = rest.starts_with("{{") ? name_at(rest.substr(1)) : std::string_view();
    if (!escaped.empty() && rest.substr(escaped.size() + 3).starts_with('}')) {
      end_literal(i);
      pieces.push_back({false, rest.substr(1, escaped.size() + 2)});
      i += escaped.size() + 4;
      literal = i;
      continue;
    }
    const std::string_view name = name_at(rest);
    if (name.empty()) {
      ++i;
      continue;
    }
    end_literal(i);
    pieces.push_back({true, name});
    i += name.size() + 2;
    literal = i;
  }
  end_literal(text.size());
  return pieces;
}

std::optional<TemplateName> parse_template_name(std::string_view name) {
  for (const auto& [plain, kind] : kPlainNames)
    if (name == plain) return TemplateName{kind, {}, 0};
  for (const auto& [prefix, kind] : kRoleNames)
    if (name.starts_with(prefix) && is_role_name(name.substr(prefix.size()))) return TemplateName{kind, name.substr(prefix.size()), 0};
  if (name.starts_with(kVariable) && is_variable_name(name.substr(kVariable.size())))
    return TemplateName{NameKind::variable, name.substr(kVariable.size()), 0};
  const auto of_task = std::ranges::find_if(kTaskNames, [&](const auto& entry) { return name.starts_with(entry.first); });
  if (of_task == kTaskNames.end()) return std::nullopt;
  name.remove_prefix(of_task->first.size());
  const std::size_t colon = name.find(':');
  if (colon == std::string_view::npos || !is_role_name(name.substr(0, colon))) return std::nullopt;
  const std::string_view digits = name.substr(colon + 1);
  const bool number = !digits.empty() && digits.size() <= kIndexDigits &&
                      std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!number) return std::nullopt;
  return TemplateName{of_task->second, name.substr(0, colon), static_cast<std::uint32_t>(std::stoul(std::string(digits)))};
}

bool has_later_template(std::string_view text) {
  const auto pieces = split_templates(text);
  return std::ranges::any_of(pieces, [](const TemplatePiece& piece) {
    const auto name = piece.is_template ? parse_template_name(piece.text) : std::nullopt;
    return name && (name->kind == NameKind::ip || name->kind == NameKind::count_all || name->kind == NameKind::variable);
  });
}

std::vector<std::string> known_template_names(const JobSpec& spec) {
  std::vector<std::string> out;
  for (const auto& entry : spec.roles) {
    for (const auto& role_name : kRoleNames) out.push_back(std::string(role_name.first) + entry.first);
    for (const auto& task_name : kTaskNames) out.push_back(std::string(task_name.first) + entry.first + ":0");
  }
  for (const auto& [plain, kind] : kPlainNames)
    if (kind != NameKind::checkpoint_dir || spec.checkpoint) out.emplace_back(plain);
  return out;
}

std::string escape_templates(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::string_view name = text[i] == '{' ? name_at(text.substr(i)) : std::string_view();
    if (name.empty()) {
      out += text[i++];
      continue;
    }
    out += "{" + braced(name) + "}";
    i += name.size() + 2;
  }
  return out;
}

std::vector<std::string> unknown_templates(std::string_view text, const JobSpec& spec) {
  std::vector<std::string> unknown;
  for (const auto& piece : split_templates(text)) {
    if (!piece.is_template) continue;
    const auto name = parse_template_name(piece.text);
    if (!name || !is_known(*name, spec) || may_be_left_out(*name, spec)) unknown.push_back(braced(piece.text));
  }
  return unknown;
}

std::uint32_t ranks_of_task(const JobSpec& spec, const TaskId& task) {
  const auto role = spec.roles.find(task.role);
  return role == spec.roles.end() ? 1 : std::max(role->second.nproc_per_node, 1u);
}

std::uint32_t rank_of(const JobSpec& spec, const ClusterView& cluster, const TaskId& task) {
  if (!cluster.tasks.contains(task)) return 0;
  const auto before = [&](const auto& entry) { return comes_before(spec, entry.first, task); };
  return static_cast<std::uint32_t>(std::ranges::count_if(cluster.tasks, before));
}

TemplateRenderer::TemplateRenderer(const JobSpec& spec, const ClusterView& cluster, const TaskView& task, const Variables& variables)
    : spec_(spec), cluster_(cluster), task_(task), variables_(variables) {}

Result<std::string> TemplateRenderer::render(std::string_view text) {
  std::string out;
  for (const auto& piece : split_templates(text)) {
    std::string_view value = piece.text;
    if (piece.is_template) {
      auto known = values_.find(piece.text);
      if (known == values_.end()) {
        const auto name = parse_template_name(piece.text);
        auto found = name && is_known(*name, spec_) ? value_of(*name, spec_, cluster_, task_) : std::nullopt;
        if (found && name->kind == NameKind::variable)
          if (const auto variable = variables_.find(std::string(name->role)); variable != variables_.end()) found = variable->second;
        if (!found)
          return fail(ErrorCode::invalid, "could not render " + in_quotes(text) + ": unknown template " + braced(piece.text),
                      "write {" + braced(piece.text) + "} for the literal text");
        known = values_.emplace(piece.text, std::move(*found)).first;
      }
      value = known->second;
    }
    if (out.size() + value.size() > limits::kArgumentBytes)
      return fail(ErrorCode::limit,
                  "could not render " + in_quotes(text) + ": it has more than " + std::to_string(limits::kArgumentBytes) + " bytes",
                  "pass it through a file");
    out += value;
  }
  return out;
}

Result<std::string> render_template(std::string_view text, const JobSpec& spec, const ClusterView& cluster, const TaskView& task) {
  const TemplateRenderer::Variables none;
  return TemplateRenderer(spec, cluster, task, none).render(text);
}

}  // namespace dtrain::job
