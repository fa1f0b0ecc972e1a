// Shims that have left their assignment and wait for another: to start and to end a process costs more than all else that a shim does for a
// short task. A spare one has no files open and no task; it ends when its connection is closed, so with the agent at the latest.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "agent/base/unique_fd.h"
#include "common/base/time.h"

namespace dtrain::proc {

inline constexpr std::size_t kSpareShims = 64;     // of an agent; further ones end at once
inline constexpr Duration kSpareShimTime = 1s;    // one that waits longer ends

// A shim that the agent started.
struct ShimProcess {
  UniqueFd socket;             // our end of its connection
  UniqueFd pidfd;
  std::size_t path_room = 0;   // its argument names its directory: one with a longer path cannot be told to it. 0: it serves one assignment
};

void kill_process(const UniqueFd& pidfd);  // without one: nothing

class SpareShims {
 public:
  ~SpareShims() = default;     // they end; the kernel gives them to another parent
  void keep(ShimProcess shim, Instant now);
  // One that has been told to serve the assignment in that directory, whose launch file must be there. Nullopt: there is none.
  std::optional<ShimProcess> take(const std::string& directory, Instant now);

  void pass_time(Instant now);
  Instant deadline() const;

 private:
  struct Spare {
    ShimProcess shim;
    Instant until;
  };
  void dismiss(ShimProcess shim, Instant now);

  std::deque<Spare> spare_;        // the longest waiting first
  std::deque<UniqueFd> ending_;    // pidfds of those that end
  Instant look_at_ = kNever;       // after them
  Duration pause_{0};
};

}  // namespace dtrain::proc
