// Any command: tasks learn of each other only by the templates in their arguments and variables.
#include <algorithm>
#include <initializer_list>

#include "common/job/framework_roles.h"

namespace dtrain::job {
namespace {

// True if any command or env value of the job contains one of the words.
bool mentions(const JobSpec& spec, std::initializer_list<std::string> words) {
  const auto hit = [&](const std::string& text) {
    return std::any_of(words.begin(), words.end(), [&](const std::string& w) { return text.find(w) != std::string::npos; });
  };
  bool any = false;
  const auto look_at = [&](const std::vector<std::string>& command) { any = any || std::ranges::any_of(command, hit); };
  for_each_env(spec, [&](const std::map<std::string, std::string>& env) {
    any = any || std::ranges::any_of(env, [&](const auto& entry) { return hit(entry.second); });
  });
  for (const auto& [name, role] : spec.roles) {
    look_at(role.command);
    for (const RoleOverride& differs : role.overrides) look_at(differs.command);
  }
  return any;
}

bool needs_ports(const JobSpec& spec) { return mentions(spec, {"{hosts:", "{host:", "{ip:", "{port:", "{task.address}", "{task.port}"}); }

bool scales_alone(const JobSpec& spec, const std::string& role) {
  return !spec.policy.collective &&
         !mentions(spec, {"{hosts:" + role, "{host:" + role, "{ip:" + role, "{count:" + role, "{count}", "{task.rank}"});
}

// While a host is cut off, its tasks run on and others take their places, unless a task must not run twice.
void warn_of_two_writers(const JobSpec& spec, std::vector<std::string>& warnings) {
  if (!spec.checkpoint) return;
  const auto guarded = [&](const auto& entry) { return must_not_run_twice(spec, {entry.first, 0}); };
  if (std::ranges::any_of(spec.roles, guarded)) return;  // that role writes them, as far as one can tell
  const std::string role = spec.roles.begin()->first;
  warnings.push_back("spec.checkpoint: if a host is cut off, two " + role + " may write to " + spec.checkpoint->dir +
                     " at once; write exclusive: true for the role that writes checkpoints");
}

}  // namespace

const FrameworkRules kGeneric{.roles = kUsualRoles,
                              .needs_ports = needs_ports,
                              .scales_alone = scales_alone,
                              .check = check_usual_roles,
                              .warn = warn_of_two_writers};

}  // namespace dtrain::job
