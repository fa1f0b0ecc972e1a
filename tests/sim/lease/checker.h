// A checker of world lease watches one invariant. It is told what really happened on the hosts, never what anybody
// believes, and reports the first violation; the run ends there. One file each in checkers/.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/lease.h"
#include "common/base/time.h"
#include "tests/sim/lease/message.h"

namespace dtrain::sim::lease {

// A shim: one assignment on one host.
struct Instance {
  std::uint32_t number = 0;  // unique in a run
  std::uint32_t task = 0;
  Generation generation = 0;
  Slot host = 0;
};

class WorldView {
 public:
  virtual ~WorldView() = default;
  virtual Instant now() const = 0;
  virtual void violation(std::string_view invariant, std::string what) = 0;
};

inline std::string name(const Instance& instance) {
  return "task " + std::to_string(instance.task) + " generation " + std::to_string(instance.generation) + " on m" +
         std::to_string(instance.host);
}

class Checker {
 public:
  explicit Checker(WorldView& world) : world_(world) {}
  virtual ~Checker() = default;
  virtual std::string_view name() const = 0;

  // Its processes began to run or ceased to. `excused`: its host was stopped when the lease ended, and continued less
  // than kExposure ago; excuse_over() follows.
  virtual void executing(const Instance&, bool /*on*/, bool /*excused*/) {}
  virtual void excuse_over(const Instance&) {}
  // It started or was thawed by a grant that was asked for at `asked`; the start had been ordered, or its freezing
  // had begun, at `since`.
  virtual void let_run(const Instance&, Instant /*asked*/, Instant /*since*/) {}
  // An agent passed an answer on, while its copy of the log followed the coordinator of epoch `follows`; a shim used one.
  virtual void passed_on(const Instance&, std::uint64_t /*epoch*/, std::uint64_t /*follows*/) {}
  virtual void answer_taken(const Instance&, std::uint64_t /*epoch*/) {}
  // The end of a run, when all is well: this host, or only its agent, is lost for good. A successor of the task must
  // run within [earliest, latest].
  virtual void lost_for_good(std::uint32_t /*task*/, Instant /*earliest*/, Instant /*latest*/) {}
  // All was well for long enough. `standing`: instances that exist and do not run.
  virtual void at_rest(const std::vector<Instance>& /*standing*/) {}
  virtual void over() {}  // the run

 protected:
  void violation(std::string what) { world_.violation(name(), std::move(what)); }
  WorldView& world_;
};

using CheckerList = std::vector<std::unique_ptr<Checker>>;
CheckerList all_checkers(WorldView& world);  // checkers/all.cpp

}  // namespace dtrain::sim::lease
