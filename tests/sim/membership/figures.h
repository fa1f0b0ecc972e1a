// The measurements of a run, and how runs are added up.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "common/base/time.h"

namespace dtrain::sim::membership {

class Samples {
 public:
  void add(Duration length) { values_.push_back(std::chrono::duration<float, std::milli>(length).count()); }
  void join(const Samples& more) { values_.insert(values_.end(), more.values_.begin(), more.values_.end()); }
  std::size_t size() const { return values_.size(); }
  nlohmann::json json() const;  // {"n","median","p99","max"} in ms; null without any

 private:
  std::vector<float> values_;
};

struct Figures {
  Samples gone_detect;     // process killed -> all fit members say down or dead
  Samples silent_suspect;  // host vanished -> all suspect it
  Samples silent_detect;   // host vanished -> all say down or dead
  Samples gone_spread;     // first member.down or member.dead -> all say so
  Samples silent_spread;
  Samples fact_spread;                 // value handed to its member -> all have it
  Samples restart;                     // process started again -> all see the new life
  Samples join;                        // first start -> all see it alive
  Samples merge;                       // partition healed -> all see all alive
  std::uint64_t false_positives = 0;   // at fit members
  std::uint64_t false_suspicions = 0;  // of fit members, told by fit members
  std::uint64_t unfit_verdicts = 0;    // down or dead said of members that run, but are paused or cut off
  std::uint64_t messages = 0, encoded = 0, encoded_bytes = 0, drops = 0, refutes = 0, conflicts = 0, frozen = 0;
  std::uint64_t memory_bytes = 0, links = 0;  // most of one member
  std::uint64_t crashes = 0, restarts = 0, joins = 0, partitions = 0;
  double member_seconds = 0;  // running time of all members
  void join_run(const Figures& run);
  nlohmann::json json() const;
};

// Beside header and body on the wire, for each message: two CURVE frames (33 bytes and 2 of framing each),
// TCP and IP headers (52), and half an acknowledgement (26).
inline constexpr std::uint64_t kWireOverhead = 148;

}  // namespace dtrain::sim::membership
