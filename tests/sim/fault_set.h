// A set of faults by name, for --faults. `Kind` is an enum class without gaps; fault_names(Kind) is found by
// ADL.
#pragma once

#include <bitset>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace dtrain::sim {

template <class Kind>
class NamedFaults {
 public:
  static constexpr std::size_t kMost = 64;

  static NamedFaults all() {
    NamedFaults set;
    for (std::size_t i = 0; i < names().size(); ++i) set.bits_.set(i);
    return set;
  }
  // "all", "none", or a comma list of names; an unknown name is an error that lists the known ones.
  static Result<NamedFaults> parse(std::string_view text) {
    if (text == "all") return all();
    NamedFaults set;
    if (text == "none") return set;
    while (!text.empty()) {
      const std::string_view word = text.substr(0, text.find(','));
      text.remove_prefix(std::min(text.size(), word.size() + 1));
      std::size_t i = 0;
      while (i < names().size() && names()[i] != word) ++i;
      if (i == names().size()) {
        std::string known = "all, none";
        for (const auto name : names()) known += ", " + std::string(name);
        return fail(ErrorCode::invalid, "could not read the list of faults: '" + std::string(word) + "' is none", "known are " + known);
      }
      set.bits_.set(i);
    }
    return set;
  }
  std::string text() const {  // as parse() takes it
    if (is_all()) return "all";
    if (none()) return "none";
    std::string out;
    for (std::size_t i = 0; i < names().size(); ++i) {
      if (!bits_.test(i)) continue;
      if (!out.empty()) out += ',';
      out += names()[i];
    }
    return out;
  }
  bool has(Kind fault) const { return bits_.test(static_cast<std::size_t>(fault)); }
  void set(Kind fault, bool on = true) { bits_.set(static_cast<std::size_t>(fault), on); }
  bool none() const { return bits_.none(); }
  bool is_all() const { return bits_.count() == names().size(); }

  static std::vector<std::string> all_names() { return {names().begin(), names().end()}; }

 private:
  static std::span<const std::string_view> names() { return fault_names(Kind{}); }
  std::bitset<kMost> bits_;
};

}  // namespace dtrain::sim
