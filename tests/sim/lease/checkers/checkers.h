// The makers of all checkers of world lease.
#pragma once

#include "tests/sim/lease/checker.h"

namespace dtrain::sim::lease {

using Maker = std::unique_ptr<Checker> (*)(WorldView&);

std::unique_ptr<Checker> never_two(WorldView& world);
std::unique_ptr<Checker> grant_is_fresh(WorldView& world);
std::unique_ptr<Checker> not_frozen_for_ever(WorldView& world);
std::unique_ptr<Checker> successor_in_time(WorldView& world);
std::unique_ptr<Checker> answers_are_of_the_newest(WorldView& world);

}  // namespace dtrain::sim::lease
