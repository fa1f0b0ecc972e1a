// Copies of the ledger compare themselves. Replicas agree because all of them apply the same entries by the same rules; a rule that
// a program changed without a new version, or faulty memory, would make them differ unnoticed.
//
// After every NodeOptions::compare_every-th entry each copy publishes the hash of its state in its fact `council`. A copy is wrong if its
// hash differs from that of more than half of all copies, or, if no hash has so many, from the coordinator's. A wrong copy stops there
// (cluster::Behind: its tasks run on, it takes no new ones and leads nothing), reports that, and asks for the coordinator's state
// (raft::WantState). The coordinator sends it through the log, so that nothing is lost that this copy has acknowledged.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "common/node/context.h"
#include "common/node/part.h"

namespace dtrain::node {

inline constexpr std::size_t kRememberedMarks = 8;  // own ones: others may be that far behind
inline constexpr Duration kComparePause = 1s;       // least time between two looks at what the others tell
inline constexpr Duration kSendStateEvery = 5s;     // to one copy

class CopyCheck final : public Part {
 public:
  explicit CopyCheck(Context& context) : Part(Runs::with_log), c_(context) {}

  // An entry was applied here.
  void applied();
  // The state was replaced, or its log was given up.
  void begin_anew();
  void log_advanced() override;
  Instant deadline() const override { return touched_ ? std::min(looked_ + kComparePause, next_) : next_; }
  // What the others tell may have changed.
  void touch() { touched_ = true; }

 private:
  struct Told;  // by another copy
  std::vector<Told> told() const;
  bool differs(std::uint64_t index, std::uint64_t hash, const std::vector<Told>& others) const;
  void send_state(const std::vector<Told>& others);

  Context& c_;
  std::map<std::uint64_t, std::uint64_t> marks_;  // index -> hash of the state here after it
  std::map<MemberId, Instant> sent_;              // to whom this coordinator sends its state: when, last
  Instant looked_{}, next_{kNever};
  bool touched_ = false;
};

}  // namespace dtrain::node
