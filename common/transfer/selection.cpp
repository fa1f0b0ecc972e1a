#include "common/transfer/selection.h"

#include <algorithm>
#include <tuple>

namespace dtrain::transfer {
namespace {

constexpr std::string_view kQuarantined = ".quarantined-";

}  // namespace

bool is_ignored_name(std::string_view name) {
  if (name.ends_with(".tmp")) return true;
  const auto at = name.rfind(kQuarantined);
  if (at == std::string_view::npos) return false;
  const auto number = name.substr(at + kQuarantined.size());
  return !number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string quarantined_name(std::string_view name, std::uint32_t k) {
  return std::string(name).append(kQuarantined).append(std::to_string(k));
}

void sort_newest_first(std::vector<Candidate>& candidates) {
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(b.info.step, b.changed_ns, b.info.path) < std::tie(a.info.step, a.changed_ns, a.info.path);
  });
}

}  // namespace dtrain::transfer
