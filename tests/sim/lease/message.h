// The messages between the machines of world lease: one small struct for all kinds, since a run sends some thousands;
// and the reports of hosts, which become commands for the ledger (ledger.h).
#pragma once

#include <array>
#include <cstdint>

#include "common/base/ids.h"
#include "common/base/member_id.h"
#include "tests/sim/lease/ledger.h"

namespace dtrain::sim::lease {

struct Message {
  enum class Kind : std::uint8_t {
    // Between candidates.
    vote_ask,
    vote,
    append,
    append_reply,
    // Between a coordinator and hosts.
    copy,   // of the ledger, as far as it is committed
    probe,  // answered by the agent, or by the host's kernel where no agent listens
    alive,
    refused,  // connection refused
    report,
    request,
    granted,
    superseded,
  };

  Kind kind{};
  Slot from = 0, to = 0;
  std::uint64_t term = 0, round = 0;  // of a grant: the term is the epoch
  bool yes = false;
  Version version;
  LedgerCopy ledger;
  HostReport report;
  Member member = 0;  // that asks or is alive
  std::uint32_t task = 0;
  Generation generation = 0;
  std::uint64_t nonce = 0;
};
using Kind = Message::Kind;

inline AssignmentId id_of(std::uint32_t task, Generation generation) { return {1, generation, {"ps", task}}; }
inline MemberId member_id(Member member) { return {1, member + 1}; }

}  // namespace dtrain::sim::lease
