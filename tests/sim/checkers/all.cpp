#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {

CheckerList all_checkers(WorldView& world) {
  CheckerList list;
  for (const auto make : {acknowledged_submit_never_lost,
                          budgets_respected,
                          completed_task_never_rerun,
                          consequences_cost_nothing,
                          copies_equal,
                          drained_gets_nothing,
                          enough_tasks,
                          every_job_progresses,
                          frozen_costs_nothing,
                          gang_begins_whole,
                          grows_into_room,
                          ledger_linearisable,
                          lost_host_rests,
                          moves_wait_for_the_frozen,
                          preempted_for_higher,
                          reads_what_it_knows,
                          reports_of_its_host,
                          restore_choice,
                          start_order,
                          stateful_task_never_twice})
    list.push_back(make(world));
  return list;
}

CheckerList all_host_checkers(WorldView& world, std::size_t host) {
  CheckerList list;
  for (const auto make : {cpus_not_shared, gpus_not_shared, gpus_reclaimed, grants_are_of_the_newest, hooks_around_tasks, no_orphan,
                          ports_not_reused, replay_equal, restarts_wait_for_the_frozen, single_completion, stops_when_disk_fails})
    list.push_back(make(world, host));
  return list;
}

}  // namespace dtrain::sim
