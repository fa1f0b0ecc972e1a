// Shims that have left their assignment and wait for another one: starting and ending a process costs more than all
// else that a shim does for a short task. A spare shim has no files open and no task; it ends when its connection is
// closed, and so with the agent at the latest.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "agent/base/unique_fd.h"
#include "common/base/time.h"

namespace dtrain::proc {

inline constexpr std::size_t kSpareShims = 64;  // of an agent; further ones end at once
inline constexpr Duration kSpareShimTime = 1s;  // a shim that waits longer ends

// A shim that the agent started.
struct ShimProcess {
  UniqueFd socket;  // our end of its connection
  UniqueFd pidfd;
  // the shim's argument names its directory, so it can serve no assignment with a longer path. 0: it serves only one
  // assignment
  std::size_t path_room = 0;
};

void kill_process(const UniqueFd& pidfd);  // without a pidfd: does nothing
bool is_dead(const UniqueFd& pidfd);       // whoever its parent is; false without a pidfd
bool has_ended(const UniqueFd& pidfd);     // takes its end from the kernel, if it is this process's child
// Tells a shim that stays to serve the assignment in that directory, whose launch file must be there. False: it is gone.
bool serve(const UniqueFd& socket, const std::string& directory);

class SpareShims {
 public:
  ~SpareShims() = default;  // they end; the kernel gives them another parent
  void keep(ShimProcess shim, Instant now);
  // Returns a shim that was told to serve the assignment in that directory, whose launch file must be there. nullopt:
  // there is none.
  std::optional<ShimProcess> take(const std::string& directory, Instant now);

  // Ends one that is not to be kept.
  void dismiss(ShimProcess shim, Instant now);

  void pass_time(Instant now);
  Instant deadline() const;

 private:
  struct Spare {
    ShimProcess shim;
    Instant until;
  };

  std::deque<Spare> spare_;      // the one that has waited longest first
  std::deque<UniqueFd> ending_;  // pidfds of those that end
  Instant look_at_ = kNever;     // after them
  Duration pause_{0};
};

}  // namespace dtrain::proc
