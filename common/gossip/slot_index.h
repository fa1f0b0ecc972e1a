// A hash index from keys to row numbers: open addressing, linear probing, 8 bytes a cell, at most half full.
// It stores 32 bits of the hash and the slot; the caller compares the keys. Several slots may have one key.
#pragma once

#include <cstdint>
#include <vector>

namespace dtrain::gossip {

class SlotIndex {
 public:
  using Slot = std::uint32_t;

  void add(std::uint32_t tag, Slot slot) {
    if ((used_ + 1) * 2 > cells_.size()) grow();
    place(tag, slot);
    ++used_;
  }

  // Exactly what was added.
  void remove(std::uint32_t tag, Slot slot) {
    if (cells_.empty()) return;
    const std::size_t mask = cells_.size() - 1;
    std::size_t hole = tag & mask;
    while (cells_[hole].slot_plus_one != slot + 1) {
      if (cells_[hole].slot_plus_one == 0) return;
      hole = (hole + 1) & mask;
    }
    // Entries after it move up, so that no search ends too early.
    for (std::size_t next = (hole + 1) & mask; cells_[next].slot_plus_one != 0; next = (next + 1) & mask) {
      const std::size_t home = cells_[next].tag & mask;
      if (((next - home) & mask) < ((next - hole) & mask)) continue;
      cells_[hole] = cells_[next];
      hole = next;
    }
    cells_[hole] = {};
    --used_;
  }

  // Calls visit(slot) for all slots with this tag until it returns true.
  template <class Visit>
  void each(std::uint32_t tag, const Visit& visit) const {
    if (cells_.empty()) return;
    const std::size_t mask = cells_.size() - 1;
    for (std::size_t i = tag & mask; cells_[i].slot_plus_one != 0; i = (i + 1) & mask)
      if (cells_[i].tag == tag && visit(cells_[i].slot_plus_one - 1)) return;
  }

  std::size_t memory_bytes() const { return cells_.capacity() * sizeof(Cell); }

 private:
  struct Cell {
    std::uint32_t tag = 0;
    std::uint32_t slot_plus_one = 0;  // 0: free
  };

  void place(std::uint32_t tag, Slot slot) {
    const std::size_t mask = cells_.size() - 1;
    std::size_t i = tag & mask;
    while (cells_[i].slot_plus_one != 0) i = (i + 1) & mask;
    cells_[i] = {tag, slot + 1};
  }
  void grow() {
    std::vector<Cell> old(cells_.empty() ? 16 : cells_.size() * 2);
    old.swap(cells_);
    for (const Cell& cell : old)
      if (cell.slot_plus_one != 0) place(cell.tag, cell.slot_plus_one - 1);
  }

  std::vector<Cell> cells_;
  std::size_t used_ = 0;
};

}  // namespace dtrain::gossip
