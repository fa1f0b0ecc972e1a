// The rules of consensus that --break can switch off one at a time, to show that tests and simulator notice. All hold
// in production. docs/consensus.md explains each.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "common/base/breakable_rules.h"

namespace dtrain::raft {

enum class Rule : std::uint8_t {
  pre_vote,                     // a member that cannot win begins no term
  check_quorum,                 // a leader that hears from no majority steps down
  refusal_carries_own_term,     // a refusal carries the refuser's term, not that of the request
  own_term_entry,               // a new leader first commits an entry of its own term, and older entries only with it
  ack_verified_only,            // a follower acknowledges prev + entries, not the length of its log
  commit_verified_only,         // a follower commits min(leader commit, prev + entries)
  durable_before_send,          // an entry or vote is durable before it is sent or counted
  one_change_at_a_time,         // one change of the configuration at a time
  truncated_config_rolls_back,  // cutting off a configuration's entry restores the one in force before it
  snapshot_carries_config,
  one_vote_per_term,
  fresh_life_only,  // messages of an older life of a member are refused
  applied_once,     // a repeated request is applied once (request_window.h)
  disk_error_stops_voting,
  read_index_confirmed,        // by a majority, after the read was asked for
  elapsed_from_leader,         // the ledger's time continues from the last leader's value
  history_fences,              // messages of members of another history are refused
  forget_only_without_leader,  // a log is given up for that of a newer history only where nobody leads its own
  own_history_elects,          // nobody stands for election by a configuration of an older history
};
constexpr Rule enum_last(Rule) { return Rule::own_history_elects; }

std::span<const std::string_view> rule_names(Rule);  // as --break spells them, in the order above
using Rules = BreakableRules<Rule>;

}  // namespace dtrain::raft
