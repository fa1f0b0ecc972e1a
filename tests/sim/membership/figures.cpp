#include "tests/sim/membership/figures.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace dtrain::sim::membership {
namespace {

double rounded(double value) { return static_cast<double>(static_cast<std::int64_t>(value * 100 + 0.5)) / 100; }

}  // namespace

nlohmann::json Samples::json() const {
  if (values_.empty()) return nullptr;
  std::vector<float> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  const auto at = [&](std::size_t percent) { return rounded(sorted[(sorted.size() - 1) * percent / 100]); };
  return {{"n", sorted.size()}, {"median", at(50)}, {"p99", at(99)}, {"max", rounded(sorted.back())}};
}

void Figures::join_run(const Figures& run) {
  gone_detect.join(run.gone_detect);
  silent_suspect.join(run.silent_suspect);
  silent_detect.join(run.silent_detect);
  gone_spread.join(run.gone_spread);
  silent_spread.join(run.silent_spread);
  fact_spread.join(run.fact_spread);
  restart.join(run.restart);
  join.join(run.join);
  merge.join(run.merge);
  false_positives += run.false_positives;
  false_suspicions += run.false_suspicions;
  unfit_verdicts += run.unfit_verdicts;
  messages += run.messages;
  encoded += run.encoded;
  encoded_bytes += run.encoded_bytes;
  drops += run.drops;
  refutes += run.refutes;
  conflicts += run.conflicts;
  frozen += run.frozen;
  memory_bytes = std::max(memory_bytes, run.memory_bytes);
  links = std::max(links, run.links);
  crashes += run.crashes;
  restarts += run.restarts;
  joins += run.joins;
  partitions += run.partitions;
  member_seconds += run.member_seconds;
}

nlohmann::json Figures::json() const {
  Samples spread = gone_spread;
  spread.join(silent_spread);
  const double each = encoded == 0 ? 0 : static_cast<double>(encoded_bytes) / static_cast<double>(encoded);
  const double per_second = member_seconds > 0 ? static_cast<double>(messages) / member_seconds : 0;
  return {{"false_positives", false_positives},
          {"false_suspicions", false_suspicions},
          {"unfit_verdicts", unfit_verdicts},
          {"detect_ms", {{"gone", gone_detect.json()}, {"silent", silent_detect.json()}}},
          {"suspect_ms", silent_suspect.json()},
          {"spread_ms", spread.json()},
          {"spread_by_class_ms", {{"gone", gone_spread.json()}, {"silent", silent_spread.json()}}},
          {"fact_spread_ms", fact_spread.json()},
          {"restart_ms", restart.json()},
          {"join_ms", join.json()},
          {"merge_ms", merge.json()},
          {"messages", messages},
          {"messages_per_node_per_second", rounded(per_second)},
          {"bytes_per_message", rounded(each)},
          {"bytes_per_node_per_second", rounded(per_second * (each + static_cast<double>(kWireOverhead)))},
          {"wire_overhead_bytes_per_message", kWireOverhead},
          {"memory_bytes_per_node", memory_bytes},
          {"links_per_node", links},
          {"drops", drops},
          {"refutes", refutes},
          {"conflicts", conflicts},
          {"frozen", frozen},
          {"crashes", crashes},
          {"restarts", restarts},
          {"joins", joins},
          {"partitions", partitions}};
}

}  // namespace dtrain::sim::membership
