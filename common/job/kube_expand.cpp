// $(NAME) in commands, arguments and values, as third_party/forked/golang/expansion of Kubernetes expands it: $$ is $, unknown names
// stay, ${NAME} and $NAME are the shell's. What only the placement knows becomes a template; all other text stays literal.
#include <algorithm>
#include <optional>

#include "common/base/limits.h"
#include "common/job/cluster_spec.h"
#include "common/job/framework.h"
#include "common/job/kube_job.h"
#include "common/job/templates.h"
#include "common/job/text.h"

namespace dtrain::job {

namespace {

struct Piece {
  bool is_template = false;
  std::string text;
};
using Pieces = std::vector<Piece>;

// A text grows with every variable that names another twice.
constexpr std::size_t kExpandedTextBytes = limits::kArgumentBytes;

class Expander {
 public:
  explicit Expander(std::set<std::string> of_framework) : of_framework_(std::move(of_framework)) {}

  void define(const std::string& name, Pieces value) { values_[name] = std::move(value); }
  bool met_unknown() const { return unknown_; }  // some $(NAME) stands as it was written

  Pieces expand(std::string_view text, bool framework) const {
    Pieces out;
    std::size_t at = 0;
    while (at < text.size()) {
      const std::size_t dollar = text.find('$', at);
      literal(out, text.substr(at, dollar - at));
      if (dollar == std::string_view::npos) break;
      at = dollar + 1;
      if (text.substr(at).starts_with('$')) {
        literal(out, "$");
        ++at;
        continue;
      }
      const std::size_t end = text.substr(at).starts_with('(') ? text.find(')', at) : std::string_view::npos;
      if (end == std::string_view::npos) {
        literal(out, "$");
        continue;
      }
      add_variable(out, std::string(text.substr(at + 1, end - at - 1)), framework);
      at = end + 1;
    }
    return out;
  }

 private:
  static void literal(Pieces& out, std::string_view text) {
    if (text.empty()) return;
    if (out.empty() || out.back().is_template) out.push_back({});
    out.back().text += text;
  }
  static std::size_t size_of(const Pieces& pieces) {
    std::size_t bytes = 0;
    for (const Piece& piece : pieces) bytes += piece.text.size();
    return bytes;
  }

  void add_variable(Pieces& out, const std::string& name, bool framework) const {
    const auto own = values_.find(name);
    if (own != values_.end() && size_of(out) <= kExpandedTextBytes) {
      for (const Piece& piece : own->second) {
        if (piece.is_template) out.push_back(piece);
        else literal(out, piece.text);
      }
    } else if (own == values_.end() && framework && of_framework_.contains(name)) {
      out.push_back({true, "{env:" + name + "}"});
    } else {
      unknown_ = true;
      literal(out, "$(" + name + ")");
    }
  }

  std::set<std::string> of_framework_;
  std::map<std::string, Pieces> values_;
  mutable bool unknown_ = false;
};

// As a text with templates; nullopt where braces around a template would make it a literal.
std::optional<std::string> template_of(const Pieces& pieces) {
  std::string out;
  for (const Piece& piece : pieces) out += piece.is_template ? piece.text : escape_templates(piece.text);
  Pieces back;
  for (const TemplatePiece& piece : split_templates(out)) {
    if (piece.is_template) back.push_back({true, "{" + std::string(piece.text) + "}"});
    else if (back.empty() || back.back().is_template) back.push_back({false, std::string(piece.text)});
    else back.back().text += piece.text;
  }
  const auto same = [](const Piece& a, const Piece& b) { return a.is_template == b.is_template && a.text == b.text; };
  return std::ranges::equal(pieces, back, same) ? std::optional(out) : std::nullopt;
}

// The names of the variables that the framework sets for tasks of this role.
std::set<std::string> variables_of_framework(const JobSpec& spec, const std::string& role) {
  constexpr std::uint32_t kEnoughToTell = 2;  // no rule tells more tasks apart
  ClusterView view;
  for (const auto& [name, of] : spec.roles)
    for (std::uint32_t index = 0; index < std::min(of.replicas, kEnoughToTell); ++index) view.tasks[{name, index}] = {"127.0.0.1", 1};
  std::map<std::string, std::string> env;
  if (view.tasks.contains({role, 0})) rules_of(spec.framework).environment(spec, view, {role, 0}, env);
  std::set<std::string> names{"PYTHONUNBUFFERED"};
  for (const auto& entry : env) names.insert(entry.first);
  return names;
}

Pieces pieces_of(std::string_view template_text) {
  Pieces out;
  for (const TemplatePiece& piece : split_templates(template_text))
    out.push_back({piece.is_template, piece.is_template ? "{" + std::string(piece.text) + "}" : std::string(piece.text)});
  return out;
}

std::string text_of(const KubeText& from, const Pieces& pieces, KubeJob& job) {
  auto text = template_of(pieces);
  if (!text)
    job.notes.refuse("template", from.path,
                     "a variable of the cluster's stands directly in braces, which is how a literal template is written",
                     "put a blank between the braces and $(...)");
  return text.value_or("");
}

Pieces value_of(const KubeText& variable, const Expander& expander) {
  return variable.template_text.empty() ? expander.expand(variable.text, false) : pieces_of(variable.template_text);
}

std::vector<KubeFiles> escaped(std::vector<KubeFiles> files) {
  for (KubeFiles& of : files) of.path = escape_templates(of.path), of.name = escape_templates(of.name);
  return files;
}

// A service of Kubernetes leads from such a name to the pod; here a task's address is in variables.
void name_pods(const KubeText& of, KubeJob& job) {
  if (job.spec.name.empty()) return;
  for (const auto& entry : job.spec.roles) {
    const std::string pod = job.spec.name + "-" + entry.first + "-";
    for (std::size_t at = of.text.find(pod); at != std::string::npos; at = of.text.find(pod, at + 1)) {
      const std::size_t digits = at + pod.size(), end = std::min(of.text.find_first_not_of("0123456789", digits), of.text.size());
      const std::string_view after = std::string_view(of.text).substr(end);
      const bool host = after.empty() || after[0] == ':' || after[0] == ',' || after.starts_with("." + job.name_space) ||
                        after.starts_with(".svc") || after.starts_with("." + job.spec.name);
      if (end == digits || !host) continue;
      return job.notes.ignore(of.path, "names " + of.text.substr(at, end - at) +
                                           ", which no host resolves: a task finds the others by the variables that its framework has");
    }
  }
}

// What the files hold is read when the task starts.
void name_unknown(const KubeRole& of, const Expander& expander, KubeJob& job) {
  if (!of.files.empty() && expander.met_unknown())
    job.notes.ignore(of.container, "variables from files are not known where $(NAME) is expanded; a shell in the command finds them");
}

// An init container sees its own variables alone where $(NAME) is expanded.
KubeStep step_of(const KubeRole& first, const RoleSpec& role, KubeJob& job) {
  Expander expander({});
  KubeStep out;
  out.name = escape_templates(first.name);
  if (!first.variables.empty()) out.words.emplace_back("env");
  for (const KubeText& variable : first.variables) {
    const Pieces value = value_of(variable, expander);
    out.words.push_back(escape_templates(variable.name) + "=" + text_of(variable, value, job));
    expander.define(variable.name, value);
  }
  for (const KubeText& word : first.words) out.words.push_back(text_of(word, expander.expand(word.text, false), job));
  out.work_dir = escape_templates(first.work_dir);
  out.files = escaped(first.files);
  if (!first.image.empty() && first.image != role.image)
    job.notes.ignore(first.container + ".image",
                     "runs before the command of its task, where that runs, which must have what " + in_quotes(first.image) + " holds");
  name_unknown(first, expander, job);
  return out;
}

}  // namespace

void expand_roles(KubeJob& job) {
  for (auto& [name, pending] : job.roles) {
    RoleSpec& role = job.spec.roles.at(name);
    Expander expander(variables_of_framework(job.spec, name));
    for (const KubeText& variable : pending.variables) {
      const Pieces pieces = value_of(variable, expander);
      role.env[variable.name] = text_of(variable, pieces, job);
      name_pods(variable, job);
      expander.define(variable.name, pieces);
    }
    for (const auto& given : role.env)  // by the reader itself, where the manifest sets nothing else
      if (std::ranges::none_of(pending.variables, [&](const KubeText& v) { return v.name == given.first; }))
        expander.define(given.first, pieces_of(given.second));
    for (const KubeText& word : pending.words) {
      role.command.push_back(text_of(word, expander.expand(word.text, true), job));
      name_pods(word, job);
    }
    name_unknown(pending, expander, job);
    std::vector<KubeStep> steps;
    for (const KubeRole& first : pending.before) steps.push_back(step_of(first, role, job));
    role.command = with_steps(steps, escaped(pending.files), std::move(role.command));
  }
}

}  // namespace dtrain::job
