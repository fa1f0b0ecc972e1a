#include "common/node/drain_views.h"

#include <algorithm>

#include "common/cluster/job_transition.h"

namespace dtrain::node {
namespace {

using cluster::JobRecord;

std::string why_there(const cluster::DrainedHost& drain, const JobRecord& job, const std::vector<TaskId>& there) {
  if (is_final(job.state)) return job.leave_running ? "has ended, and its cleanPodPolicy leaves them running" : "is ending";
  if (job.goal != cluster::Goal::run || job.halt == cluster::Halt::requested) return "is being stopped";
  const bool moves =
      job.halt != cluster::Halt::none || std::ranges::all_of(there, [&](const TaskId& id) { return job.tasks.at(id).moving; });
  if (moves) return "is leaving: its tasks end with their stop grace";
  const auto stays = drain.stays.find(job.id);
  return stays == drain.stays.end() ? "a place elsewhere is looked for" : "stays: " + stays->second;
}

}  // namespace

std::optional<wire::DrainView> drain_view(const Context& c, const NodeId& id, bool jobs) {
  const auto found = c.ledger.state().drained.find(id);
  if (found == c.ledger.state().drained.end()) return std::nullopt;
  const cluster::DrainedHost& drain = found->second;
  wire::DrainView v{drain.reason, drain.by, to_rfc3339(drain.since), {}, 0, {}};
  if (drain.deadline) v.deadline_s = std::chrono::duration_cast<std::chrono::seconds>(*drain.deadline - c.elapsed()).count();
  for (const auto& [job_id, job] : c.ledger.state().jobs) {
    const std::vector<TaskId> there = cluster::tasks_on(job, id);
    if (there.empty()) continue;
    v.tasks += static_cast<std::uint32_t>(there.size());
    if (jobs && v.jobs.size() < wire::kDrainedJobsShown)
      v.jobs.push_back({job.spec.name, static_cast<std::uint32_t>(there.size()), why_there(drain, job, there)});
  }
  return v;
}

std::string stays_on_drained(const Context& c, const JobRecord& job) {
  for (const auto& [id, drain] : c.ledger.state().drained) {
    const auto stays = drain.stays.find(job.id);
    if (stays != drain.stays.end() && !cluster::tasks_on(job, id).empty())
      return "stays on drained host " + drain.name + ": " + stays->second;
  }
  return "";
}

}  // namespace dtrain::node
