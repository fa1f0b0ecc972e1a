// What a runner needs to run one assignment, and what it answers. Shared by the task core, the launchers in
// agent/proc, and the simulator's fake.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/time.h"
#include "common/job/cluster_spec.h"

namespace dtrain::task {

// How an attempt ended. Exactly one of code and signal is meaningful.
struct Exit {
  std::int32_t code = 0;        // exit status when signal == 0
  std::int32_t signal = 0;      // death by this signal
  bool unknown = false;         // the end is proven (shim or host gone) but not how
  bool out_of_memory = false;
  std::string cause;            // "" or: watchdog | could not execute python4: No such file or directory | shim died ...
  std::string stderr_tail;      // last lines, bounded by limits::kStderrTailBytes

  bool success() const { return !unknown && signal == 0 && code == 0; }
  template <class V> void fields(V& v) {
    v("code", code); v("signal", signal); v("unknown", unknown); v("out_of_memory", out_of_memory);
    v("cause", cause); v("stderr_tail", stderr_tail);
  }
};

// Who a task runs as. A job never runs as a user that its submitter is not.
struct User {
  std::string name;
  std::uint32_t uid = 0;
  template <class V> void fields(V& v) { v("name", name); v("uid", uid); }
};

// Everything about an assignment that stays the same over its attempts.
struct ShimSpec {
  AssignmentId id;
  std::string job_name;
  User user;
  std::vector<std::string> argv;              // argv[0] is looked up in env's PATH
  std::map<std::string, std::string> env;     // DTRAIN_ATTEMPT is added per attempt by the shim
  std::string work_dir;
  std::uint16_t port = 0;                     // bind-tested before each start; 0: none
  std::string address;                        // the address that port is on
  std::uint64_t memory_bytes = 0;             // 0: no limit
  std::uint64_t cpu_millis = 0;
  std::vector<std::string> gpu_ids;
  std::int32_t stop_signal = 15;
  Duration stop_grace{30s};
  bool exclusive = false;
  template <class V> void fields(V& v) {
    v("id", id); v("job_name", job_name); v("user", user); v("argv", argv); v("env", env); v("work_dir", work_dir);
    v("port", port); v("address", address); v("memory_bytes", memory_bytes); v("cpu_millis", cpu_millis);
    v("gpu_ids", gpu_ids); v("stop_signal", stop_signal); v("stop_grace", stop_grace); v("exclusive", exclusive);
  }
};

// What a returning agent finds of an assignment: a living shim, or what one left behind.
struct FoundShim {
  AssignmentId id;
  bool shim_alive = false;
  AttemptNumber attempt = 0;        // highest that was ever started (0: none)
  bool running = false;             // the attempt's process lives
  std::int32_t pid = 0;
  WallTime started{};
  std::optional<Exit> exit;         // of `attempt`, when it ended
  bool ready = false;               // READY=1 was received for `attempt`
  bool frozen = false;
  std::string status;               // last STATUS=
};

}  // namespace dtrain::task
