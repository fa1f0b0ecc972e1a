#include "common/node/orders.h"

#include <algorithm>

#include "common/job/framework.h"
#include "common/node/gpu_ids.h"

namespace dtrain::node {
namespace {

using cluster::JobRecord;
using cluster::TaskRecord;
using job::TaskState;

bool serves(const JobRecord& job, const TaskId& id) { return job::role_rules(job.spec.framework, id.role).serves; }

// onPsFailure: freeze - true if a ps that ran does not run now: it is being restarted alone while the others are frozen.
bool ps_is_away(const JobRecord& job) {
  if (job.spec.policy.on_ps_failure != job::OnPsFailure::freeze) return false;
  return std::any_of(job.tasks.begin(), job.tasks.end(), [&](const auto& entry) {
    const TaskRecord& t = entry.second;
    return serves(job, entry.first) && t.reached_running && !t.completed && !t.ended && t.state != TaskState::running;
  });
}

bool others_stand_still(const JobRecord& job) {
  return std::none_of(job.tasks.begin(), job.tasks.end(), [&](const auto& entry) {
    const TaskState s = entry.second.state;
    return (s == TaskState::running || s == TaskState::starting || s == TaskState::stopping) && !serves(job, entry.first);
  });
}

bool reached(const cluster::JobRecord& job, const std::string& role, job::StartAfter need) {
  return std::ranges::all_of(
      job.tasks, [&](const auto& entry) { return entry.first.role != role || has_reached(job, entry.first, entry.second, need); });
}

task::Desire desire(const JobRecord& job, const TaskId& id) {
  const task::Desire stop = job.graceful ? task::Desire::stop : task::Desire::kill;
  if (job.deleting) return stop;
  if (is_final(job.state)) {
    // A task that was left running and has died since is not begun again, and is ended so that its room becomes free.
    return job.leave_running && runs_on(job.tasks.at(id)) ? task::Desire::run : stop;
  }
  if (job.goal == cluster::Goal::suspend || job.halt != cluster::Halt::none) return stop;
  const auto role = job.spec.roles.find(id.role);
  const bool wanted = role != job.spec.roles.end() && id.index < role->second.replicas;
  return wanted && !job.tasks.at(id).moving ? task::Desire::run : task::Desire::stop;
}

// The GPUs that a task may open; nullopt: all, because GPU numbers count every GPU of the host, so that a task which
// is given numbers must see all.
std::optional<std::vector<task::OwnGpu>> own_gpus(const NodeFacts& facts, const std::vector<std::uint32_t>& indices) {
  std::vector<task::OwnGpu> own;
  for (const std::uint32_t index : indices) {
    const auto gpu = std::ranges::find(facts.gpus, index, &Gpu::index);
    if (gpu != facts.gpus.end() && gpu->pretended) continue;
    if (gpu == facts.gpus.end() || gpu->uuid.empty()) return std::nullopt;
    own.push_back({gpu->pci, gpu->vendor, gpu->minor});
  }
  return own;
}

// The GPUs whose device nodes are known, which excludes pretended ones.
std::vector<task::OwnGpu> with_nodes(const NodeFacts& facts, const std::vector<std::uint32_t>& indices) {
  std::vector<task::OwnGpu> found;
  for (const Gpu& gpu : facts.gpus)
    if (!gpu.pretended && gpu.minor >= 0 && std::ranges::find(indices, gpu.index) != indices.end())
      found.push_back({gpu.pci, gpu.vendor, gpu.minor});
  return found;
}

// The NUMA nodes of these GPUs, where they are known.
std::vector<std::int32_t> numa_nodes_of(const NodeFacts& facts, const std::vector<std::uint32_t>& indices) {
  std::vector<std::int32_t> nodes;
  for (const std::uint32_t index : indices) {
    const auto gpu = std::ranges::find(facts.gpus, index, &Gpu::index);
    if (gpu != facts.gpus.end() && gpu->numa >= 0) nodes.push_back(gpu->numa);
  }
  return nodes;
}

}  // namespace

bool has_reached(const JobRecord& job, const TaskId& id, const TaskRecord& t, job::StartAfter need) {
  if (t.completed || t.given_up) return true;
  if (need == job::StartAfter::succeeded) return false;
  return need == job::StartAfter::ready && job.spec.roles.at(id.role).notify ? t.ready : t.reached_running;
}

bool runs_on(const TaskRecord& t) {
  return t.left_running && (t.state == TaskState::running || t.state == TaskState::starting || t.state == TaskState::frozen);
}

std::shared_ptr<const task::JobContext> make_context(const JobRecord& job) {
  auto context = std::make_shared<task::JobContext>();
  context->spec = job.spec;
  context->user = job.user;
  context->cluster.job_name = job.spec.name;
  context->cluster.job = job.id;
  context->cluster.generation = job.generation;
  context->cluster.restore = job.restored;
  for (const auto& [id, t] : job.tasks) context->cluster.tasks[id] = t.place.address;
  return context;
}

bool is_current(const task::JobContext& context, const JobRecord& job) {
  return context.cluster.generation == job.generation &&
         std::equal(context.cluster.tasks.begin(), context.cluster.tasks.end(), job.tasks.begin(), job.tasks.end(),
                    [](const auto& told, const auto& task) {
                      const job::TaskAddress& address = task.second.place.address;
                      return told.first == task.first && told.second.host == address.host && told.second.port == address.port;
                    });
}

bool may_start(const JobRecord& job, const TaskId& task) {
  const bool all_staged = std::none_of(job.tasks.begin(), job.tasks.end(), [](const auto& entry) {
    const TaskRecord& t = entry.second;
    return !t.ended && (t.state == TaskState::waiting || t.state == TaskState::fetching);
  });
  if (!all_staged && !job.tasks.at(task).reached_running) return false;
  const auto& after = job.spec.roles.at(task.role).start_after;
  return std::all_of(after.begin(), after.end(),
                     [&](const auto& need) { return !job.spec.roles.contains(need.first) || reached(job, need.first, need.second); });
}

task::JobOrder make_orders(const JobRecord& job, const NodeFacts& facts, std::shared_ptr<const task::JobContext> context, OrderClock clock,
                           const BrokenRule& broken_rule) {
  task::JobOrder order;
  order.job = job.id;
  const bool granted = cluster::restarts_are_granted(job);
  if (const auto& limit = job.spec.policy.backoff_limit; limit && !granted) order.budget_left = *limit - std::min(*limit, job.budget_spent);
  const bool freeze_others = ps_is_away(job);
  const bool still = others_stand_still(job);
  const bool beside_leased = std::ranges::any_of(job.tasks, [](const auto& t) { return !t.second.ended && t.second.lease > 0ns; });
  for (const auto& [id, t] : job.tasks) {
    if (t.ended || t.place.node != facts.id) continue;
    task::TaskOrder o;
    o.id = {job.id, job.generation, id};
    o.placed = t.placed;
    o.context = context;
    o.address = t.place.address;
    o.gpu_ids = gpu_ids(facts.gpus, t.place.gpus);
    o.own_gpus = own_gpus(facts, t.place.gpus);
    o.gpus = with_nodes(facts, t.place.gpus);
    o.gpu_nodes = numa_nodes_of(facts, t.place.gpus);
    o.desire = desire(job, id);
    if (o.desire != task::Desire::run && broken_rule == "orphan-kill" && is_final(job.state)) o.desire = task::Desire::run;
    o.stop_known = t.state == TaskState::stopping;
    o.go = may_start(job, id) || broken_rule == "start-order";
    const bool freezing_ps = serves(job, id) && job.spec.policy.on_ps_failure == job::OnPsFailure::freeze;
    o.last_attempt = job.signalled;
    o.in_place = !is_final(job.state) && (!job::is_stateful(job.spec, id) || freezing_ps);
    o.freeze = freeze_others && !serves(job, id) && o.desire == task::Desire::run;
    o.hold_restart = freezing_ps || granted;
    o.release_attempt = freezing_ps && !still ? 0 : granted ? t.granted_attempt : t.attempt + 1;
    o.first_attempt = t.first_attempt;
    o.known_attempt = t.attempt;
    o.exit_attempt = t.exit_attempt;
    o.restart_attempt = t.restart_attempt;
    o.lease = t.lease;
    o.still = job.still_since.has_value();
    o.beside_leased = beside_leased;
    o.stood_still = t.stood_still;
    o.consecutive_failures = t.consecutive_failures;
    for (const Duration at : t.failures) o.failures.push_back(clock.now - (clock.elapsed - at));
    order.tasks.push_back(std::move(o));
  }
  return order;
}

}  // namespace dtrain::node
