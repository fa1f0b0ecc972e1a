// Restart rules that the ledger and the host share: which task may run again, and when.
#pragma once

#include <cstdint>
#include <string>

#include "common/job/exit.h"
#include "common/job/job_spec.h"

namespace dtrain::job {

// True if a task that ended like this may run again. Source: Kubeflow's training operator, pkg/core/pod.go: OnFailure
// restarts after any failure, Always after success too, Never not at all, ExitCode only from 128 upwards (death by
// signal n counts as 128+n), or only after the codes that the role lists. An end that is proven but not explained may be retried under
// every policy but Never. A program that could not be executed would fail the same way again and is never retried.
bool may_restart(const RoleSpec& role, const Exit& exit);

// Delay before the restart after `in_row` earlier ones without a healthy period: first, initial, 2*initial,
// ... max. Jitter (a quarter, downwards) is drawn from `seed`, so that the ledger's replay gives the same.
Duration backoff_delay(const RestartBackoff& policy, std::uint32_t in_row, std::uint64_t seed);

// For people: "exit code 3", "signal SIGKILL", "out of memory (signal SIGKILL)", "watchdog (signal SIGKILL)".
std::string describe(const Exit& exit);

// Which of the task's ranks failed first, plus one; 0: the task has none.
std::uint32_t failed_rank(const Exit& exit);
// "worker-1", or "worker-1.3" as the log of that rank is called.
std::string who_failed(const TaskId& task, const Exit& exit);

// SIGKILL for 9; "signal 77" for an unknown number.
std::string signal_name(std::int32_t signal);

}  // namespace dtrain::job
