// The makers of all checkers of world membership, one file each.
#pragma once

#include "tests/sim/membership/checker.h"

namespace dtrain::sim::membership {

using Maker = std::unique_ptr<Checker> (*)(WorldView&);

std::unique_ptr<Checker> no_false_positives(WorldView&);
std::unique_ptr<Checker> crash_known_to_all(WorldView&);
std::unique_ptr<Checker> nobody_resurrected(WorldView&);
std::unique_ptr<Checker> left_stays_left(WorldView&);
std::unique_ptr<Checker> restart_seen_by_all(WorldView&);
std::unique_ptr<Checker> facts_reach_all(WorldView&);
std::unique_ptr<Checker> no_lasting_suspicion(WorldView&);
std::unique_ptr<Checker> one_name_one_member(WorldView&);
std::unique_ptr<Checker> clusters_stay_apart(WorldView&);
std::unique_ptr<Checker> memory_bounded(WorldView&);
std::unique_ptr<Checker> minority_decides_nothing(WorldView&);
std::unique_ptr<Checker> resumed_accuses_nobody(WorldView&);
std::unique_ptr<Checker> converges(WorldView&);

}  // namespace dtrain::sim::membership
