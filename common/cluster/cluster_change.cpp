#include "common/cluster/cluster_change.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace dtrain::cluster {
namespace {

// Does any command or env value of the job contain one of the words?
bool mentions(const job::JobSpec& spec, std::initializer_list<std::string> words) {
  const auto hit = [&](const std::string& text) {
    return std::any_of(words.begin(), words.end(),
                       [&](const std::string& w) { return text.find(w) != std::string::npos; });
  };
  const auto any_value = [&](const std::map<std::string, std::string>& env) {
    return std::any_of(env.begin(), env.end(), [&](const auto& e) { return hit(e.second); });
  };
  if (any_value(spec.env)) return true;
  return std::any_of(spec.roles.begin(), spec.roles.end(), [&](const auto& entry) {
    const job::RoleSpec& role = entry.second;
    return any_value(role.env) || std::any_of(role.command.begin(), role.command.end(), hit);
  });
}

}  // namespace

bool scales_alone(const job::JobSpec& spec, const std::string& role) {
  if (spec.framework == job::Framework::tensorflow)
    return spec.policy.enable_dynamic_worker && role == "worker";
  if (spec.framework != job::Framework::generic) return false;
  return !mentions(spec, {"{hosts:" + role, "{host:" + role, "{count:" + role, "{task.rank}"});
}

bool needs_ports(const job::JobSpec& spec) {
  if (spec.framework != job::Framework::generic) return true;
  return mentions(spec, {"{hosts:", "{host:", "{port:", "{task.address}", "{task.port}"});
}

}  // namespace dtrain::cluster
