#include "common/node/host_capacities.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/cluster/placement.h"
#include "common/job/container_engine.h"
#include "common/node/cluster_members.h"
#include "common/node/cluster_views.h"

namespace dtrain::node {
namespace {

std::optional<gossip::MemberView> member_of(const Context& c, const NodeId& id) {
  const auto member = MemberId::parse(id);
  return member ? c.members->table().find(*member) : std::nullopt;
}

// The identity of a member that the record names and that no member has seen since this agent's start.
const wire::Identity* absent(const Context& c, const NodeId& id) {
  const auto named = MemberId::parse(id);
  return named ? c.members->table().absent(*named) : nullptr;
}

void add_others(const Context& c, bool lost_ones, std::vector<cluster::HostCapacity>& with_copy,
                std::vector<cluster::HostCapacity>& without) {
  const raft::Raft& raft = c.replicated->raft();
  std::size_t members = 0;
  c.members->table().each([&](const gossip::MemberView& member) {
    ++members;
    const MemberId& id = member.identity->id;
    if (id == raft.id() || member.state != wire::MemberState::alive) return;
    const cluster::HostCapacity* host = known_capacity(c, member);
    if (host == nullptr || (c.ledger.state().lost.contains(host->id) && !lost_ones)) return;
    (raft.configuration().has(id) ? with_copy : without).push_back(*host);
  });
  if (c.capacities.size() > 2 * members) c.capacities.clear();  // drop those of members that are gone
  const auto own = with_copy.begin() + (with_copy.empty() || with_copy.front().id != c.facts.id ? 0 : 1);
  std::ranges::sort(own, with_copy.end(), {}, &cluster::HostCapacity::id);
  std::ranges::sort(without, {}, &cluster::HostCapacity::id);
  // The log has no room for copies on all of them: when as many hosts have tasks as may have copies, no further host gets any.
  if (raft.configuration().learners.size() + without.size() <= wire::kMostLearners) return;
  const std::set<NodeId> busy = busy_hosts(c.ledger);
  if (copies_needed(raft.configuration(), busy) < wire::kMostLearners) return;
  for (cluster::HostCapacity& host : without) host.no_copy = !busy.contains(host.id);
}

}  // namespace

const cluster::HostCapacity* known_capacity(const Context& c, const gossip::MemberView& member) {
  const wire::Fact* told = member.facts[static_cast<std::size_t>(wire::FactKey::resources)];
  if (told == nullptr) return nullptr;
  auto& [value, capacity] = c.capacities[member.identity->id];
  if (value == told->value && capacity.name == member.identity->name) return &capacity;
  const auto facts = host_facts_of(member);
  if (!facts) return nullptr;
  value = told->value;
  capacity = host_capacity(member.identity->id.text(), member.identity->name, *facts);
  return &capacity;
}

cluster::HostCapacity host_capacity(const NodeId& id, const std::string& name, const HostFacts& facts) {
  cluster::HostCapacity host;
  host.id = id;
  host.name = name;
  host.task_address = facts.task_address;
  host.cpu_millis = facts.cpu_millis;
  host.memory_bytes = facts.memory_bytes;
  host.labels = facts.labels;
  host.unfit = facts.unfit;
  host.schedulable = facts.unfit.empty();
  host.runs_images = !facts.images.empty();
  for (const auto& g : facts.gpus)
    if (g.healthy) host.gpus.push_back({g.index, g.model, true, g.numa, g.group});
  return host;
}

std::vector<cluster::HostCapacity> host_capacities(const Context& c) {
  std::vector<cluster::HostCapacity> hosts;
  const auto& lost = c.ledger.state().lost;
  const bool any = c.options.broken_rule == "lost-host-rests";
  if (any || !lost.contains(c.facts.id)) hosts.push_back(host_capacity(c.facts.id, c.facts.name, host_facts_here(c)));
  std::vector<cluster::HostCapacity> without_copy;
  if (c.serving) add_others(c, any, hosts, without_copy);
  hosts.insert(hosts.end(), std::make_move_iterator(without_copy.begin()), std::make_move_iterator(without_copy.end()));
  if (c.options.broken_rule != "drained-gets-nothing")
    for (cluster::HostCapacity& host : hosts) host.schedulable = host.unfit.empty() && !c.ledger.state().drained.contains(host.id);
  return hosts;
}

std::vector<std::string> place_warnings(const Context& c, job::JobSpec spec) {
  // The sizes with which the job can begin: fewer tasks, or without a gang any number.
  for (auto& [name, role] : spec.roles) role.replicas = std::min(role.replicas, spec.policy.gang ? role.min_replicas : 1);
  const std::vector<TaskId> tasks = cluster::wanted_tasks(spec);
  std::vector<cluster::HostCapacity> hosts;
  std::size_t members = 0, look_at = 1;
  bool fits = false, all_known = true;
  std::string why;
  const auto look = [&] {
    const auto placed = cluster::place(spec, tasks, cluster::Capacity(hosts, {c.options.task_port_first, c.options.task_port_last}));
    fits = placed.has_value();
    if (!placed) why = placed.error().message;
  };
  const auto add = [&](const cluster::HostCapacity& host) {
    hosts.push_back(host);
    hosts.back().schedulable = true;  // drained or unfit now, which may pass
    if (hosts.size() < look_at) return;
    look_at *= 2;
    look();
  };
  add(host_capacity(c.facts.id, c.facts.name, host_facts_here(c)));
  c.members->table().each([&](const gossip::MemberView& member) {
    ++members;
    if (fits || member.identity->id.text() == c.facts.id || member.state == wire::MemberState::left) return;
    const cluster::HostCapacity* host = known_capacity(c, member);
    all_known = all_known && host != nullptr;
    if (host != nullptr) add(*host);
  });
  if (c.capacities.size() > 2 * members) c.capacities.clear();  // drop those of members that are gone
  if (!fits) look();
  if (fits || !all_known) return {};
  return {"it has no place in the cluster as it is now, even with nothing else there: " + why + "; it waits until that changes"};
}

Status may_have_images(const Context& c, const job::JobSpec& spec, const std::string& could_not) {
  const std::string image = job::image_of(spec);
  bool may = image.empty() || !c.facts.images.empty();
  if (!may)
    c.members->table().each([&](const gossip::MemberView& member) {
      if (member.identity->id.text() == c.facts.id || member.state == wire::MemberState::left) return;
      const cluster::HostCapacity* host = known_capacity(c, member);
      may = may || host == nullptr || host->runs_images;  // it may say so later
    });
  if (may) return {};
  return fail(ErrorCode::refused, could_not + ": no host of the cluster has " + job::engine_names() + " to run image " + image + " in",
              std::string(job::container_engines().front()->install) +
                  " (where it is installed, the agent's log says what it lacks: images.none); or set tasks.imageFallback: host in "
                  "dtraind.yaml of hosts that have what the image holds");
}

std::set<NodeId> busy_hosts(const cluster::Ledger& ledger) {
  std::set<NodeId> busy;
  for (const auto& [id, job] : ledger.state().jobs)
    for (const auto& [task, t] : job.tasks)
      if (!t.ended) busy.insert(t.place.node);
  return busy;
}

std::size_t copies_needed(const raft::Configuration& configuration, const std::set<NodeId>& busy) {
  return static_cast<std::size_t>(std::ranges::count_if(busy, [&](const NodeId& host) {
    const auto id = MemberId::parse(host);
    return !id || !configuration.votes(*id);
  }));
}

std::string too_wide(const raft::Configuration& configuration, std::set<NodeId> busy,
                     const std::vector<cluster::TaskPlacement>& placements) {
  const std::size_t before = copies_needed(configuration, busy);
  for (const cluster::TaskPlacement& place : placements) busy.insert(place.node);
  const std::size_t needed = copies_needed(configuration, busy);
  if (needed <= wire::kMostLearners || needed == before) return "";
  return "with it " + std::to_string(needed) + " hosts beside the voters would have tasks, and the log has room for copies on " +
         std::to_string(wire::kMostLearners) + ": ask for fewer and larger tasks, or for placement: pack";
}

std::string host_name(const Context& c, const NodeId& id) {
  if (id == c.facts.id) return c.facts.name;
  if (const auto member = member_of(c, id)) return member->identity->name;
  if (const wire::Identity* known = absent(c, id)) return known->name;
  const auto lost = c.ledger.state().lost.find(id);
  return lost == c.ledger.state().lost.end() || lost->second.name.empty() ? id : lost->second.name;
}

std::optional<wire::MemberState> host_state(const Context& c, const NodeId& id) {
  if (id == c.facts.id) return wire::MemberState::alive;
  const auto member = member_of(c, id);
  return member ? std::optional(member->state) : std::nullopt;
}

std::string state_text(std::optional<wire::MemberState> state) { return state ? wire::to_string(*state) : "not known"; }

bool is_gone(const Context& c, const NodeId& id) {
  const auto lost = c.ledger.state().lost.find(id);
  if (lost != c.ledger.state().lost.end() && lost->second.gone) return true;
  if (id == c.facts.id) return false;
  if (const auto member = member_of(c, id)) return member->state == wire::MemberState::left;
  // A member that was not seen since this agent's start may come yet, as after a power cut of all hosts.
  return absent(c, id) == nullptr;
}

HostFacts facts_of_host(const Context& c, const NodeId& id) {
  if (id == c.facts.id) return host_facts_here(c);
  const auto member = member_of(c, id);
  return (member ? host_facts_of(*member) : std::nullopt).value_or(HostFacts{});
}

std::string waits_for_host(const Context& c, const cluster::JobRecord& job) {
  const auto& lost = c.ledger.state().lost;
  for (const auto& [task, t] : job.tasks) {
    if (t.ended || !lost.contains(t.place.node)) continue;
    const std::string name = host_name(c, t.place.node);
    const std::string what = task.text() + " may run there" + (t.lease > 0ns ? " until its lease is over" : "");
    return "host " + name + " is " + state_text(host_state(c, t.place.node)) + ", and " + what + "; dtrainctl forget-node " + name +
           " if it will not return";
  }
  return "";
}

}  // namespace dtrain::node
