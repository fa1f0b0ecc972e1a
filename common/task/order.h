// What the coordinator wants of one host: the downward half of the conversation. Orders are full and
// idempotent: the same order again changes nothing.
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
  std::uint64_t placed = 0;  // by this entry of the log: a task that left a host may be given to it again, in the same generation
  std::shared_ptr<const JobContext> context;
  job::TaskAddress address;
  job::GpuIds gpu_ids;
  Desire desire = Desire::run;
  bool stop_known = false;  // the ledger knows that a stop with grace has begun: the signal may be sent
  bool go = false;          // barrier passed, predecessors in the order of start are there
  bool freeze = false;
  bool hold_restart = false;  // restarts wait for `release_attempt` (onPsFailure: freeze)
  AttemptNumber release_attempt = 0;
  AttemptNumber first_attempt = 1;    // of this assignment
  AttemptNumber known_attempt = 0;    // newest the ledger knows
  AttemptNumber exit_attempt = 0;     // newest exit the ledger knows
  AttemptNumber restart_attempt = 0;  // end this attempt with grace and start the next (asked for by a user)
  bool last_attempt = false;          // the signal before the job's deadline was sent: whatever ends now is not begun again
  bool in_place = true;               // false: a failure is the coordinator's to handle (recovery)
  Duration lease{0};                  // as the ledger knows that it ran under one; 0: not known
  bool still = false;                 // the job stands still: restarts wait, exits cost nothing
  bool beside_leased = false;         // other tasks of the job run under leases: they are frozen where nobody coordinates
  Duration stood_still{0};            // this assignment, as the ledger knows
  std::uint32_t consecutive_failures = 0;  // as the ledger knows, for the back-off
  std::vector<Instant> failures;           // within the threshold's window
  std::optional<std::vector<OwnGpu>> own_gpus;  // as ShimSpec's
  std::vector<OwnGpu> gpus;                     // its own, but those without a device node that is known
  std::vector<std::int32_t> gpu_nodes;          // NUMA nodes of its GPUs, where they are known
};

struct JobOrder {
  JobId job = 0;
  std::optional<std::uint32_t>
      budget_left;               // in-place restarts beyond those that known_attempt shows; unset: unlimited
  std::vector<TaskOrder> tasks;  // on this host; what is not here is to end at once
};

// What this host adds to each task's environment.
struct HostContext {
  std::string node_name;
  std::string task_interface;
  std::map<std::string, std::string> pass_env;
  Duration lease = 10s;         // timing.lease: of tasks that job::wants_lease() names
  bool needs_leases = false;    // the cluster has more than one host, or had
  std::vector<HostCpu> cpus{};  // that tasks get for themselves; empty: none do
};

}  // namespace dtrain::task
