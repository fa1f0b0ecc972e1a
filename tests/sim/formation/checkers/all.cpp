#include "tests/sim/formation/checkers/checkers.h"

namespace dtrain::sim::formation {

CheckerList all_checkers(WorldView& world) {
  CheckerList list;
  for (const Maker make : {never_two_clusters, one_promise, said_is_durable, begins_with_all, begun_is_kept, converges})
    list.push_back(make(world));
  return list;
}

}  // namespace dtrain::sim::formation
