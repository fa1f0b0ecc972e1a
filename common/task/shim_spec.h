// What a runner needs to run one assignment, and what it answers. Shared by the task core, the launchers in
// agent/proc, and the simulator's fake runner.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/time.h"
#include "common/job/cluster_spec.h"
#include "common/job/exit.h"
#include "common/job/job_spec.h"

namespace dtrain::task {

using job::Exit;
using job::User;

// The part of node::Gpu that the launcher needs.
struct OwnGpu {
  std::string pci, vendor;
  std::int32_t minor = -1;
  bool operator==(const OwnGpu&) const = default;
  template <class V>
  void fields(V& v) {
    v("pci", pci);
    v("vendor", vendor);
    v("minor", minor);
  }
};

// That the task runs in an image (common/job/container_engine.h).
struct TaskImage {
  std::string name;                      // of the image
  std::vector<std::string> directories;  // of the host that the task may need, by its job
  std::vector<OwnGpu> gpus;              // its own, without those whose device node is not known
  bool operator==(const TaskImage&) const = default;
  template <class V>
  void fields(V& v) {
    v("name", name);
    v("directories", directories);
    v("gpus", gpus);
  }
};

// All that stays the same over an assignment's attempts.
struct ShimSpec {
  AssignmentId id;
  std::string job_name;
  User user;
  std::vector<std::string> argv;                          // argv[0] is looked up in env's PATH
  std::map<std::string, std::string> env;                 // DTRAIN_ATTEMPT is added per attempt by the shim
  std::vector<std::map<std::string, std::string>> ranks;  // job::rank_variables()
  bool first_leads = false;                               // FrameworkRules::first_leads
  std::string work_dir;
  std::uint16_t port = 0;          // tested by binding it before each start; 0: none
  std::string address;             // the address that port is on
  std::uint64_t memory_bytes = 0;  // 0: no limit
  std::uint64_t cpu_millis = 0;
  std::vector<std::string> gpu_ids;
  std::int32_t stop_signal = 15;
  Duration stop_grace{30s};
  bool exclusive = false;
  Duration lease{0};        // length of the lease that the task runs under (docs/leases.md); 0: no lease
  std::uint64_t epoch = 0;  // the highest of a coordinator that this agent knows: answers with a lower one are refused
  // Resources of the host, for a launcher that can confine the task to them (docs/shim.md).
  std::vector<std::uint32_t> cpus;               // logical CPUs of the task's own (bound_tasks.h); empty: none, and it may use all
  std::int32_t numa_node = -1;                   // memory of this NUMA node is used first; -1: any
  std::optional<std::vector<OwnGpu>> own_gpus;   // the only GPUs that it may open; nullopt: it may open all
  job::SignalTo signal_to = job::SignalTo::all;  // who gets the stop signal that the shim passes on
  std::vector<std::string> warm;                 // what its standby imports: job::warm_of()
  std::string error_file;                        // variable in which each rank is told where to record an error: FrameworkRules::error_file
  std::optional<TaskImage> image;                // nullopt: it runs on the host itself
  template <class V>
  void fields(V& v) {
    v("id", id);
    v("job_name", job_name);
    v("user", user);
    v("argv", argv);
    v("env", env);
    v("ranks", ranks);
    v("work_dir", work_dir);
    v("port", port);
    v("address", address);
    v("memory_bytes", memory_bytes);
    v("cpu_millis", cpu_millis);
    v("gpu_ids", gpu_ids);
    v("stop_signal", stop_signal);
    v("stop_grace", stop_grace);
    v("exclusive", exclusive);
    v("lease", lease);
    v("epoch", epoch);
    v("cpus", cpus);
    v("numa_node", numa_node);
    v("own_gpus", own_gpus);
    v("signal_to", signal_to);
    v("warm", warm);
    v("error_file", error_file);
    v("image", image);
    v("first_leads", first_leads);
  }
};

// What a new life of the agent finds of an assignment: a living shim, or what a shim left behind.
struct FoundShim {
  AssignmentId id;
  bool shim_alive = false;
  AttemptNumber attempt = 0;  // the highest that was ever started (0: none)
  bool running = false;       // the attempt's process lives
  std::int32_t pid = 0;
  WallTime started{};
  std::optional<Exit> exit;  // the exit of `attempt`, if it ended
  bool ready = false;        // READY=1 was received for `attempt`
  bool frozen = false;
  bool leased = false;              // it runs under a lease
  std::vector<std::uint32_t> cpus;  // the CPUs of its own with which a living shim was launched
  std::uint64_t epoch = 0;          // the highest of a coordinator that the shim has seen
  std::string status;               // last STATUS=
};

}  // namespace dtrain::task
