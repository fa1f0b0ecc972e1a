// Disk space for the ledger that nobody else can take: a file occupies it, and gives it up piece by piece when a
// commit finds no space. It is filled again once there is plenty.
//
// For one thread.
#pragma once

#include <cstdint>
#include <string>

#include "agent/store/file.h"

namespace dtrain::store {

inline constexpr std::uint64_t kReserveBytes = 16 << 20;
inline constexpr std::uint64_t kReservePart = 32;       // at most this part of the file system (one 32nd)
inline constexpr std::uint64_t kReserveStep = 1 << 20;  // given back at one time

class DiskReserve {
 public:
  // If the space is not available, wholly or in part, the reserve is smaller: a full disk keeps no agent from starting.
  explicit DiskReserve(const std::string& path);
  DiskReserve(const DiskReserve&) = delete;
  DiskReserve& operator=(const DiskReserve&) = delete;

  bool give();    // false: nothing is left to give
  void refill();  // if considerably more is free than it takes
  std::uint64_t bytes() const { return bytes_; }

 private:
  UniqueFd file_;
  std::uint64_t wanted_ = 0, bytes_ = 0;
};

}  // namespace dtrain::store
