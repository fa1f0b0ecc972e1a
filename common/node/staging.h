// What is done on this host before a task may run here and after it ended: an ordered list of steps (docs/adding.md).
//
//   the task is to be staged           begin() of each step in turn, the next one once the step before has passed; then Stage (the
//                                      agent looks for a port and makes the working copy), and the task is told
//   the task's shim is launched        launching() of each step
//   an attempt is to begin             it waits while any step holds() it
//   nothing of the assignment is left  ended() of each step; the end is reported once every step that keeps it has let it go
//
// A step is a class of its own and an entry of Node's list; its answers reach it as those of any other part. What must survive the agent
// is a note on the disk, under the step's name and a key that the step chooses (an assignment or a job).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/node/context.h"
#include "common/node/part.h"
#include "common/task/order.h"

namespace dtrain::node {

class Staging;

struct StagedTask {
  Stage stage;
  std::vector<task::OwnGpu> gpus;  // its own, without those whose device node is not known
};

class StagingStep : public Part {
 public:
  // `name`: of its notes on the disk, and so never to be changed.
  StagingStep(Context& context, Staging& staging, std::string name)
      : Part(Runs::with_disk), c_(context), staging_(staging), name_(std::move(name)) {}
  const std::string& name() const { return name_; }

  // At the start, for each note of an earlier life.
  virtual void restore(const std::string& /*key*/, const std::string& /*note*/) {}
  // Each begin() is followed by one pass() or refuse() for that assignment, unless give_up() comes first.
  virtual void begin(const StagedTask& task) { pass(task.stage.id); }
  virtual void give_up(const AssignmentId&) {}
  // The agent could not stage the task. Returns true if this step provides what was missing: then it calls pass() later, and the steps
  // after it follow again.
  virtual bool provides(const StagedTask&, const Staged&) { return false; }
  virtual void launching(const task::TaskOrder&) {}
  // Returns true if the attempt that is to begin must wait until let_begin().
  virtual bool holds(const AssignmentId&) { return false; }
  // `since`: when it began here. Returns true if its end must not be reported before let_go().
  virtual bool ended(const task::TaskOrder&, Instant /*since*/) { return false; }
  // False while it is not known what an assignment that ended has left behind here.
  virtual bool settled() const { return true; }

 protected:
  void pass(const AssignmentId& id);
  // `host_refused` as in Staged.
  void refuse(const AssignmentId& id, Error error, std::string host_refused = {});
  void wait(const AssignmentId& id, std::string reason);  // what its staging waits for, for people; "": for nothing
  void let_begin(const AssignmentId& id);
  void let_go(const AssignmentId& id);
  // Each returns the ticket of persisted().
  std::uint64_t put_note(const std::string& key, std::string note);
  std::uint64_t erase_note(const std::string& key);

  Context& c_;

 private:
  Staging& staging_;
  std::string name_;
};

class Staging {
 public:
  explicit Staging(Context& context) : c_(context) {}
  // In order; to be called once, before the first event.
  void use(std::vector<StagingStep*> steps) { steps_ = std::move(steps); }
  void start(const std::map<std::string, std::string>& records);

  // ---- for the tasks
  void stage(const task::TaskOrder& order);
  // The agent's answer to Stage. Returns true if a step provides what was missing; otherwise the task is to be told. `wanted`: the
  // assignment is still to run here.
  bool staged(const Staged& e, bool wanted);
  std::vector<AssignmentId> in_steps(JobId job) const;
  void give_up(const AssignmentId& id);
  void launching(const task::TaskOrder& order);
  void begin_attempt(const AssignmentId& id, AttemptNumber attempt);
  void end_shim(const AssignmentId& id);
  void ended(const task::TaskOrder& order, Instant since);
  bool settled() const;
  // Since the last call: reasons why stagings wait; assignments whose end may now be reported. A refused staging is an event (Staged).
  bool has_news() const { return !reasons_.empty() || !over_.empty(); }
  std::vector<std::pair<AssignmentId, std::string>> take_reasons() { return std::exchange(reasons_, {}); }
  std::vector<AssignmentId> take_over() { return std::exchange(over_, {}); }

 private:
  friend class StagingStep;
  struct Place {
    StagedTask task;
    std::size_t step = 0;  // index of the step that it is in; the number of steps: the agent stages it
  };
  void go_on(const AssignmentId& id);
  void passed(const StagingStep& step, const AssignmentId& id);
  void refused(const AssignmentId& id, Error error, std::string host_refused);
  bool is_held(const AssignmentId& id);

  Context& c_;
  std::vector<StagingStep*> steps_;
  std::map<AssignmentId, Place> places_;                // at most one for each task of this host
  std::map<AssignmentId, AttemptNumber> held_;          // attempts that wait for a step
  std::map<AssignmentId, std::set<std::string>> kept_;  // ends that wait, with the names of the steps that keep them
  std::vector<std::pair<AssignmentId, std::string>> reasons_;
  std::vector<AssignmentId> over_;
};

}  // namespace dtrain::node
