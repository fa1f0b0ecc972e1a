// Rule 8: the order in which members are probed: round robin over a shuffle, with another shuffle each pass and
// newcomers at random positions.
//
// So each member is probed once in every pass (SWIM, DSN 2002, section 4.3). The shuffle takes no memory: it is a
// keyed permutation of slot numbers (a Feistel network of four rounds over the next power of four, skipping other
// values: Black and Rogaway, CT-RSA 2002). A slot is a number below `slots` that a member keeps while it stays: its
// row in the table. A member that takes a free slot appears at the position of that slot, which is random, or in the
// next pass if the slot is beyond this pass's numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace dtrain::gossip {

class ProbeOrder {
 public:
  using Slot = std::uint32_t;
  using Eligible = std::function<bool(Slot)>;  // the slot holds a member that is to be probed

  explicit ProbeOrder(std::uint64_t seed, bool shuffles = true);  // false only for --break

  // The next eligible slot below `slots`; none when a whole pass holds none. O(1) expected where most slots
  // are eligible.
  std::optional<Slot> next(Slot slots, const Eligible& eligible);
  // What the next `count` calls would return if nothing changed, for warming links. Fewer when fewer slots are eligible.
  std::vector<Slot> peek(Slot slots, std::size_t count, const Eligible& eligible) const;

 private:
  void begin_pass(Slot slots);
  std::uint64_t permute(std::uint64_t index) const;

  std::uint64_t seed_;
  bool shuffles_;
  std::uint64_t pass_ = 0;  // number of passes begun
  std::uint64_t key_ = 0;
  std::uint32_t half_bits_ = 0;  // numbers of this pass: 4 ^ half_bits_
  std::uint64_t position_ = 0;   // in the pass; at its end the next pass begins
  std::uint64_t end_ = 0;
};

}  // namespace dtrain::gossip
