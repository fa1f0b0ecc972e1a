#include "common/job/start_order.h"

#include <algorithm>
#include <set>

#include "common/job/framework.h"

namespace dtrain::job {

std::map<std::string, StartAfter> default_start_after(const JobSpec& spec, const std::string& role) {
  std::map<std::string, StartAfter> out;
  const auto start = role_rules(spec.framework, role).start;
  for (const auto& other : spec.roles)
    if (role_rules(spec.framework, other.first).start < start) out[other.first] = StartAfter::running;
  return out;
}

std::vector<std::string> find_start_cycle(const JobSpec& spec) {
  // Removes roles that wait for nothing any more, until none is left or only those in or behind a cycle.
  std::set<std::string> left;
  for (const auto& entry : spec.roles) left.insert(entry.first);
  const auto next_of = [&](const std::string& role) -> const std::string* {
    for (const auto& entry : spec.roles.at(role).start_after)
      if (entry.first != role && left.contains(entry.first)) return &entry.first;
    return nullptr;
  };
  for (bool removed = true; removed;) {
    const auto free = std::find_if(left.begin(), left.end(), [&](const std::string& role) { return !next_of(role); });
    removed = free != left.end();
    if (removed) left.erase(free);
  }
  if (left.empty()) return {};
  // Each remaining role waits for a remaining one, so following them must come back.
  std::vector<std::string> walk{*left.begin()};
  for (;;) {
    const std::string next = *next_of(walk.back());
    const auto first = std::find(walk.begin(), walk.end(), next);
    if (first != walk.end()) {
      std::vector<std::string> cycle(first, walk.end());
      cycle.push_back(next);
      return cycle;
    }
    walk.push_back(next);
  }
}

}  // namespace dtrain::job
