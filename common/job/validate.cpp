// Rules of a whole job, whoever wrote it. Values are checked even if the parser checked them, because an agent gets
// its spec from a client.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "common/base/limits.h"
#include "common/job/cluster_spec.h"
#include "common/job/container_engine.h"
#include "common/job/file_errors.h"
#include "common/job/framework.h"
#include "common/job/manifest.h"
#include "common/job/manifest_fields.h"
#include "common/job/quantity.h"
#include "common/job/start_order.h"
#include "common/job/templates.h"
#include "common/job/text.h"
#include "common/job/validate_policy.h"
#include "common/job/warm.h"

namespace dtrain::job {

namespace {

constexpr std::size_t kRequiredPaths = 128;  // a host may need some 20 ms to look at each
constexpr std::size_t kDigestBytes = 64;     // BLAKE2b-256 in hex
constexpr std::uint32_t kLastExitCode = 255;
constexpr std::uint32_t kWorkersPerPs = 20;  // beyond, one ps becomes the bottleneck

// The first of the framework's roles for which the rule holds.
template <class Which>
const RoleRules* first_role(Framework framework, Which which) {
  const auto roles = rules_of(framework).roles;
  const auto found = std::ranges::find_if(roles, which);
  return found == roles.end() ? nullptr : &*found;
}

class Rules {
 public:
  explicit Rules(const JobSpec& spec) : spec_(spec) {}

  std::vector<FileError> check() {
    TextCheck texts{*this};
    const_cast<JobSpec&>(spec_).fields(texts);        // fields() is shared with the decoder; it only reads here
    if (!errors_.empty()) return std::move(errors_);  // messages would quote the invalid text
    names();
    job_fields();
    roles();
    rules_of(spec_.framework).check(spec_, errors_);
    check_policy(spec_, errors_);
    return std::move(errors_);
  }

 private:
  // Every text of the spec, found through fields(), so that a new field cannot be forgotten.
  struct TextCheck {
    Rules& rules;
    template <class T>
    void operator()(const char* name, std::vector<T>& values) const {
      for (auto& value : values) (*this)(name, value);
    }
    template <class T>
    void operator()(const char* name, std::map<std::string, T>& values) const {
      for (auto& [key, value] : values) {
        (*this)(name, key);
        (*this)(name, value);
      }
    }
    template <class T>
    void operator()(const char* name, std::optional<T>& value) const {
      if (value) (*this)(name, *value);
    }
    template <class T>
    void operator()(const char* name, T& value, wire::Since) const {
      (*this)(name, value);
    }
    template <class T>
    void operator()(const char* name, T& value) const {
      if constexpr (std::is_same_v<std::remove_const_t<T>, std::string>) {
        if (!is_utf8(value) || value.find('\0') != std::string::npos)
          rules.add("syntax", std::string("spec.") + name, "must be UTF-8 text without NUL");
      } else if constexpr (requires { value.fields(*this); }) {
        value.fields(*this);
      }
    }
  };

  // One more than is ever shown, so that FileErrors can say that there are more. The search for near words stops here, too.
  bool full() const { return errors_.size() > kReportedMistakes; }
  void add(std::string code, std::string path, std::string message, std::string next = "") {
    if (full()) return;
    errors_.push_back({std::move(code), "", 0, std::move(path), std::move(message), std::move(next)});
  }

  void names() {
    constexpr std::string_view kNameForm = "must be lower-case letters, digits and inner dashes, at most ";
    if (spec_.name.empty() && spec_.generate_name.empty())
      add("missing", "metadata.name", "is required: the name of the job", "or give generateName, a prefix");
    if (!spec_.name.empty() && !is_job_name(spec_.name))
      add("out-of-range", "metadata.name",
          std::string(kNameForm) + std::to_string(limits::kNameBytes) + " bytes, not " + in_quotes(spec_.name));
    const std::size_t longest = limits::kNameBytes - kGeneratedSuffixBytes;
    const std::string& prefix = spec_.generate_name;
    if (!prefix.empty() && (prefix.size() > longest || !is_job_name(prefix + "0")))
      add("out-of-range", "metadata.generateName", std::string(kNameForm) + std::to_string(longest) + " bytes, not " + in_quotes(prefix));
    check_labels("metadata.labels", spec_.labels);
  }

  void check_labels(const std::string& path, const std::map<std::string, std::string>& labels) {
    for (const auto& [name, value] : labels) {
      if (!is_label_name(name))
        add("out-of-range", join_path(path, name),
            "a label's name must be letters, digits and inner - _ . /, at most " + std::to_string(kLabelBytes) + " bytes, not " +
                in_quotes(name));
      if (value.size() > kLabelBytes)
        add("limit", join_path(path, name), "a label's value must have at most " + std::to_string(kLabelBytes) + " bytes");
    }
  }

  void job_fields() {
    if (!rules_of(spec_.framework).built) {
      const std::string_view lacks = rules_of(spec_.framework).lacks;
      std::vector<std::string> built;
      for (const FrameworkLine& line : kFrameworks)
        if (line.rules->built) built.emplace_back(line.name);
      add("unsupported", "spec.framework",
          "this version supports " + one_of(built, "and") + ", not " + std::string(to_string(spec_.framework)) +
              (lacks.empty() ? "" : ": it has no " + std::string(lacks)),
          "generic runs any command, with templates for its arguments");
    }
    const auto hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
    for (const std::string& digest : {spec_.package_digest, spec_.package_content})
      if (!digest.empty() && (digest.size() != kDigestBytes || !std::all_of(digest.begin(), digest.end(), hex)))
        add("out-of-range", "spec.package", "its digest must be " + std::to_string(kDigestBytes) + " hex digits, not " + in_quotes(digest));
    check_work_dir("spec.workDir", spec_.work_dir);
    check_env("spec.env", spec_.env);
    check_options();
    check_paths("spec.requires.paths", spec_.require_paths);
    check_paths("spec.requires.directories", spec_.make_dirs);
  }

  void check_paths(const std::string& path, const std::vector<std::string>& paths) {
    if (paths.size() > kRequiredPaths)
      add("limit", path, "must be at most " + std::to_string(kRequiredPaths) + " paths", "require the directories above them");
    for (std::size_t i = 0; i < std::min(paths.size(), kRequiredPaths); ++i)
      if (!paths[i].starts_with('/')) add("out-of-range", item_path(path, i), "must be an absolute path, not " + in_quotes(paths[i]));
  }

  void check_options() {
    const auto rules = rules_of(spec_.framework).options;
    std::vector<std::string> known;
    for (const OptionRule& rule : rules) known.emplace_back(rule.name);
    for (const auto& [name, value] : spec_.options) {
      const std::string at = join_path("spec.options", name);
      const auto rule = std::ranges::find(rules, name, &OptionRule::name);
      if (rule == rules.end())
        add("unknown-key", at, "a " + std::string(to_string(spec_.framework)) + " job has no option " + in_quotes(name),
            known.empty() ? "leave it out" : "its options are " + one_of(known, "and"));
      else if (!rule->words.empty() && std::ranges::find(rule->words, value) == rule->words.end())
        add("out-of-range", at, "must be " + one_of({rule->words.begin(), rule->words.end()}) + ", not " + in_quotes(value));
    }
  }

  void check_work_dir(const std::string& path, const std::string& dir) {
    if (dir.empty()) add("out-of-range", path, "must be a directory, not empty", "leave it out for the package's root");
    if (dir.starts_with('/')) return;
    for (std::string_view rest = dir; !rest.empty();) {
      const std::size_t slash = rest.find('/');
      if (rest.substr(0, slash) == "..")
        return add("out-of-range", path, "must stay inside the package, not " + in_quotes(dir), "or give an absolute path");
      rest = slash == std::string_view::npos ? std::string_view() : rest.substr(slash + 1);
    }
  }

  void check_env(const std::string& path, const std::map<std::string, std::string>& env) {
    for (const auto& [name, value] : env) {
      const std::string at = join_path(path, name);
      if (name.empty() || name.size() > kVariableNameBytes || name.find('=') != std::string::npos)
        add("out-of-range", at,
            "a variable's name must have 1 to " + std::to_string(kVariableNameBytes) + " bytes and no =, not " + in_quotes(name));
      if (name.size() + value.size() + 2 > limits::kArgumentBytes)
        add("limit", at, "has more than " + std::to_string(limits::kArgumentBytes) + " bytes with its name", "pass it through a file");
      check_templates(at, value);
    }
  }

  void check_templates(const std::string& path, const std::string& text) {
    std::vector<std::string> all = unknown_templates(text, spec_);
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    for (const auto& unknown : all) {
      if (full()) return;
      const std::string_view name = std::string_view(unknown).substr(1, unknown.size() - 2);
      const std::string near = nearest(name, known_template_names(spec_));
      std::string message = "unknown template " + in_quotes(unknown);
      if (name == "checkpoint.dir") message += ": the job has no spec.checkpoint";
      else if (const auto parsed = parse_template_name(name); parsed && !parsed->role.empty() && !has_role(spec_, parsed->role))
        message += ": the job has no role " + in_quotes(parsed->role);
      else if (parsed && !parsed->role.empty())
        message += parsed->index < spec_.roles.at(std::string(parsed->role)).replicas ? ": the role may shrink to fewer tasks (minReplicas)"
                                                                                      : ": the role has fewer tasks";
      if (!near.empty()) message += "; did you mean {" + near + "}?";
      add("template", path, std::move(message), "write {" + unknown + "} for the literal text");
    }
  }

  void roles() {
    if (spec_.roles.empty())
      return add("missing", "spec.roles", "is required: at least one role, such as {worker: {command: [python3, train.py]}}");
    if (spec_.roles.size() > limits::kRolesPerJob)
      return add("limit", "spec.roles", "must be at most " + std::to_string(limits::kRolesPerJob) + " roles");
    for (const auto& [name, role] : spec_.roles) check_role(join_path("spec.roles", name), name, role);
    if (total_replicas(spec_) > limits::kTasksPerJob)
      add("limit", "spec.roles",
          "all roles together must have at most " + std::to_string(limits::kTasksPerJob) + " replicas, not " +
              std::to_string(total_replicas(spec_)));
    check_ends();
    if (const auto cycle = find_start_cycle(spec_); !cycle.empty()) {
      std::string circle;
      for (const auto& role : cycle) circle += (circle.empty() ? "" : " after ") + role;
      add("conflict", "spec.roles." + cycle.front() + ".startAfter", "roles wait for each other: " + circle,
          "the default order is " + default_order() + "; {} waits for nothing");
    }
  }

  void check_ends() {
    const auto ends = [&](const auto& entry) { return role_rules(spec_.framework, entry.first).ends; };
    if (std::ranges::any_of(spec_.roles, ends)) return;
    constexpr std::string_view kVowels = "aeiou";
    std::vector<std::string> never, some;
    for (const RoleRules& role : rules_of(spec_.framework).roles)
      if (!role.ends) never.push_back((kVowels.find(role.name.front()) == std::string_view::npos ? "a " : "an ") + std::string(role.name));
    for (const auto rule : {&RoleRules::works, &RoleRules::leads})
      if (const RoleRules* role = first_role(spec_.framework, rule)) some.emplace_back(role->name);
    add("missing", "spec.roles", "needs a role whose end ends the job: " + one_of(never) + " never does", "add " + one_of(some));
  }

  std::string default_order() const {
    std::string out;
    for (std::uint8_t start = 0; start < RoleRules{}.start; ++start)
      if (const RoleRules* role = first_role(spec_.framework, [&](const RoleRules& r) { return r.start == start; }))
        out += std::string(role->name) + ", ";
    return out + "all others";
  }

  void check_role(const std::string& path, const std::string& name, const RoleSpec& role) {
    if (!is_role_name(name))
      add("out-of-range", path,
          "a role's name must be lower-case letters and digits, a letter first, at most " + std::to_string(limits::kRoleNameBytes) +
              " bytes, not " + in_quotes(name));
    const std::uint32_t most = role_rules(spec_.framework, name).most;
    if (role.replicas < 1 || role.replicas > most)
      add("out-of-range", join_path(path, "replicas"),
          most == 1 ? "must be 1: a job has at most one " + name + ", not " + std::to_string(role.replicas)
                    : "must be a whole number from 1 to " + std::to_string(most) + ", not " + std::to_string(role.replicas));
    else if (role.min_replicas < 1 || role.min_replicas > role.replicas)
      add("out-of-range", join_path(path, "minReplicas"),
          "must be from 1 to replicas (" + std::to_string(role.replicas) + "), not " + std::to_string(role.min_replicas));
    check_command(join_path(path, "command"), role.command);
    check_env(join_path(path, "env"), role.env);
    if (!role.work_dir.empty()) check_work_dir(join_path(path, "workDir"), role.work_dir);
    if (!is_image_name(role.image))
      add("out-of-range", join_path(path, "image"),
          "must be the name of an image such as docker.io/library/python:3.11, not " + in_quotes(role.image));
    check_resources(join_path(path, "resources"), role.resources);
    check_labels(join_path(path, "nodeSelector"), role.node_selector);
    if (!is_label_name(role.anti_affinity))
      add("out-of-range", join_path(path, "antiAffinity"), "must be none, host or a label's name, not " + in_quotes(role.anti_affinity));
    for (const auto& entry : role.start_after) check_start_after(join_path(path, "startAfter"), name, entry.first);
    if (is_exclusive_role(spec_.framework, name) && !role.exclusive)
      add("conflict", join_path(path, "exclusive"), "cannot be false: two of the same " + name + " would damage the training",
          "leave it out");
    if (role.exclusive && role.on_disconnect == OnDisconnect::replace)
      add("conflict", join_path(path, "onDisconnect"),
          "cannot be replace: a second one would run beside the first, and the role is exclusive", "use freeze or keep, or leave it out");
    if (!spec_.policy.gang && role.replicas > 1 && !rules_of(spec_.framework).scales_alone(spec_, name))
      add("conflict", "spec.policy.gang",
          "cannot be false: the tasks of " + name + " are told how many they are, or where, and so begin together",
          "leave it out; with minReplicas a job goes on with fewer tasks");
    if (role.nproc_per_node > limits::kRanksPerTask)
      add("limit", join_path(path, "nprocPerNode"), "must be at most " + std::to_string(limits::kRanksPerTask));
    if (role.nproc_per_node > 0 && !rules_of(spec_.framework).ranks_in_tasks)
      add("conflict", join_path(path, "nprocPerNode"),
          "has no meaning for a " + std::string(to_string(spec_.framework)) + " job, whose tasks are one process each",
          "use framework: pytorch, or leave it out");
    check_span(join_path(path, "watchdog"), role.watchdog, errors_);
    check_span(join_path(path, "startTimeout"), role.start_timeout, errors_);
    check_span(join_path(path, "runTimeout"), role.run_timeout, errors_);
    check_retry_codes(join_path(path, "retryExitCodes"), role);
    check_overrides(join_path(path, "overrides"), role);
    check_signal(join_path(path, "stopSignal"), role.stop_signal, errors_);
  }

  void check_retry_codes(const std::string& path, const RoleSpec& role) {
    if (role.retry_codes.empty()) return;
    if (role.restart_policy != RestartPolicy::exit_code)
      add("conflict", path, "has no meaning with restartPolicy: " + std::string(word_for(role.restart_policy)),
          "write restartPolicy: ExitCode, or leave it out");
    if (role.retry_codes.size() > limits::kRetryExitCodes)
      add("limit", path, "must have at most " + std::to_string(limits::kRetryExitCodes) + " entries", "write ranges such as 64-78");
    for (std::size_t i = 0; i < std::min<std::size_t>(role.retry_codes.size(), limits::kRetryExitCodes); ++i)
      if (const ExitCodes& codes = role.retry_codes[i]; codes.first < 1 || codes.last > kLastExitCode)
        add("out-of-range", item_path(path, i),
            "must be exit codes from 1 to " + std::to_string(kLastExitCode) + ", not " + format_range(codes.first, codes.last),
            "a death by signal n is 128 + n");
  }

  void check_overrides(const std::string& path, const RoleSpec& role) {
    if (role.overrides.size() > limits::kOverridesPerRole)
      return add("limit", path, "must have at most " + std::to_string(limits::kOverridesPerRole) + " entries", "write ranges such as 0-7");
    std::map<std::uint32_t, std::uint32_t> taken;  // last index -> first
    for (const RoleOverride& differs : role.overrides) {
      const std::string at = join_path(path, format_range(differs.first, differs.last));
      const auto next = taken.lower_bound(differs.first);
      if (next != taken.end() && next->second <= differs.last)
        add("conflict", at, "names a task that " + format_range(next->second, next->first) + " names, too", "give each task one entry");
      taken[differs.last] = differs.first;
      if (!differs.command.empty()) check_command(join_path(at, "command"), differs.command);
      check_env(join_path(at, "env"), differs.env);
    }
  }

  void check_command(const std::string& path, const std::vector<std::string>& command) {
    if (command.empty()) return add("missing", path, "is required: what each task runs, such as [python3, train.py]");
    if (command.front().empty()) add("out-of-range", item_path(path, 0), "must be a program, not empty");
    std::size_t total = 0;
    for (std::size_t i = 0; i < command.size(); ++i) {
      total += command[i].size() + 1;
      if (command[i].size() >= limits::kArgumentBytes)
        add("limit", item_path(path, i), "has " + std::to_string(limits::kArgumentBytes) + " bytes or more", "pass it through a file");
      check_templates(item_path(path, i), command[i]);
    }
    if (total > limits::kArgumentsTotalBytes)
      add("limit", path, "has more than " + std::to_string(limits::kArgumentsTotalBytes) + " bytes", "pass it through a file");
  }

  void check_resources(const std::string& path, const Resources& resources) {
    if (resources.cpu_millis > kMostCpuMillis)
      add("out-of-range", join_path(path, "cpus"), "must be at most " + format_cpus(kMostCpuMillis));
    if (resources.memory_bytes > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      add("out-of-range", join_path(path, "memory"), "must be less than 8Ei");
    if (!resources.gpu_model.empty() && resources.gpus == 0)
      add("conflict", join_path(path, "gpuModel"), "asks for a model of GPU, but gpus is 0", "set gpus");
  }

  void check_start_after(const std::string& path, const std::string& self, const std::string& other) {
    if (other == self) return add("conflict", join_path(path, other), "a role cannot start after itself");
    if (has_role(spec_, other) || full()) return;
    std::vector<std::string> known;
    for (const auto& entry : spec_.roles)
      if (entry.first != self) known.push_back(entry.first);
    const std::string near = nearest(other, known);
    add("out-of-range", join_path(path, other), "the job has no role " + in_quotes(other),
        near.empty() ? "" : "did you mean " + in_quotes(near) + "?");
  }

  const JobSpec& spec_;
  std::vector<FileError> errors_;
};

}  // namespace

std::vector<FileError> validate(const JobSpec& spec) { return Rules(spec).check(); }

std::vector<std::string> warnings_about(const JobSpec& spec) {
  std::vector<std::string> out;
  const RoleRules* serves = first_role(spec.framework, &RoleRules::serves);
  const RoleRules* works = first_role(spec.framework, &RoleRules::works);
  const auto replicas = [&](const RoleRules* role) {
    return role != nullptr && has_role(spec, role->name) ? spec.roles.at(std::string(role->name)).replicas : 0;
  };
  const std::uint32_t servers = replicas(serves), workers = replicas(works);
  if (servers > 0 && workers > servers * kWorkersPerPs) {
    const std::string server(serves->name), plural = std::string(works->name) + "s";
    out.push_back(std::to_string(workers) + " " + plural + " on " + std::to_string(servers) + " " + server + ": more than " +
                  std::to_string(kWorkersPerPs) + " " + plural + " for each " + server + " wait for it most of the time");
  }
  if (spec.checkpoint && spec.checkpoint->replicas > 1)
    out.push_back(
        "spec.checkpoint.replicas: this version keeps checkpoints where the job writes them and makes no "
        "copies");
  if (spec.policy.signal_before_deadline && !spec.policy.active_deadline)
    out.push_back("spec.policy.signalBeforeDeadline: without activeDeadlineSeconds it is never sent");
  for (const auto& [name, role] : spec.roles)
    if (!role.warm.empty() && role.warm.front() != kWarmNone && python_target(role.command) == 0)
      out.push_back("spec.roles." + name + ".warm: its command is not python3 with a script or a module, so nothing can stand by for it");
  rules_of(spec.framework).warn(spec, out);
  return out;
}

}  // namespace dtrain::job
