// Versions of the ledger's rules: how programs of several releases keep one ledger.
//
// Replicas agree because all of them apply the same entries by the same rules. The first release is version 1. Every
// type of command, field, value of an enumeration and rule that came later belongs to a later version, and has no
// effect before the ledger itself has that version (LedgerState::version). The coordinator raises the version, by an
// entry, once the programs of all members with a copy know the next one. Each entry names the version that it needs
// (Command::needs). A program that does not know that version, or that cannot decode an entry or a snapshot, never
// applies anything after it: see Behind.
//
// docs/upgrading.md says what an operator sees of this, and how a rule is changed.
#pragma once

#include <cstdint>
#include <string>

namespace dtrain::cluster {

inline constexpr std::uint32_t kFirstVersion = 1;
// The newest that this program knows. Raising it takes a row in docs/upgrading.md and recorded logs (tests/golden/ledger).
inline constexpr std::uint32_t kNewestVersion = 3;

// Why a program stopped applying the log: it cannot read the next entry. Its state stays that before the entry.
struct Behind {
  std::uint64_t index = 0;  // of the entry or the snapshot
  std::uint32_t needs = 0;  // the version needed; 0: not known, since the entry cannot be decoded
  std::string cause;        // for people
};

}  // namespace dtrain::cluster
