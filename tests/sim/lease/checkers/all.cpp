#include "tests/sim/lease/checkers/checkers.h"

namespace dtrain::sim::lease {

CheckerList all_checkers(WorldView& world) {
  CheckerList list;
  for (const Maker make : {never_two, grant_is_fresh, not_frozen_for_ever, successor_in_time, answers_are_of_the_newest})
    list.push_back(make(world));
  return list;
}

}  // namespace dtrain::sim::lease
