// What a host saw of one of its tasks: the upward half of the conversation between hosts and the ledger.
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

enum class TaskState : unsigned char {
  waiting,
  fetching,
  staged,
  starting,
  running,
  frozen,
  backoff,
  stopping,
  succeeded,
  failed,
  lost
};
constexpr TaskState enum_last(TaskState) {
  return TaskState::lost;
}
std::string_view to_string(TaskState s);  // "running"

struct TaskObservation {
  AssignmentId id;
  TaskState state = TaskState::waiting;
  AttemptNumber attempt = 0;  // newest that was started
  std::int32_t pid = 0;       // while it runs
  WallTime started{};
  bool ready = false;
  bool ended = false;              // nothing runs and nothing will: the last observation of an assignment
  AttemptNumber exit_attempt = 0;  // 0: no exit to tell
  std::optional<Exit> exit;
  bool on_request = false;    // the end was ordered: no fault, no budget
  bool stage_failed = false;  // it never could start here
  ErrorCode stage_error = ErrorCode::internal;
  std::string reason;
  Duration lease{0};  // it runs under a lease of this length; 0: without one
  bool lease_frozen = false;  // it is frozen for want of a lease, not by an order
  bool spared = false;        // `exit` came while the job stood still, with its host, or before its attempt began: no budget
  Duration stood_still{0};    // frozen for want of a lease, in all of this assignment, up to the last thaw
  std::string host_refused = {};  // of a failed staging: why this host will not have the job, though others may; "": that is not it
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
  }
};

}  // namespace dtrain::job
