// What the ledger does, by version: how programs of several releases keep one ledger.
//
// Replicas agree because all of them apply the same entries by the same rules. What was in the first release is version 1. Every type
// of command, field, value of an enumeration and rule that came later belongs to a later version, and has no effect before the ledger
// itself is of that version (LedgerState::version). The coordinator raises it, by an entry, once the programs of all members that have a
// copy know the next one. An entry says which version it needs (Command::needs). A program that does not know that version, or that
// cannot decode an entry or a snapshot, never goes on behind it: see Behind.
//
// docs/upgrading.md says what an operator sees of this, and how a rule is changed.
#pragma once

#include <cstdint>
#include <string>

namespace dtrain::cluster {

inline constexpr std::uint32_t kFirstVersion = 1;
// The newest that this program knows. Whoever raises it adds a row to docs/upgrading.md and records logs (tests/golden/ledger).
inline constexpr std::uint32_t kNewestVersion = 2;

// Why a program stopped applying the log: what comes next it cannot read. Its state stays that before the entry.
struct Behind {
  std::uint64_t index = 0;   // of the entry, or of the snapshot
  std::uint32_t needs = 0;   // version; 0: not known, since what is there cannot be decoded
  std::string cause;         // for people
};

}  // namespace dtrain::cluster
