// At no instant do two instances of one task of a job live, on whichever hosts, and when a generation's first task starts, nothing of an
// older generation of that job lives any more.
//
// What has a lease may stand still elsewhere, frozen for want of a grant, until its host hears that it was superseded: of such
// tasks no two run at any instant, starts and thaws alike, whatever is between the hosts.
//
// But for tasks that may: what can do no harm is begun elsewhere while its host is away, where it may run on. It ends when the
// host is back.
#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {
namespace {

class StatefulTaskNeverTwice final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "stateful_task_never_twice"; }

  void process_started(const SimShim& shim) override {
    const AssignmentId& id = shim.spec.id;
    for (std::size_t i = 0; i < world_.hosts(); ++i) judge(id, i, &shim, "started");
  }
  void process_thawed(const SimShim& shim) override {
    const AssignmentId& id = shim.spec.id;
    if (shim.lease && !may_run_twice(id))
      for (std::size_t i = 0; i < world_.hosts(); ++i) judge(id, i, &shim, "was thawed");
  }

  void on_jobs(const wire::JobsReply&) override { nothing_superseded_is_left(); }
  void at_rest() override { nothing_superseded_is_left(); }

 private:
  // A host that was away ends the tasks that run on other hosts by now as soon as it hears of that.
  static constexpr Duration kAwayLately = 40s, kEnded = 20s;

  void judge(const AssignmentId& id, std::size_t host, const SimShim* started, const std::string& how) {
    const auto& shims = world_.host_view(host).runner().shims();
    const auto own = shims.find(id);
    const bool here = own != shims.end() && &own->second == started;
    for (auto it = shims.lower_bound(AssignmentId{id.job, 0, {}}); it != shims.end() && it->first.job == id.job; ++it) {
      const auto& [other, state] = *it;
      if (!state.running || &state == started) continue;
      if (!here && may_run_twice(other) && was_away(host)) continue;
      if (!here && may_run_twice(id) && was_away(world_.host_of(*started))) continue;  // that host starts it again by itself (seed 666)
      if (!here && state.lease && state.frozen) continue;
      if (other.task == id.task) return violation(id.text() + " " + how + " while " + other.text() + " ran");
      if (other.generation != id.generation)
        return violation(id.text() + " " + how + " while " + other.text() + " of another generation ran");
    }
  }

  bool may_run_twice(const AssignmentId& id) const {
    const job::JobSpec* spec = world_.book().spec_of(id.job);
    return spec != nullptr && !job::must_not_run_twice(*spec, id.task);
  }
  bool was_away(std::size_t host) const {
    const HostView& view = world_.host_view(host);
    return view.node() == nullptr || world_.now() - view.undisturbed_since() < kAwayLately;
  }

  void nothing_superseded_is_left() {
    std::map<std::pair<JobId, TaskId>, const SimShim*> running;
    for (std::size_t i = 0; i < world_.hosts(); ++i) {
      const HostView& view = world_.host_view(i);
      if (view.node() == nullptr || world_.now() - view.undisturbed_since() < kEnded) return;
    }
    for (std::size_t i = 0; i < world_.hosts(); ++i)
      for (const auto& [id, shim] : world_.host_view(i).runner().shims())
        if (shim.running && !running.try_emplace({id.job, id.task}, &shim).second)
          return violation(id.text() + " runs on two hosts, though all of them hear each other");
  }
};

}  // namespace

std::unique_ptr<Checker> stateful_task_never_twice(WorldView& world) { return std::make_unique<StatefulTaskNeverTwice>(world); }

}  // namespace dtrain::sim
