// The makers of all checkers of world council, one file each.
#pragma once

#include "tests/sim/council/checker.h"

namespace dtrain::sim::council {

using Maker = std::unique_ptr<Checker> (*)(WorldView&);

std::unique_ptr<Checker> one_leader_per_term(WorldView&);
std::unique_ptr<Checker> one_vote_per_term(WorldView&);
std::unique_ptr<Checker> logs_equal(WorldView&);
std::unique_ptr<Checker> states_equal(WorldView&);
std::unique_ptr<Checker> acknowledged_never_lost(WorldView&);
std::unique_ptr<Checker> applied_once(WorldView&);
std::unique_ptr<Checker> linearisable(WorldView&);
std::unique_ptr<Checker> durable_before_sent(WorldView&);
std::unique_ptr<Checker> majority_holds_committed(WorldView&);
std::unique_ptr<Checker> one_change_at_a_time(WorldView&);
std::unique_ptr<Checker> configuration_is_the_logs(WorldView&);
std::unique_ptr<Checker> elapsed_is_true(WorldView&);
std::unique_ptr<Checker> rolled_back_stays_mute(WorldView&);
std::unique_ptr<Checker> failed_disk_stays_mute(WorldView&);
std::unique_ptr<Checker> histories_apart(WorldView&);
std::unique_ptr<Checker> terms_need_a_majority(WorldView&);
std::unique_ptr<Checker> cut_off_leader_steps_down(WorldView&);
std::unique_ptr<Checker> stalls_elect_nobody(WorldView&);
std::unique_ptr<Checker> memory_bounded(WorldView&);
std::unique_ptr<Checker> leader_after_healing(WorldView&);
std::unique_ptr<Checker> converges(WorldView&);

}  // namespace dtrain::sim::council
