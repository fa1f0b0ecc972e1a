// The one source of randomness: seeded from outside, so that a run can be replayed.
// xoshiro256** by Blackman and Vigna (2018), seeded through splitmix64.
#pragma once

#include <cstdint>

namespace dtrain {

class Rng {
 public:
  explicit Rng(std::uint64_t seed);
  std::uint64_t next();
  std::uint64_t below(std::uint64_t bound);  // uniform in [0, bound); bound > 0
  bool chance(std::uint32_t numerator, std::uint32_t denominator) { return below(denominator) < numerator; }

 private:
  std::uint64_t state_[4];
};

}  // namespace dtrain
