// What a host observed of one of its tasks, as hosts report it to the ledger.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/base/time.h"
#include "common/job/exit.h"

namespace dtrain::job {

enum class TaskState : unsigned char { waiting, fetching, staged, starting, running, frozen, backoff, stopping, succeeded, failed, lost };
constexpr TaskState enum_last(TaskState) { return TaskState::lost; }
std::string_view to_string(TaskState s);  // "running"

// What there is to tell of the process that waits beside a task (docs/warm-standby.md).
enum class StandbyNews : unsigned char { none, ready, used, failed };
constexpr StandbyNews enum_last(StandbyNews) { return StandbyNews::failed; }

struct TaskObservation {
  AssignmentId id;
  TaskState state = TaskState::waiting;
  AttemptNumber attempt = 0;  // newest that was started
  std::int32_t pid = 0;       // while it runs
  WallTime started{};
  bool ready = false;
  bool ended = false;              // nothing runs and nothing will: the last observation of the assignment
  AttemptNumber exit_attempt = 0;  // 0: there is no exit to report
  std::optional<Exit> exit;
  bool on_request = false;    // the end was ordered: no fault, and no budget spent
  bool stage_failed = false;  // it could not start here
  ErrorCode stage_error = ErrorCode::internal;
  std::string reason;
  Duration lease{0};          // of the lease that it runs under; 0: it has none
  bool lease_frozen = false;  // it is frozen for want of a lease, not by an order
  bool spared = false;        // `exit` came while the job stood still, with its host, or before its attempt began, and spends no budget
  Duration stood_still{0};    // total time frozen for want of a lease in this assignment, up to the last thaw
  StandbyNews standby = StandbyNews::none;  // since the last observation
  std::string standby_cause = {};           // of its failure
  bool process_stopped = false;             // it runs, but somebody stopped a process of it: `reason` says which
  std::string host_refused = {};  // after a failed staging: why this host refuses the job, though others may take it; "": it does not
  template <class V>
  void fields(V& v) {
    v("id", id);
    v("state", state);
    v("attempt", attempt);
    v("pid", pid);
    v("started", started);
    v("ready", ready);
    v("ended", ended);
    v("exit_attempt", exit_attempt);
    v("exit", exit);
    v("on_request", on_request);
    v("stage_failed", stage_failed);
    v("stage_error", stage_error);
    v("reason", reason);
    v("lease", lease);
    v("lease_frozen", lease_frozen);
    v("spared", spared);
    v("stood_still", stood_still);
    v("host_refused", host_refused);
    v("standby", standby, wire::Since{3});
    v("standby_cause", standby_cause, wire::Since{3});
    v("process_stopped", process_stopped, wire::Since{3});
  }
};

}  // namespace dtrain::job
