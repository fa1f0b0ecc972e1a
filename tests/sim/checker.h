// A checker watches one invariant. It sees every event, effect, process and answer at the instant they happen, and
// reports the first break; the run ends there. One file each in checkers/.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

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

// What a checker may look at.
class WorldView {
 public:
  virtual ~WorldView() = default;
  virtual Instant now() const = 0;
  virtual const SimRunner& runner() const = 0;
  virtual const SimDisk& disk() const = 0;
  virtual const SimCheckpoints& checkpoints() const = 0;
  virtual const SimClient& client() const = 0;
  virtual const JobBook& book() const = 0;
  virtual const node::Node* node() const = 0;          // nullptr: the agent is down
  // A Node that has just started from what the disk holds now, beside the real one; its effects go nowhere.
  virtual std::unique_ptr<node::Node> replayed() const = 0;
  // Since when the agent has been up, awake, and with a disk that works.
  virtual Instant undisturbed_since() const = 0;
  virtual bool calm() const = 0;                        // faults are over
  virtual void violation(std::string_view invariant, std::string what) = 0;
};

class Checker {
 public:
  explicit Checker(WorldView& world) : world_(world) {}
  virtual ~Checker() = default;
  virtual std::string_view name() const = 0;
  virtual void on_event(const node::Event&) {}          // delivered to Node
  virtual void on_effect(const node::Effect&) {}
  virtual void process_started(const SimShim&) {}
  virtual void process_ended(const SimShim&) {}
  virtual void on_jobs(const wire::JobsReply&) {}        // what the observer is told, every few seconds
  virtual void on_reply(const SentRequest&, const wire::Message&) {}
  virtual void agent_dies() {}                           // before anything is lost
  virtual void at_rest() {}                              // faults were over long enough: all must have converged
  virtual void at_end() {}                               // and every job was cancelled

 protected:
  void violation(std::string what) { world_.violation(name(), std::move(what)); }
  WorldView& world_;
};

using CheckerList = std::vector<std::unique_ptr<Checker>>;
CheckerList all_checkers(WorldView& world);   // checkers/all.cpp

}  // namespace dtrain::sim
