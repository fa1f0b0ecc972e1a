// What the coordinator orders one host to run. Orders are complete and idempotent: the same order again changes nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/time.h"
#include "common/job/cluster_spec.h"
#include "common/job/exit.h"
#include "common/job/job_spec.h"
#include "common/task/cpu_choice.h"
#include "common/task/shim_spec.h"

namespace dtrain::task {

// What all tasks of one generation share.
struct JobContext {
  job::JobSpec spec;
  job::ClusterView cluster;
  job::User user;
};

enum class Desire : unsigned char { run, stop, kill };  // stop: stop signal, grace, then kill

struct TaskOrder {
  AssignmentId id;
  // index of the log entry that placed the task here: a task that left a host may return to it in the same generation
  std::uint64_t placed = 0;
  std::shared_ptr<const JobContext> context;
  job::TaskAddress address;
  job::GpuIds gpu_ids;
  Desire desire = Desire::run;
  bool stop_known = false;  // the ledger has recorded the stop with grace, so the signal may be sent
  bool go = false;          // the barrier is passed and the roles that must start first have started
  bool freeze = false;
  bool hold_restart = false;  // restarts wait for `release_attempt` (onPsFailure: freeze)
  AttemptNumber release_attempt = 0;
  AttemptNumber first_attempt = 1;              // of this assignment
  AttemptNumber known_attempt = 0;              // the newest attempt that the ledger knows
  AttemptNumber exit_attempt = 0;               // the newest attempt whose exit the ledger knows
  AttemptNumber restart_attempt = 0;            // end this attempt with grace and start the next (a user asked for it)
  bool last_attempt = false;                    // the signal before the job's deadline was sent: what ends now is not restarted
  bool in_place = true;                         // false: the coordinator handles a failure (recovery)
  Duration lease{0};                            // the lease that the task runs under, by the ledger; 0: not known
  bool still = false;                           // the job stands still: restarts wait and exits cost nothing
  bool beside_leased = false;                   // other tasks of the job run under leases, and are frozen if nobody coordinates
  Duration stood_still{0};                      // how long this assignment stood still so far, by the ledger
  std::uint32_t consecutive_failures = 0;       // by the ledger; for the back-off
  std::vector<Instant> failures;                // within the threshold's window
  std::optional<std::vector<OwnGpu>> own_gpus;  // as in ShimSpec
  std::vector<OwnGpu> gpus;                     // its own GPUs, without those whose device node is not known
  std::vector<std::int32_t> gpu_nodes;          // NUMA nodes of its GPUs, where they are known
};

struct JobOrder {
  JobId job = 0;
  std::optional<std::uint32_t> budget_left;  // in-place restarts left beyond those that known_attempt includes; unset: unlimited
  std::vector<TaskOrder> tasks;              // on this host; an assignment that is missing is to end at once
};

// What this host adds to each task's environment.
struct HostContext {
  std::string node_name;
  std::string task_interface;
  std::map<std::string, std::string> pass_env;
  Duration lease = 10s;         // timing.lease, for the tasks that job::wants_lease() names
  bool needs_leases = false;    // the cluster has more than one host, or had
  std::vector<HostCpu> cpus{};  // that tasks may have for themselves; empty: none
  bool runs_images = false;     // else a task whose role names an image runs on the host itself
};

}  // namespace dtrain::task
