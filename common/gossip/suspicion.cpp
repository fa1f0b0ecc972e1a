#include "common/gossip/suspicion.h"

#include <algorithm>

namespace dtrain::gossip {

namespace {

// kShare[k - 1][c] = floor(1024 * ln(c + 1) / ln(k + 1)); suspicion_test compares it with std::log.
constexpr std::uint16_t kShare[kMostConfirmations][kMostConfirmations + 1] = {
    {0, 1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024}, {0, 646, 1024, 1024, 1024, 1024, 1024, 1024, 1024},
    {0, 512, 811, 1024, 1024, 1024, 1024, 1024, 1024},   {0, 441, 698, 882, 1024, 1024, 1024, 1024, 1024},
    {0, 396, 627, 792, 919, 1024, 1024, 1024, 1024},     {0, 364, 578, 729, 846, 942, 1024, 1024, 1024},
    {0, 341, 541, 682, 792, 882, 958, 1024, 1024},       {0, 323, 512, 646, 750, 835, 906, 969, 1024},
};

}  // namespace

std::uint32_t confirmed_share(std::uint32_t confirmed, std::uint32_t wanted) {
  wanted = std::min(wanted, kMostConfirmations);
  if (confirmed >= wanted) return 1024;
  return kShare[wanted - 1][confirmed];
}

Suspicion::Suspicion(std::uint64_t incarnation, const MemberId& accuser, Instant now, const SuspicionTimes& times)
    : incarnation_(incarnation),
      started_(now),
      min_(times.min),
      max_(std::max(times.min, times.max)),
      wanted_(std::min(times.wanted, kMostConfirmations)),
      once_(times.accuser_counts_once) {
  if (wanted_ == 0 && times.start_at_max) min_ = max_;
  accusers_.push_back(accuser);
}

Instant Suspicion::deadline() const {
  const std::uint32_t share = confirmed_share(confirmations(), wanted_);
  if (share == 1024) return started_ + min_;
  const Duration span = max_ - min_;
  return started_ + max_ - (span / 1024 * share + span % 1024 * share / 1024);  // exact, without overflow
}

bool Suspicion::accused_by(const MemberId& accuser) const { return std::ranges::find(accusers_, accuser) != accusers_.end(); }

bool Suspicion::confirm(const MemberId& accuser) {
  if (!wants_more() || (once_ && accused_by(accuser))) return false;
  accusers_.push_back(accuser);
  return true;
}

}  // namespace dtrain::gossip
