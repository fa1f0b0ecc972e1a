// ForkServer: children of this process that are no copies of it.
//
// fork() write-protects all memory of its caller: each page that is written afterwards is a fault, a copy and, where there is a second
// thread, a shoot-down of the other core's cached translation. An agent that forks for each job spends more on that than on the job. So a
// process that is begun while the agent is small forks instead, and its children are the agent's own: CLONE_PARENT, clone(2).
//
// It ends when its socket to the agent closes, however the agent ended. One that ended, or does not answer in time, is replaced at
// the next start(), by a copy of the agent as it is then.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>

#include "agent/base/unique_fd.h"
#include "common/base/result.h"
#include "common/base/time.h"

namespace dtrain::proc {

inline constexpr Duration kForkTime = 5s;  // for the server to report a child's pid

class ForkServer {
 public:
  // The work of a child. It has no open descriptors of the agent except the first three and this one.
  using Work = std::function<void(UniqueFd)>;

  // To be called early: the size of the calling process determines what a child costs.
  static Result<std::unique_ptr<ForkServer>> open(Work work);
  ~ForkServer();
  ForkServer(const ForkServer&) = delete;
  ForkServer& operator=(const ForkServer&) = delete;

  // Returns the pid of a new child of this process, which does the work and exits with 0; -errno on failure.
  pid_t start(int descriptor);

  pid_t pid() const { return pid_; }  // of the server; -1: there is none

 private:
  explicit ForkServer(Work work) : work_(std::move(work)) {}
  bool begin();
  void end();

  const Work work_;
  pid_t pid_ = -1;
  UniqueFd socket_;
};

}  // namespace dtrain::proc
