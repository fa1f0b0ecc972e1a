// The lasting faults of a run: each is taken back when its time is over, and all when the world is healed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

namespace dtrain::sim {

class UndoList {
 public:
  // The key to take it back with.
  std::uint64_t add(std::function<void()> undo) {
    undo_[++last_] = std::move(undo);
    return last_;
  }
  // Does nothing if that fault is over already.
  void undo(std::uint64_t key) {
    if (auto taken = undo_.extract(key)) taken.mapped()();
  }
  // In the order of their faults.
  void undo_all() {
    while (!undo_.empty()) undo(undo_.begin()->first);
  }

 private:
  std::map<std::uint64_t, std::function<void()>> undo_;
  std::uint64_t last_ = 0;
};

}  // namespace dtrain::sim
