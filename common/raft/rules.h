// The rules of consensus that --break can switch off one at a time, to show that tests and simulator notice.
// All hold in production. docs/consensus.md says what each is for.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "common/base/breakable_rules.h"

namespace dtrain::raft {

enum class Rule : std::uint8_t {
  pre_vote,                  // who cannot win begins no term
  check_quorum,              // a leader without a majority steps down
  refusal_carries_own_term,  // not that of the request
  own_term_entry,        // a new leader commits an entry of its own term first, and older ones only with it
  ack_verified_only,     // prev + entries, not the length of the log
  commit_verified_only,  // min(leader commit, prev + entries)
  durable_before_send,   // and before it is counted or voted on
  one_change_at_a_time,  // of the configuration
  truncated_config_rolls_back,  // to the one in force before it
  snapshot_carries_config,
  one_vote_per_term,
  fresh_life_only,  // an older life of a member is refused
  applied_once,     // a repeated request (request_window.h)
  disk_error_stops_voting,
  read_index_confirmed,  // by a majority, after the read was asked
  elapsed_from_leader,   // the ledger's time goes on where the last leader's stood
  history_fences,        // a member of another history is refused
  forget_only_without_leader,  // a log is given up for a newer history's only where nobody leads its own
  own_history_elects,  // nobody stands for election by a configuration of an older history
};
constexpr Rule enum_last(Rule) {
  return Rule::own_history_elects;
}

std::span<const std::string_view> rule_names(Rule);  // as --break spells them, in the order above
using Rules = BreakableRules<Rule>;

}  // namespace dtrain::raft
