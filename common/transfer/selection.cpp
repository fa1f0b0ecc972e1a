#include "common/transfer/selection.h"

#include <algorithm>
#include <tuple>

namespace dtrain::transfer {
namespace {

constexpr std::string_view kQuarantined = ".quarantined-", kBefore = "quarantined-";

bool is_digits(std::string_view text) { return !text.empty() && text.find_first_not_of("0123456789") == text.npos; }

}  // namespace

bool is_ignored_name(std::string_view name) {
  if (name.ends_with(".tmp")) return true;
  if (name.starts_with(kBefore) && is_digits(name.substr(kBefore.size(), name.find('.', kBefore.size()) - kBefore.size())))
    return name.find('.') != name.npos;
  const auto at = name.rfind(kQuarantined);
  return at != name.npos && is_digits(name.substr(at + kQuarantined.size()));
}

std::string quarantined_name(std::string_view name, std::uint32_t k, bool before) {
  const std::string number = std::to_string(k);
  return before ? std::string(kBefore) + number + "." + std::string(name) : std::string(name) + std::string(kQuarantined) + number;
}

void sort_newest_first(std::vector<Candidate>& candidates) {
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(b.info.step, b.changed_ns, b.info.path) < std::tie(a.info.step, a.changed_ns, a.info.path);
  });
}

}  // namespace dtrain::transfer
