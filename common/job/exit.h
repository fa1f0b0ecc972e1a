// How a task's process ended, and who it ran as. Shared by the host's side (task) and the ledger's (cluster).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/time.h"
#include "common/wire/since.h"

namespace dtrain::job {

// What a rank wrote down itself about the exception that ended it (recorded_error.h).
struct RecordedError {
  std::uint32_t rank = 0;  // as Exit::rank
  WallTime at{};           // when, by the clock of the task's host
  std::string message;     // one line, bounded by limits::kReasonBytes
  std::string stack;       // the last lines of its stack, bounded by limits::kStderrTailBytes
  bool operator==(const RecordedError&) const = default;
  template <class V>
  void fields(V& v) {
    v("rank", rank);
    v("at", at);
    v("message", message);
    v("stack", stack);
  }
};

// How an attempt ended. signal != 0: death by that signal; else the exit status is `code`.
struct Exit {
  std::int32_t code = 0;
  std::int32_t signal = 0;
  bool unknown = false;  // the end is proven (shim or host gone), but not how it came
  bool out_of_memory = false;
  std::string cause;        // "" or: watchdog | could not execute python4: No such file or directory | shim died ...
  std::string stderr_tail;  // last lines, bounded by limits::kStderrTailBytes
  bool with_host = false;   // its host was being stopped and asked it to end: whatever the code, the task is neither done nor at fault
  bool port_taken = false;  // it failed soon after its start while another program had its port: its place is at fault

  std::uint32_t rank = 0;                 // of a task with ranks: one more than the LOCAL_RANK of the rank whose end this is
  WallTime ended{};                       // by the clock of the task's host; only of a task that failed
  std::optional<RecordedError> recorded;  // the earliest of its ranks; only of a task that failed

  bool success() const { return !unknown && !with_host && signal == 0 && code == 0; }
  template <class V>
  void fields(V& v) {
    v("code", code);
    v("signal", signal);
    v("unknown", unknown);
    v("out_of_memory", out_of_memory);
    v("cause", cause);
    v("stderr_tail", stderr_tail);
    v("with_host", with_host);
    v("port_taken", port_taken);
    v("rank", rank, wire::Since{3});
    v("ended", ended, wire::Since{3});
    v("recorded", recorded, wire::Since{3});
  }
};

// Who a task runs as: always the user who submitted the job.
struct User {
  std::string name;
  std::uint32_t uid = 0;
  template <class V>
  void fields(V& v) {
    v("name", name);
    v("uid", uid);
  }
};

}  // namespace dtrain::job
