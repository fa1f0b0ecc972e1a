// The first rank of a task leads the others while they import: who looks for its store before it listens sleeps for a second
// (docs/decisions/0016). Another rank that has caught up stands still until the first has gone on.
//
// What a process has done is counted in page faults that needed no disk. They hardly depend on how fast the machine is at the moment:
// two ranks of PyTorch 1.13 that meet have had 32,120 each, to within 20, while their times differ by a tenth.
//
// Contract: pure, no heap (dtrain-shim has it compiled in). Times are nanoseconds of one clock. At due() call look(), then holds() for each
// other rank that lives. Who is not held runs; once due() is 0 all run.
#pragma once

#include <cstdint>

namespace dtrain::task {

struct Progress {
  std::uint64_t faults = 0;
  bool asleep = false;  // it waits for something other than a CPU or a disk
};

class Lead {
 public:
  static constexpr std::uint64_t kFaults = 500;             // so far the first is ahead: some 20 ms
  static constexpr std::int64_t kPause = 5'000'000;         // between two looks, for each kRanks of ranks: looking costs
  static constexpr std::uint32_t kRanks = 16;               // a few hundredths of a CPU at most
  static constexpr std::int64_t kMostHeld = 1'000'000'000;  // in one attempt: no more than what it spares
  static constexpr std::int64_t kLongest = 60'000'000'000;  // who has not met by then does something else

  void begin(std::int64_t now) {
    *this = Lead();
    begun_ = looked_ = now;
    due_ = now + kPause;
  }
  void end() { due_ = 0; }
  // When to look again; 0: there is no lead, or it is over.
  std::int64_t due() const { return due_; }

  // `ranks`: how many there are.
  void look(std::int64_t now, Progress first, std::uint32_t ranks) {
    if (any_held_) held_ += now - looked_;
    any_held_ = false;
    looked_ = now;
    first_ = first;
    due_ = held_ >= kMostHeld || now - begun_ >= kLongest ? 0 : now + kPause * (1 + ranks / kRanks);
  }

  bool holds(Progress other) {
    if (due_ == 0) return false;
    // A first that sleeps waits for the others; once one is near it, they have met.
    if (first_.asleep && other.faults + kFaults / 2 > first_.faults) end();
    if (first_.asleep || other.faults + kFaults <= first_.faults) return false;
    return any_held_ = true;
  }

 private:
  std::int64_t begun_ = 0, looked_ = 0, due_ = 0;
  std::int64_t held_ = 0;  // how long somebody was
  bool any_held_ = false;  // since the last look
  Progress first_;
};

}  // namespace dtrain::task
