#include "tests/sim/faults.h"

namespace dtrain::sim {
namespace {

constexpr std::array<std::string_view, kFaultCount> kNames = {
    "task-kill", "shim-kill",  "agent-kill", "reboot",            "disk-error",  "slow-disk",
    "full-disk", "clock-jump", "pause",      "checkpoint-damage", "stage-error"};

}  // namespace

std::string_view to_string(Fault fault) { return kNames[static_cast<std::size_t>(fault)]; }

FaultSet FaultSet::all() {
  FaultSet set;
  set.bits_.set();
  return set;
}

Result<FaultSet> FaultSet::parse(std::string_view text) {
  if (text == "all") return all();
  FaultSet set;
  if (text == "none") return set;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    std::size_t i = 0;
    while (i < kNames.size() && kNames[i] != word) ++i;
    if (i == kNames.size()) {
      std::string known = "all, none";
      for (const auto name : kNames) known += ", " + std::string(name);
      return fail(ErrorCode::invalid, "could not read the list of faults: '" + std::string(word) + "' is none",
                  "known are " + known);
    }
    set.bits_.set(i);
  }
  return set;
}

std::string FaultSet::text() const {
  if (bits_.all()) return "all";
  if (bits_.none()) return "none";
  std::string out;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (!bits_.test(i)) continue;
    if (!out.empty()) out += ',';
    out += kNames[i];
  }
  return out;
}

}  // namespace dtrain::sim
