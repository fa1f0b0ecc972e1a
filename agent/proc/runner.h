// Runner: how assignments are run on this host. One small parent process (dtrain-shim) per assignment; attempts are
// restarts inside it. Two launchers (direct, systemd) and the simulator's fake pass one conformance suite
// (tests/conformance). The runner decides nothing: it does what Node's effects say and reports what happened.
//
// All calls return at once. Completions and unasked events go to the sink, only from dispatch(), on the caller's
// thread. fd() becomes readable (it is an epoll descriptor over everything the runner waits for) when dispatch() has
// work; deadline() is when dispatch() must be called at the latest.
//
// Files of one assignment lie in <tasks_dir>/<AssignmentId::text()>/ :
//   launch      what the shim was started with (binary, versioned; agent/dtrain-shim/protocol.h)
//   shim.sock   where a living shim listens
//   exit        record of the newest ended attempt, renamed into place (docs/shim.md)
//   notify      sd_notify datagrams of the task (NOTIFY_SOCKET; the shim adds it to the environment of every attempt,
//               with DTRAIN_ATTEMPT)
//   errors/     where ranks record the exceptions that end them (error_files.h)
//   log.K, log.K.idx   output (common/task/log_format.h)
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/time.h"
#include "common/node/effect.h"
#include "common/node/event.h"

namespace dtrain::proc {

using EventSink = std::function<void(node::Event)>;

struct RunnerOptions {
  std::string tasks_dir;                         // absolute; created when missing
  std::string shim_path;                         // absolute path of dtrain-shim
  std::string work_root;                         // StageDirs::work_root; "": tasks are given no TMPDIR
  std::string warm_path;                         // absolute path of dtrain-warm.py; "": no standbys (standbys.h)
  std::map<std::string, std::string> variables;  // that tasks get of this host, unless the job sets them
  std::uint64_t log_file_bytes = 64ull << 20;
  std::uint32_t log_files = 8;
  std::string cgroup;                            // whose children tasks are put into, as Cgroups::open() takes it; "": the agent's own
  std::map<std::string, std::uint64_t> ulimits;  // nofile, memlock, core; RLIM_INFINITY for unlimited
  std::vector<std::string> devices;  // devices that a task confined to its own GPUs may also open, in the form of systemd's DeviceAllow=
  std::string image_engine, image_program;  // of tasks that run in an image: the container engine and its program; "": there is none
  std::function<void(const Error&)> warn;   // called about what is missing but not needed; may be unset
};

class Runner {
 public:
  virtual ~Runner() = default;
  // Lists every assignment directory on this host; to be called once, before anything else. Connects to living shims
  // again (adopted): events that happened meanwhile are in the result, later ones go to the sink.
  virtual std::vector<task::FoundShim> list() = 0;
  virtual void launch(const task::ShimSpec& spec) = 0;                    // -> ShimUp
  virtual void start(const AssignmentId& id, AttemptNumber attempt) = 0;  // -> AttemptStarted | AttemptRefused; AttemptExited
  virtual void signal(const node::SignalTask& order) = 0;
  virtual void kill(const AssignmentId& id) = 0;                 // whole tree, also a frozen one
  virtual void freeze(const AssignmentId& id, bool freeze) = 0;  // -> FreezeDone
  // For a spec with a lease: start() only orders; LeaseAsked goes to the sink, and the attempt starts when the answer
  // grants the lease, or is refused if it is superseded, killed or ended before. LeaseFroze: docs/leases.md. These
  // calls have no completions.
  virtual void answer_lease(const node::AnswerLease& answer) = 0;
  virtual void require_lease(const node::RequireLease& demand) = 0;
  // -> ShimGone{expected}. If a shim dies by itself, ShimGone comes first, then what ended with it: AttemptRefused, AttemptExited.
  virtual void end(const AssignmentId& id) = 0;
  virtual void remove_files(const AssignmentId& id) = 0;  // after ShimGone: logs and all
  // Starts a program beside the task's main process, as a part of the task; all descriptors stay the caller's. What comes of it is
  // reported over `socket` (shim::LaunchedReport).
  struct Program {
    std::vector<std::string> argv;
    int input = -1, output = -1, errors = -1, socket = -1;
  };
  virtual Status run_beside(const AssignmentId& id, const Program& program) = 0;
  // The task whose process that is, by its ancestors; nullopt: it is not known whose. Not of one that is no task's (task_of_process.h).
  virtual std::optional<AssignmentId> task_of(pid_t process) const = 0;
  virtual int fd() const = 0;
  virtual Instant deadline() const = 0;
  virtual void dispatch(EventSink& sink) = 0;
};

}  // namespace dtrain::proc
