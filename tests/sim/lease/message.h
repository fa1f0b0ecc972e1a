// The messages between the machines of world lease: one small struct for all kinds, since a run sends some thousands;
// and the ledger on which the voters agree, which only says which host has which task.
#pragma once

#include <array>
#include <compare>
#include <cstdint>

#include "common/base/ids.h"
#include "common/base/lease.h"
#include "common/base/member_id.h"

namespace dtrain::sim::lease {

using Slot = std::uint32_t;  // of a machine: candidates first, then hosts
inline constexpr Slot kCandidates = 3;
inline constexpr std::uint32_t kTasks = 2;

struct Version {
  std::uint64_t term = 0, sequence = 0;
  auto operator<=>(const Version&) const = default;
};

struct TaskRecord {
  Generation generation = 0;  // 0: never placed
  Slot host = 0;
  std::uint32_t boot = 0;
};

struct Ledger {
  Version version;
  std::array<TaskRecord, kTasks> tasks;
};

struct Entry {  // of an order: has it, or is to stop it; of a report: newest attempt, and whether nothing is left of it
  std::uint32_t task = 0;
  Generation generation = 0;
  std::uint32_t boot = 0;
  AttemptNumber attempt = 0;
  bool flag = false;
};

struct Message {
  enum class Kind : std::uint8_t {
    // Between candidates.
    vote_ask,
    vote,
    append,
    append_reply,
    // Between the coordinator and hosts.
    probe,    // answered by the host's kernel where no agent listens
    refused,  // connection refused
    order,
    report,
    request,
    granted,
    superseded,
  };
  static constexpr std::size_t kMostEntries = 6;

  Kind kind{};
  Slot from = 0, to = 0;
  std::uint64_t term = 0, round = 0;
  bool yes = false;
  Ledger ledger;
  Fence fence;
  std::uint32_t boot = 0, count = 0;
  std::array<Entry, kMostEntries> entries;
  std::uint64_t nonce = 0;
};

inline AssignmentId id_of(std::uint32_t task, Generation generation) {
  return {1, generation, {"ps", task}};
}
inline std::string boot_id(std::uint32_t boot) {
  return std::to_string(boot);
}
inline MemberId member_of(Slot slot) {
  return {1, slot + 1};
}

}  // namespace dtrain::sim::lease
