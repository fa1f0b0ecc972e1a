// Stager: prepares this host for tasks (node::Stage) and cleans up behind jobs (node::RemoveJobFiles), in
// short-lived child processes, so that neither a slow disk nor a dead file server holds up the agent. They are copies of a
// process that begins with open() (fork_server.h): to be called while the agent is small, before it has secrets in memory.
//
// Work on one job is done by one child at a time, in the order asked for: tasks staged together share a
// child, and nothing about the job's copy can race. What is done: stage_work.h.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <variant>
#include <vector>

#include "agent/proc/fork_server.h"
#include "agent/proc/runner.h"
#include "agent/proc/stage_work.h"
#include "agent/proc/unique_fd.h"
#include "common/base/time.h"
#include "common/node/effect.h"

namespace dtrain::proc {

inline constexpr std::size_t kStagingChildren = 4;    // at once; further jobs wait
inline constexpr std::size_t kStagingQueue = 20'000;  // effects waiting; further ones fail with a limit error
inline constexpr Duration kStagingTime = 30min;       // of one child; then it is killed and its tasks fail

class Stager {
 public:
  static Result<std::unique_ptr<Stager>> open(StageDirs dirs);
  ~Stager();  // kills the children; what they left half-made is cleared away by the next
  Stager(const Stager&) = delete;
  Stager& operator=(const Stager&) = delete;

  void stage(const node::Stage& effect);            // -> Staged
  void remove(const node::RemoveJobFiles& effect);  // -> JobFilesRemoved

  int fd() const { return epoll_.get(); }  // readable when dispatch() has work
  Instant deadline() const;
  void dispatch(Instant now, EventSink& sink);

 private:
  using Work = std::variant<node::Stage, node::RemoveJobFiles>;
  struct Child {
    JobId job = 0;
    int pid = -1;
    UniqueFd pidfd;
    UniqueFd result;  // memory file that the child writes its answer to
    Instant give_up{};
    bool late = false;                            // killed for taking too long
    std::vector<node::Stage> stages;              // what it does: these,
    std::optional<node::RemoveJobFiles> removal;  // or this
  };

  Stager(std::unique_ptr<ForkServer> forks, UniqueFd epoll, UniqueFd work);
  void enqueue(JobId job, Work work);
  void set_work(bool wanted);
  void start_children(Instant now, EventSink& sink);
  Status start(Child& child, Instant now);
  void collect(Child& child, int status, EventSink& sink);
  void answer_failure(const Child& child, const Error& error, EventSink& sink) const;

  const std::unique_ptr<ForkServer> forks_;
  UniqueFd epoll_, work_;
  bool work_set_ = false;
  std::map<JobId, std::deque<Work>> queues_;
  std::size_t queued_ = 0;
  std::deque<JobId> order_;  // jobs with queued work and no child, first come first
  std::list<Child> children_;
  std::vector<node::Event> answers_;  // failures to tell at the next dispatch
};

}  // namespace dtrain::proc
