#include "tests/sim/council/checkers/checkers.h"

namespace dtrain::sim::council {

CheckerList all_checkers(WorldView& world) {
  CheckerList list;
  for (const Maker make : {one_leader_per_term,    one_vote_per_term,         logs_equal,
                           states_equal,           acknowledged_never_lost,   applied_once,
                           linearisable,           durable_before_sent,       majority_holds_committed,
                           one_change_at_a_time,   configuration_is_the_logs, elapsed_is_true,
                           rolled_back_stays_mute, failed_disk_stays_mute,    histories_apart,
                           terms_need_a_majority,  cut_off_leader_steps_down, stalls_elect_nobody,
                           memory_bounded,         leader_after_healing,      converges})
    list.push_back(make(world));
  return list;
}

}  // namespace dtrain::sim::council
