// Stager: prepares this host for tasks (node::Stage) and cleans up behind jobs (node::RemoveJobFiles), in child processes, so that
// neither a slow disk nor a dead file server holds up the agent; except for a few tasks whose staging is brief (stage_work.h): to hand them
// over would cost several times as much as to do it. These workers do one errand after another: a process that is new to its
// memory and its name services needs ten times as long for one. They are copies of a process that begins with open() (fork_server.h): to be
// called while the agent is small, before it has secrets in memory.
//
// Work on one job is done by one worker at a time, in the order asked for: tasks staged together share an errand, and nothing about the
// job's copy can race. What is done: stage_work.h.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "agent/base/epoll.h"
#include "agent/proc/fork_server.h"
#include "agent/proc/runner.h"
#include "agent/proc/stage_work.h"
#include "common/base/time.h"
#include "common/node/effect.h"

namespace dtrain::proc {

// at once; further jobs wait. One runs from the start; others start when all are busy, and stay
inline constexpr std::size_t kStagingWorkers = 5;
inline constexpr std::size_t kStagingWorkersOfUser = 4;  // of kStagingWorkers, so that one is left to other users
inline constexpr std::size_t kBriefStages = 8;           // stagings of a job that the agent does itself; more go to a worker
inline constexpr std::size_t kStagingQueue = 20'000;     // effects waiting; further ones fail with a limit error
inline constexpr Duration kStagingTime = 30min;          // of one errand; then its worker is killed and its tasks fail

class Stager {
 public:
  static Result<std::unique_ptr<Stager>> open(StageDirs dirs);
  ~Stager();  // kills the workers; what they left half-made is cleared away by the next
  Stager(const Stager&) = delete;
  Stager& operator=(const Stager&) = delete;

  void stage(const node::Stage& effect);            // -> Staged
  void remove(const node::RemoveJobFiles& effect);  // -> JobFilesRemoved

  int fd() const { return epoll_.fd(); }  // readable when dispatch() has work
  Instant deadline() const;
  void dispatch(Instant now, EventSink& sink);

 private:
  using Work = std::variant<node::Stage, node::RemoveJobFiles>;
  struct Errand {
    JobId job = 0;
    UniqueFd result;  // memory file that the worker writes its answer to
    Instant give_up{};
    bool late = false;                            // its worker was killed for taking too long
    bool repeated = false;                        // a worker died of it, or had just died; it is another's now
    std::vector<node::Stage> stages;              // what is done: these,
    std::optional<node::RemoveJobFiles> removal;  // or this
  };
  struct Worker {
    int pid = -1;
    UniqueFd pidfd, socket;
    std::optional<Errand> errand;  // unset: idle
  };

  Stager(StageDirs dirs, std::unique_ptr<ForkServer> forks, Epoll epoll, WorkFlag work);
  void enqueue(JobId job, Work work);
  std::size_t busy() const;
  std::deque<JobId>::iterator next_for_worker();  // whose user may have one more; end: none
  bool can_start() { return next_for_worker() != for_workers_.end(); }
  void start_errands(Instant now, EventSink& sink);
  void stage_here(JobId job, EventSink& sink);
  void hand_over(JobId job, Instant now, EventSink& sink);
  Errand take_errand(JobId job);
  bool is_brief(JobId job) const;
  Status start(Errand& errand);
  bool repeat(Errand& errand);
  Result<Worker*> begin_worker();
  void finish(Errand errand, std::optional<int> status, EventSink& sink);
  void after_errand(JobId job);
  void answer_failure(const Errand& errand, const Error& error, EventSink& sink) const;

  const StageDirs dirs_;
  const std::unique_ptr<ForkServer> forks_;
  Epoll epoll_;
  WorkFlag work_;
  std::map<JobId, std::deque<Work>> queues_;
  std::size_t queued_ = 0;
  std::deque<JobId> order_;        // jobs with queued work that nobody has looked at yet, first come first
  std::deque<JobId> for_workers_;  // those that need a worker, which none is at
  std::list<Worker> workers_;
  std::vector<node::Event> answers_;  // failures to tell at the next dispatch
};

}  // namespace dtrain::proc
