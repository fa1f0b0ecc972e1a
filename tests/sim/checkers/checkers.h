// One maker for each checker; the file of its name has the checker and states the invariant.
#pragma once

#include <memory>

#include "tests/sim/checker.h"

namespace dtrain::sim {

std::unique_ptr<Checker> acknowledged_submit_never_lost(WorldView& world);
std::unique_ptr<Checker> budgets_respected(WorldView& world);
std::unique_ptr<Checker> completed_task_never_rerun(WorldView& world);
std::unique_ptr<Checker> consequences_cost_nothing(WorldView& world);
std::unique_ptr<Checker> copies_equal(WorldView& world);
std::unique_ptr<Checker> drained_gets_nothing(WorldView& world);
std::unique_ptr<Checker> enough_tasks(WorldView& world);
std::unique_ptr<Checker> every_job_progresses(WorldView& world);
std::unique_ptr<Checker> frozen_costs_nothing(WorldView& world);
std::unique_ptr<Checker> gang_begins_whole(WorldView& world);
std::unique_ptr<Checker> grows_into_room(WorldView& world);
std::unique_ptr<Checker> ledger_linearisable(WorldView& world);
std::unique_ptr<Checker> lost_host_rests(WorldView& world);
std::unique_ptr<Checker> moves_wait_for_the_frozen(WorldView& world);
std::unique_ptr<Checker> preempted_for_higher(WorldView& world);
std::unique_ptr<Checker> reads_what_it_knows(WorldView& world);
std::unique_ptr<Checker> reports_of_its_host(WorldView& world);
std::unique_ptr<Checker> restore_choice(WorldView& world);
std::unique_ptr<Checker> start_order(WorldView& world);
std::unique_ptr<Checker> stateful_task_never_twice(WorldView& world);

// Checkers of one host.
std::unique_ptr<Checker> cpus_not_shared(WorldView& world, std::size_t host);
std::unique_ptr<Checker> gpus_reclaimed(WorldView& world, std::size_t host);
std::unique_ptr<Checker> gpus_not_shared(WorldView& world, std::size_t host);
std::unique_ptr<Checker> grants_are_of_the_newest(WorldView& world, std::size_t host);
std::unique_ptr<Checker> hooks_around_tasks(WorldView& world, std::size_t host);
std::unique_ptr<Checker> no_orphan(WorldView& world, std::size_t host);
std::unique_ptr<Checker> ports_not_reused(WorldView& world, std::size_t host);
std::unique_ptr<Checker> restarts_wait_for_the_frozen(WorldView& world, std::size_t host);
std::unique_ptr<Checker> replay_equal(WorldView& world, std::size_t host);
std::unique_ptr<Checker> single_completion(WorldView& world, std::size_t host);
std::unique_ptr<Checker> stops_when_disk_fails(WorldView& world, std::size_t host);

}  // namespace dtrain::sim
