#include "common/node/host_capacities.h"

#include <algorithm>
#include <utility>

#include "common/node/cluster_members.h"
#include "common/node/cluster_views.h"

namespace dtrain::node {
namespace {

std::optional<gossip::MemberView> member_of(const Context& c, const NodeId& id) {
  const auto member = MemberId::parse(id);
  return member ? c.members->table().find(*member) : std::nullopt;
}

}  // namespace

cluster::HostCapacity host_capacity(const NodeId& id, const std::string& name, const HostFacts& facts) {
  cluster::HostCapacity host;
  host.id = id;
  host.name = name;
  host.task_address = facts.task_address;
  host.cpu_millis = facts.cpu_millis;
  host.memory_bytes = facts.memory_bytes;
  host.labels = facts.labels;
  for (const auto& g : facts.gpus)
    if (g.healthy) host.gpus.push_back({g.index, g.model, true, g.numa});
  return host;
}

std::vector<cluster::HostCapacity> host_capacities(const Context& c) {
  std::vector<cluster::HostCapacity> hosts;
  const auto& lost = c.ledger.state().lost;
  const bool any = c.options.broken_rule == "lost-host-rests";
  if (any || !lost.contains(c.facts.id)) hosts.push_back(host_capacity(c.facts.id, c.facts.name, host_facts_here(c)));
  if (!c.replicated) return hosts;
  for (const raft::FollowerView& follower : c.replicated->raft().followers(c.now.boot)) {
    const auto member = c.members->table().find(follower.id);
    const NodeId id = follower.id.text();
    if (follower.match == 0 || !member || member->state != wire::MemberState::alive || (lost.contains(id) && !any)) continue;
    if (const auto facts = host_facts_of(*member)) hosts.push_back(host_capacity(id, member->identity->name, *facts));
  }
  if (c.options.broken_rule != "drained-gets-nothing")
    for (cluster::HostCapacity& host : hosts) host.schedulable = !c.ledger.state().drained.contains(host.id);
  return hosts;
}

std::set<NodeId> busy_hosts(const cluster::Ledger& ledger) {
  std::set<NodeId> busy;
  for (const auto& [id, job] : ledger.state().jobs)
    for (const auto& [task, t] : job.tasks)
      if (!t.ended) busy.insert(t.place.node);
  return busy;
}

std::string host_name(const Context& c, const NodeId& id) {
  if (id == c.facts.id) return c.facts.name;
  if (const auto member = member_of(c, id)) return member->identity->name;
  const auto lost = c.ledger.state().lost.find(id);
  return lost == c.ledger.state().lost.end() || lost->second.name.empty() ? id : lost->second.name;
}

std::string host_state(const Context& c, const NodeId& id) {
  if (id == c.facts.id) return "alive";
  const auto member = member_of(c, id);
  return member ? wire::to_string(member->state) : "not known";
}

bool is_gone(const Context& c, const NodeId& id) {
  const auto lost = c.ledger.state().lost.find(id);
  if (lost != c.ledger.state().lost.end() && lost->second.gone) return true;
  if (id == c.facts.id) return false;
  const auto member = member_of(c, id);
  return !member || member->state == wire::MemberState::left;
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
    return "host " + name + " is " + host_state(c, t.place.node) + ", and " + what + "; dtrainctl forget-node " + name +
           " if it will not return";
  }
  return "";
}

}  // namespace dtrain::node
