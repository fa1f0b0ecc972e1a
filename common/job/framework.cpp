#include "common/job/framework.h"

#include <algorithm>

namespace dtrain::job {
namespace {

constexpr RoleRules kOther;

consteval bool in_order() {
  for (std::size_t i = 0; i < kFrameworks.size(); ++i)
    if (static_cast<std::size_t>(kFrameworks[i].framework) != i) return false;
  return true;
}
static_assert(in_order());

}  // namespace

std::vector<std::string> waiting_command() { return {"sleep", "infinity"}; }

const FrameworkRules& rules_of(Framework framework) { return *kFrameworks.at(static_cast<std::size_t>(framework)).rules; }

std::string_view option_of(const JobSpec& spec, std::string_view name) {
  const auto found = spec.options.find(std::string(name));
  return found == spec.options.end() ? std::string_view() : found->second;
}

const RoleRules& role_rules(Framework framework, std::string_view role) {
  const auto roles = rules_of(framework).roles;
  const auto found = std::ranges::find(roles, role, &RoleRules::name);
  return found == roles.end() ? kOther : *found;
}

}  // namespace dtrain::job
