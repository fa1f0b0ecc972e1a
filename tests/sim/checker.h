// A checker watches one invariant. It sees every event, effect, process and answer as it happens, and reports the
// first violation; the run ends there. One file each in checkers/.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/cluster/ledger.h"
#include "common/node/effect.h"
#include "common/node/event.h"
#include "common/node/node.h"
#include "common/wire/control.h"
#include "tests/sim/job_book.h"
#include "tests/sim/sim_checkpoints.h"
#include "tests/sim/sim_client.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_runner.h"

namespace dtrain::sim {

// What a checker may look at on one host.
class HostView {
 public:
  virtual ~HostView() = default;
  virtual const std::string& name() const = 0;
  virtual const SimRunner& runner() const = 0;
  virtual const SimDisk& disk() const = 0;
  virtual std::uint64_t lives() const = 0;     // of the agent
  virtual const node::Node* node() const = 0;  // nullptr: the agent is down
  // Node's own index, but 0 for a copy of an older history of the cluster: see Checker::undone().
  virtual std::uint64_t ledger_index() const = 0;
  virtual bool of_older_history() const = 0;  // by what is on its disk
  virtual std::uint32_t knows() const = 0;    // its program, of the ledger: the newest version
  // A Node that has just started from the present content of the disk, beside the real one; its effects are dropped.
  virtual std::unique_ptr<node::Node> replayed() const = 0;
  // Since when the agent has been up and awake with a working disk, and nothing separated it from the others.
  virtual Instant undisturbed_since() const = 0;
};

// The same for all hosts.
class WorldView {
 public:
  virtual ~WorldView() = default;
  virtual Instant now() const = 0;
  virtual std::size_t hosts() const = 0;
  virtual const HostView& host_view(std::size_t number) const = 0;
  virtual const SimCheckpoints& checkpoints(std::size_t host) const = 0;  // as this host sees them: all hosts may share the same
  virtual Duration restore_wait() const = 0;                              // timing.restoreWait
  virtual bool host_hooks() const = 0;                                    // tasks.prolog and tasks.epilog, at all hosts
  virtual const SimClient& client() const = 0;
  virtual const JobBook& book() const = 0;
  virtual bool calm() const = 0;  // faults are over
  // True if the ledger has all observations of hosts by now.
  virtual bool all_reported() const = 0;
  // A request takes effect within this time, if ever.
  virtual Duration takes_effect() const = 0;
  // The newest copy that is up; an empty one if there is none. Valid until the agent there continues.
  virtual const cluster::Ledger& ledger() const = 0;
  virtual void violation(std::string_view invariant, std::string what) = 0;

  bool alone() const { return hosts() == 1; }
  // On any host; nullptr: there is none.
  const SimShim* find_shim(const AssignmentId& id) const {
    for (std::size_t i = 0; i < hosts(); ++i) {
      const auto& shims = host_view(i).runner().shims();
      if (const auto it = shims.find(id); it != shims.end()) return &it->second;
    }
    return nullptr;
  }
  // Of one that is there.
  std::size_t host_of(const SimShim& shim) const {
    for (std::size_t i = 0; i < hosts(); ++i) {
      const auto& shims = host_view(i).runner().shims();
      const auto own = shims.find(shim.spec.id);
      if (own != shims.end() && &own->second == &shim) return i;
    }
    return 0;
  }
};

class Checker {
 public:
  explicit Checker(WorldView& world) : world_(world) {}
  virtual ~Checker() = default;
  virtual std::string_view name() const = 0;
  virtual void on_event(const node::Event&) {}  // delivered to Node
  virtual void on_effect(const node::Effect&) {}
  virtual void stepped(std::size_t) {}  // the Node of that host; its effects are about to be performed
  virtual void process_started(const SimShim&) {}
  virtual void process_thawed(const SimShim&) {}
  virtual void process_ended(const SimShim&) {}
  // What the observer is told every few seconds by the agent with the newest ledger; never older than the last time.
  virtual void on_jobs(const wire::JobsReply&) {}
  virtual void on_asked(const SentRequest&) {}  // is about to reach the agent
  virtual void on_reply(const SentRequest&, const wire::Message&) {}
  virtual void agent_dies() {}  // before anything is lost
  // recover-quorum began a new history of the cluster after entry `last` of the log: later entries of the older
  // history are void.
  virtual void undone(std::uint64_t) {}
  virtual void at_rest() {}  // faults were over for long enough: everything must have converged
  virtual void at_end() {}   // and every job was cancelled

 protected:
  void violation(std::string what) { world_.violation(name(), std::move(what)); }
  WorldView& world_;
};

// Watches one host: is told only of its events, effects and processes, and of the end of its agent.
class HostChecker : public Checker {
 public:
  HostChecker(WorldView& world, std::size_t host) : Checker(world), host_(host) {}

 protected:
  const HostView& host() const { return world_.host_view(host_); }

 private:
  std::size_t host_;
};

using CheckerList = std::vector<std::unique_ptr<Checker>>;
CheckerList all_checkers(WorldView& world);                         // of the whole cluster; checkers/all.cpp
CheckerList all_host_checkers(WorldView& world, std::size_t host);  // of that host; likewise

}  // namespace dtrain::sim
