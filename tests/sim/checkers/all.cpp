#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {

CheckerList all_checkers(WorldView& world) {
  CheckerList list;
  for (const auto make : {acknowledged_submit_never_lost, budgets_respected, completed_task_never_rerun,
                          every_job_progresses, gpus_not_shared, no_orphan, ports_not_reused, replay_equal, restore_choice,
                          single_completion, start_order, stateful_task_never_twice, stops_when_disk_fails})
    list.push_back(make(world));
  return list;
}

}  // namespace dtrain::sim
