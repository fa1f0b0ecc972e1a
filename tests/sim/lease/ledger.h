// The ledger of world lease: what cluster::Ledger says of leased tasks and of lost hosts, and nothing else. Its commands
// have the names and meanings of common/cluster/command.h.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <variant>

#include "common/base/ids.h"
#include "common/base/time.h"

namespace dtrain::sim::lease {

using Slot = std::uint32_t;  // of a machine: candidates first, then hosts
inline constexpr Slot kCandidates = 3;
inline constexpr std::uint32_t kTasks = 2;

// A host as a member of the cluster: with another disk it is another member.
using Member = std::uint32_t;
inline Slot slot_of(Member member) { return member & 0xff; }
inline Member next_member(Member member) { return member + 0x100; }

struct Version {
  std::uint64_t term = 0, index = 0;
  auto operator<=>(const Version&) const = default;
};

enum class End : std::uint8_t { reported, rebooted, lease, grace, unbegun };  // how a task came to need another place

struct TaskRecord {
  Generation generation = 0;  // 0: never placed
  Member host = 0;
  std::uint64_t placed = 0;  // index of the entry that placed it there
  Duration lease{0};         // as its host reported; 0: the host may run it without one
  std::uint64_t leased = 0;  // index of the report that first named a lease
  AttemptNumber attempt = 0;
  bool staged = false;  // nothing begins before that
  bool moving = false;  // being stopped, to begin on another host
  bool ended = true;    // nothing of the assignment runs or will run
  End why = End::unbegun;
};

struct HostRecord {
  std::uint64_t life = 0, sequence = 0;     // of the newest report
  std::uint64_t lost = 0, leases_over = 0;  // index of the newest HostLost, and whatever had a lease at that index is over
};

struct Ledger {
  Version version;
  std::array<TaskRecord, kTasks> tasks;
  std::map<Member, HostRecord> hosts;
  bool needs_leases = false;  // the log has a second copy: from then on tasks need leases
};
using LedgerCopy = std::shared_ptr<const Ledger>;

struct Seen {                 // of an assignment, by its host
  Generation generation = 0;  // 0: nothing
  AttemptNumber attempt = 0;
  Duration lease{0};
  bool staged = false, ended = false, rebooted = false;
};
struct HostReport {
  Member host = 0;
  std::uint64_t life = 0, sequence = 0, back = 0;
  std::array<Seen, kTasks> seen;
};
struct HostLost {
  Member host = 0;
  std::uint64_t leases_over = 0;
  bool down = false;
  bool gone = false;  // an operator said so: forget-node
};
struct Place {
  std::uint32_t task = 0;
  Generation generation = 0;
  Member host = 0;
};
struct Move {
  std::uint32_t task = 0;
};
struct NeedLeases {};
using Command = std::variant<HostReport, HostLost, Place, Move, NeedLeases>;

void apply(Ledger& ledger, const Command& command);  // as the entry of ledger.version

}  // namespace dtrain::sim::lease
