// Once faults are over and every task that can end does so soon and well, every job comes to its end, or has a reason
// to go on or to wait that the world knows to be true.
#include <algorithm>

#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {
namespace {

class EveryJobProgresses final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "every_job_progresses"; }

  void on_jobs(const wire::JobsReply& jobs) override { last_ = jobs; }

  void at_rest() override {
    for (std::size_t i = 0; i < world_.hosts(); ++i)
      if (world_.host_view(i).node() == nullptr) return violation("the agent is down although faults are over");
    const bool room_taken = std::any_of(last_.jobs.begin(), last_.jobs.end(),
                                        [&](const auto& v) { return runs_for_ever(v) || (is_final(v.state) && lives(v.id)); });
    for (const auto& view : last_.jobs) {
      if (is_final(view.state) || view.state == "Suspended" || runs_for_ever(view)) continue;
      if (room_freed_lately() && changed_lately(view.id)) continue;
      if (!lives(view.id) && (room_taken || nothing_to_restore(view.id) || never_fits(view)) && !view.reason.empty()) continue;
      return violation("job " + std::to_string(view.id) + " (" + view.name + ") is stuck in " + view.state +
                       (view.reason.empty() ? "" : ": " + view.reason));
    }
  }

 private:
  // What cleanPodPolicy None left running holds its room for good.
  bool lives(JobId id) const {
    for (std::size_t i = 0; i < world_.hosts(); ++i)
      for (const auto& [assignment, shim] : world_.host_view(i).runner().shims())
        if (assignment.job == id && shim.running) return true;
    return false;
  }

  // A role that restarts always keeps its job running for good, where its success would have decided.
  bool runs_for_ever(const wire::JobView& view) const {
    const job::JobSpec* spec = world_.book().spec_of(view.id);
    if (spec == nullptr || view.state == "Pending") return false;
    return std::any_of(spec->roles.begin(), spec->roles.end(),
                       [](const auto& role) { return role.second.restart_policy == job::RestartPolicy::always; });
  }

  // A job that would run for ever reached its activeDeadlineSeconds, and who waited for its room has only just begun (seed 2295).
  bool room_freed_lately() const {
    return std::ranges::any_of(last_.jobs, [&](const auto& v) { return is_final(v.state) && runs_for_ever(v) && changed_lately(v.id); });
  }
  bool changed_lately(JobId id) const {
    const KnownJob* known = world_.book().find(id);
    return known != nullptr && world_.now() - known->state_since < kLately;
  }

  // It ran, and before it was to begin again a user asked for more than there is.
  bool never_fits(const wire::JobView& view) const {
    const KnownJob* known = world_.book().find(view.id);
    return known != nullptr && known->steered != 0 && view.reason.find("can never run here: ") != std::string::npos;
  }

  // Every checkpoint the job once had is lost: it waits for a user to say "from scratch".
  bool nothing_to_restore(JobId id) const {
    const job::JobSpec* spec = world_.book().spec_of(id);
    if (spec == nullptr || !spec->checkpoint || spec->checkpoint->restore != "auto") return false;
    for (std::size_t i = 0; i < world_.hosts(); ++i)
      for (const SimCheckpoint& c : world_.checkpoints(i).in(spec->checkpoint->dir))
        if (c.good) return false;
    return true;
  }

  static constexpr Duration kLately = 30s;

  wire::JobsReply last_;
};

}  // namespace

std::unique_ptr<Checker> every_job_progresses(WorldView& world) { return std::make_unique<EveryJobProgresses>(world); }

}  // namespace dtrain::sim
