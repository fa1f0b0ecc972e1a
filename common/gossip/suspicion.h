// The suspicion of one member: who accuses it of silence, and when it is dead unless it refutes.
//
// Lifeguard's suspicion (arXiv 1707.00788, section IV-B; as in memberlist's suspicion.go): the wait begins long, and
// each independent accuser shortens it from its original start,
//   timeout(C) = max(min, max - (max - min) * ln(C + 1) / ln(k + 1)),   C of k wanted confirmations.
// The first accuser is no confirmation, each accuser counts once, and none counts after k (rule 4). Logarithms come
// from a table of 1/1024ths: decisions use no floating point.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/member_id.h"
#include "common/base/time.h"

namespace dtrain::gossip {

// More confirmations than that are never wanted; a larger k is taken as this.
inline constexpr std::uint32_t kMostConfirmations = 8;

// 1024 * ln(confirmed + 1) / ln(wanted + 1), rounded down. 1024 when confirmed >= wanted, 0 wanted included.
std::uint32_t confirmed_share(std::uint32_t confirmed, std::uint32_t wanted);

// Rule 4: k, or 0 when fewer than k others (n members without the accuser and the accused) could confirm.
constexpr std::uint32_t wanted_confirmations(std::uint32_t k, std::uint64_t members) { return members < std::uint64_t{k} + 2 ? 0 : k; }

struct SuspicionTimes {
  Duration min{};                   // with all confirmations, or with none wanted
  Duration max{};                   // with none; less than min: taken as min
  std::uint32_t wanted = 0;         // k
  bool start_at_max = false;        // rule 17, raised in bad local health: max also where no confirmation is wanted
  bool accuser_counts_once = true;  // false only for --break
};

class Suspicion {
 public:
  // Begins with the first accuser, for this incarnation of the subject.
  Suspicion(std::uint64_t incarnation, const MemberId& accuser, Instant now, const SuspicionTimes& times);

  std::uint64_t incarnation() const { return incarnation_; }  // a timer that fires compares it (rule 5)
  Instant started() const { return started_; }
  Instant deadline() const;  // may lie in the past after confirm(): the member is dead at once

  // True when this accuser is new and wanted: pass the accusation on and look at deadline() again. False: it is
  // known, or there are enough.
  bool confirm(const MemberId& accuser);
  bool accused_by(const MemberId& accuser) const;
  std::uint32_t confirmations() const { return static_cast<std::uint32_t>(accusers_.size()) - 1; }
  bool wants_more() const { return confirmations() < wanted_; }
  const std::vector<MemberId>& accusers() const { return accusers_; }  // first accuser first; at most kMostConfirmations + 1

  // Rule 16: this node was stopped, so the member had no fair chance to refute. Its full remaining time begins anew at `now`.
  void restart(Instant now) { started_ = now; }

 private:
  std::uint64_t incarnation_;
  Instant started_;
  Duration min_, max_;
  std::uint32_t wanted_;
  bool once_;
  std::vector<MemberId> accusers_;
};

}  // namespace dtrain::gossip
