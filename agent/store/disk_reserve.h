// Room on the ledger's disk that nobody else can take: a file that holds it, and gives it back bit by bit when a commit finds none. Once
// there is plenty it is filled up again.
//
// For one thread.
#pragma once

#include <cstdint>
#include <string>

#include "agent/store/file.h"

namespace dtrain::store {

inline constexpr std::uint64_t kReserveBytes = 16 << 20;
inline constexpr std::uint64_t kReservePart = 32;           // but at most one such part of the file system
inline constexpr std::uint64_t kReserveStep = 1 << 20;      // given back at one time

class DiskReserve {
 public:
  // Where it cannot be had, in part or at all, there is less of it: a full disk keeps no agent from starting.
  explicit DiskReserve(const std::string& path);
  DiskReserve(const DiskReserve&) = delete;
  DiskReserve& operator=(const DiskReserve&) = delete;

  bool give();    // false: nothing is left to give
  void refill();  // where a good deal more is free than it takes
  std::uint64_t bytes() const { return bytes_; }

 private:
  UniqueFd file_;
  std::uint64_t wanted_ = 0, bytes_ = 0;
};

}  // namespace dtrain::store
