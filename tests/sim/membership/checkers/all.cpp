#include "tests/sim/membership/checkers/checkers.h"

namespace dtrain::sim::membership {

CheckerList all_checkers(WorldView& world) {
  CheckerList list;
  for (const Maker make : {no_false_positives, crash_known_to_all, nobody_resurrected, left_stays_left, restart_seen_by_all,
                           facts_reach_all, no_lasting_suspicion, one_name_one_member, clusters_stay_apart, memory_bounded,
                           minority_decides_nothing, resumed_accuses_nobody, converges})
    list.push_back(make(world));
  return list;
}

}  // namespace dtrain::sim::membership
