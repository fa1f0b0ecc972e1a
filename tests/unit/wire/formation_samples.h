// Formation reports for tests and fuzzers: a fixed one whose bytes are golden, and ones drawn from a seeded
// Rng.
#pragma once

#include <algorithm>

#include "common/base/rng.h"
#include "common/wire/formation.h"

namespace dtrain::test {

inline wire::FormationReport fixed_report() {
  wire::FormationReport report;
  report.founders = "h1,h2,h3";
  report.seat = 1;
  report.asks = true;
  report.round = 0xfeedfeedfeedfeed;
  report.echo = 7;
  report.promise = {{0x1122, 0x3344}, {1, 1}, {{0, {1, 1}}, {1, {2, 2}}, {2, {3, 3}}}};
  report.cluster = {0x1122, 0x3344};
  report.established = true;
  report.doubts = true;
  report.without = {2};
  report.withdrawn = {{5, 5}, {6, 6}};
  return report;
}

// Small numbers, so that reports fit to each other.
class ReportSampler {
 public:
  explicit ReportSampler(std::uint64_t seed) : rng_(seed) {}

  wire::FormationReport report() {
    wire::FormationReport out;
    if (flag()) out.founders = "h1,h2,h3";
    out.seat = static_cast<std::uint16_t>(rng_.below(4));
    out.asks = flag();
    out.round = rng_.below(4);
    out.echo = rng_.chance(1, 20) ? rng_.next() : rng_.below(4);
    if (flag()) out.promise = founding();
    if (flag()) out.cluster = id();
    out.established = flag();
    out.doubts = flag();
    for (std::uint16_t seat = 0; seat < 3; ++seat)
      if (rng_.chance(1, 4)) out.without.push_back(seat);
    for (std::uint64_t count = rng_.below(3); count > 0; --count) out.withdrawn.push_back(id());
    return out;
  }

 private:
  bool flag() { return rng_.chance(1, 2); }
  MemberId id() {
    const std::uint64_t n = 1 + rng_.below(6);
    return {n, n};
  }
  wire::Founding founding() {
    wire::Founding out;
    out.cluster = id();
    for (std::uint16_t seat = 0; seat < 3; ++seat) {
      const MemberId founder = id();
      if (!out.has(founder)) out.members.push_back({seat, founder});
    }
    out.proposer = rng_.chance(1, 20) ? id() : out.members.front().id;
    return out;
  }
  Rng rng_;
};

}  // namespace dtrain::test
