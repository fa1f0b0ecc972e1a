#include "common/node/cluster_views.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/job/manifest.h"
#include "common/node/cluster_members.h"
#include "common/node/drain_views.h"
#include "common/node/recovery.h"
#include "common/node/views.h"

namespace dtrain::node {
namespace {

template <class T>
T minus(T total, T used) {
  return total - std::min(total, used);
}

void show_facts(const HostFacts& host, const FreeFacts& free, wire::NodeView& v) {
  for (const auto& g : host.gpus)
    v.gpus.devices.push_back(
        {g.index, g.pci, g.vendor, g.model, g.uuid, g.memory_bytes, g.numa, g.healthy, g.pretended, g.reason, g.group, g.bridges, g.nics});
  v.gpus.total = static_cast<std::uint32_t>(host.gpus.size());
  v.gpus.free = free.gpus;
  v.cpus = {host.cpu_millis, free.cpu_millis};
  v.memory = {host.memory_bytes, free.memory_bytes};
  v.labels = host.labels;
  v.version = host.version;
  v.task_address = host.task_address;
  v.topology = host.topology;
  v.packages = host.packages;
  v.numa_nodes = host.numa_nodes;
  v.unfit = host.unfit;
  v.schedulable = v.schedulable && host.unfit.empty();
}

// By this node's copy of the log.
std::string role_of(const Context& c, const MemberId& id) {
  if (!c.holds_ledger()) return "member";
  const raft::Raft& raft = c.replicated->raft();
  if (id == raft.id() ? c.serving : id == raft.leader()) return "coordinator";
  return raft.configuration().votes(id) ? "voter" : raft.configuration().learns(id) ? "learner" : "member";
}

// By this node's copy of the ledger; a node without a copy takes every host to be allowed.
bool may_be_given_tasks(const Context& c, const NodeId& id) {
  const auto& state = c.ledger.state();
  return !c.members->cluster_id().empty() && !state.lost.contains(id) && !state.drained.contains(id);
}

// This node's view, from its own facts and not by way of gossip.
wire::NodeView own_view(const Context& c, const gossip::MemberView& m) {
  wire::NodeView v;
  v.name = c.facts.name;
  v.id = c.facts.id;
  v.address = c.facts.address;
  v.state = wire::to_string(m.state);
  v.incarnation = m.incarnation;
  v.role = role_of(c, MemberId::parse(c.facts.id).value_or(kNameless));
  v.schedulable = may_be_given_tasks(c, c.facts.id);
  show_facts(host_facts_here(c), free_here(c), v);
  return v;
}

wire::NodeView member_view(const Context& c, const gossip::MemberView& m) {
  wire::NodeView v;
  v.name = m.identity->name;
  v.id = m.identity->id.text();
  v.address = m.identity->address.text();
  v.state = wire::to_string(m.state);
  v.incarnation = m.incarnation;
  v.role = c.holds_ledger() ? role_of(c, m.identity->id) : council_fact_of(m).role;
  v.schedulable = m.state == wire::MemberState::alive && may_be_given_tasks(c, v.id);
  if (const auto host = host_facts_of(m)) show_facts(*host, free_facts_of(m).value_or(FreeFacts{}), v);
  return v;
}

wire::MembershipView membership_view(const gossip::Membership& table) {
  wire::MembershipView v;
  const gossip::Counters& counters = table.counters();
  for (std::size_t why = 0; why < wire::kDrops; ++why) v.drops[wire::to_string(static_cast<wire::Drop>(why))] = counters.drops[why];
  v.probe_failures = counters.probe_failures;
  v.refutes = counters.refutes;
  v.rumours_dropped = counters.rumours_dropped;
  v.health = table.local_health();
  return v;
}

}  // namespace

namespace {

// The leader that this copy of the log follows, while it is up. A learner that was removed would otherwise name its
// last leader for ever.
std::optional<gossip::MemberView> leader_of(const Context& c) {
  const MemberId leader = c.replicated->raft().leader();
  const auto m = leader.none() ? std::nullopt : c.members->table().find(leader);
  return m && is_up(c, m->state) ? m : std::nullopt;
}

}  // namespace

bool is_up(const Context& c, wire::MemberState state) {
  if (state == wire::MemberState::alive) return true;
  return state == wire::MemberState::suspect && c.now.boot < std::max(c.replicated->raft().heard(), c.led) + kSilence;
}

bool without_leader(const Context& c) { return !c.serving && (!c.holds_ledger() || !leader_of(c)); }

std::vector<std::string> voter_names(const Context& c) {
  std::vector<std::string> names;
  for (const MemberId& id : c.replicated->raft().configuration().voters) {
    const auto m = c.members->table().find(id);
    names.push_back(id == c.replicated->raft().id() ? c.facts.name : m ? m->identity->name : id.text());
  }
  std::ranges::sort(names);
  return names;
}

HostFacts host_facts_here(const Context& c) {
  HostFacts h;
  h.task_address = c.facts.task_address;
  h.task_interface = c.facts.task_interface;
  h.version = c.options.version;
  h.cpu_millis = c.facts.cpu_millis;
  h.memory_bytes = c.facts.memory_bytes;
  h.gpus = c.facts.gpus;
  h.labels = c.facts.labels;
  h.topology = c.facts.topology;
  h.packages = c.facts.packages;
  h.numa_nodes = c.facts.numa_nodes;
  h.unfit = c.facts.unfit;
  h.images = c.facts.images;
  return h;
}

FreeFacts free_here(const Context& c) {
  FreeFacts used;
  std::set<std::uint32_t> gpus;  // healthy GPUs that no task has
  for (const Gpu& gpu : c.facts.gpus)
    if (gpu.healthy) gpus.insert(gpu.index);
  for (const auto& [id, job] : c.ledger.state().jobs) {
    for (const auto& [task, t] : job.tasks) {
      const auto role = job.spec.roles.find(task.role);
      if (t.ended || t.place.node != c.facts.id || role == job.spec.roles.end()) continue;
      used.cpu_millis += role->second.resources.cpu_millis;
      used.memory_bytes += role->second.resources.memory_bytes;
      for (const std::uint32_t gpu : t.place.gpus) gpus.erase(gpu);
    }
  }
  FreeFacts free;
  free.cpu_millis = minus(c.facts.cpu_millis, used.cpu_millis);
  free.memory_bytes = minus(c.facts.memory_bytes, used.memory_bytes);
  free.gpus = static_cast<std::uint32_t>(gpus.size());
  return free;
}

namespace {

std::optional<LedgerHolder> holder_by_gossip(const Context& c) {
  std::optional<LedgerHolder> holder;
  c.members->table().each([&](const gossip::MemberView& m) {
    const CouncilFact council = council_fact_of(m);
    if (!council.coordinates() || m.state == wire::MemberState::left) return;
    if (holder && holder->epoch >= council.epoch) return;
    holder = LedgerHolder{m.identity->id.text(), m.identity->name,          m.identity->address.text(),
                          council.epoch,         wire::in_service(m.state), m.state == wire::MemberState::suspect};
  });
  return holder;
}

}  // namespace

std::optional<LedgerHolder> ledger_holder(const Context& c) {
  if (c.serving) return LedgerHolder{c.facts.id, c.facts.name, c.facts.address, c.ledger.state().epoch, !c.storage_failed};
  std::optional<LedgerHolder> holder;
  if (c.holds_ledger()) {
    if (const auto m = leader_of(c))
      holder = LedgerHolder{m->identity->id.text(), m->identity->name, m->identity->address.text(), c.replicated->epoch(), true};
    return holder;
  }
  return holder_by_gossip(c);
}

bool somebody_coordinates(const Context& c) {
  const auto holder = holder_by_gossip(c);
  return holder && holder->alive && !holder->suspected && holder->epoch >= c.replicated->epoch();
}

wire::StatusView status_view(const Context& c) {
  wire::StatusView v;
  v.cluster = {c.options.cluster_name, c.members->cluster_id()};
  if (v.cluster.id.empty()) v.cluster.id = c.options.cluster_id;
  v.ledger = c.holds_ledger();
  v.waiting_for = c.members->waiting_for();
  const auto holder = ledger_holder(c);
  if (holder && holder->alive) v.coordinator = wire::CoordinatorView{holder->name, holder->epoch};
  if (holder) v.quorum.voters = {holder->name};
  if (c.holds_ledger()) v.quorum.voters = voter_names(c);
  v.quorum.healthy = v.coordinator.has_value();
  v.quorum.history = c.replicated->raft().history().number;
  v.quorum.next = quorum_advice(c);
  const auto counts = c.members->table().counts();
  v.nodes = {counts.alive, counts.suspect, counts.down, counts.dead, counts.left};
  const std::string& self = c.facts.id;
  c.members->table().each([&](const gossip::MemberView& m) {
    if (!wire::in_service(m.state) || m.identity->id.text() == self) return;
    const auto host = host_facts_of(m);
    if (!host) return;
    v.gpus.total += static_cast<std::uint32_t>(host->gpus.size());
    v.gpus.free += free_facts_of(m).value_or(FreeFacts{}).gpus;
    if (!host->unfit.empty()) v.unfit[m.identity->name] = host->unfit;
  });
  if (!c.facts.unfit.empty()) v.unfit[c.facts.name] = c.facts.unfit;
  v.gpus.total += static_cast<std::uint32_t>(c.facts.gpus.size());
  v.gpus.free += free_here(c).gpus;
  for (const auto& [id, job] : c.ledger.state().jobs) ++v.jobs[title(to_string(job.state))];
  v.stale = !v.quorum.healthy || (c.holds_ledger() && !c.current);
  v.membership = membership_view(c.members->table());
  for (const auto& [id, drain] : c.ledger.state().drained) v.drained[drain.name] = drain.reason;
  return v;
}

std::string status_line(const Context& c) {
  const wire::StatusView v = status_view(c);
  if (!v.waiting_for.empty()) return "belongs to no cluster; waits for " + v.waiting_for;
  std::string line = v.coordinator ? "coordinator " + v.coordinator->node : "no coordinator: nothing new is decided";
  line += "; " + std::to_string(v.nodes.alive) + " of " + std::to_string(v.nodes.alive + v.nodes.suspect + v.nodes.down + v.nodes.dead) +
          " members alive; ";
  if (v.ledger) {
    line += v.jobs.empty() ? "no jobs" : "jobs:";
    const char* between = " ";
    for (const auto& [state, count] : v.jobs) {
      line += between + std::to_string(count) + " " + state;
      between = ", ";
    }
    line += "; ";
  }
  const std::size_t here = c.host ? c.host->running().size() : 0;
  return line + std::to_string(here) + (here == 1 ? " task runs here" : " tasks run here");
}

std::vector<wire::NodeView> node_views(const Context& c, const std::string& name) {
  std::vector<wire::NodeView> views;
  bool first = true;  // this node itself comes first
  const gossip::Membership& table = c.members->table();
  // Among several members that have or had the same name: true for the one in service.
  const auto stands_for_its_name = [&](const gossip::MemberView& m) {
    const auto holder = table.find(m.identity->name);
    return !holder || holder->identity->id == m.identity->id;
  };
  table.each([&](const gossip::MemberView& m) {
    const bool own = std::exchange(first, false);
    const std::string id = own ? c.facts.id : m.identity->id.text();
    if (name.empty()) {
      if (m.state == wire::MemberState::left && !stands_for_its_name(m)) return;
    } else if (name != id && (name != m.identity->name || !stands_for_its_name(m))) {
      return;
    }
    wire::NodeView v = own ? own_view(c, m) : member_view(c, m);
    v.boot_id = m.identity->boot_id;
    v.key_print = m.identity->key_print;
    v.life = m.identity->life;
    v.drained = drain_view(c, id, !name.empty());
    if (name.empty()) v.topology.clear();
    views.push_back(std::move(v));
  });
  return views;
}

std::string instead_of_node(const Context& c, const std::string& wanted) {
  std::vector<std::string> names;
  c.members->table().each([&](const gossip::MemberView& m) { names.push_back(m.identity->name); });
  const std::string near = job::nearest(wanted, names);
  return near.empty() ? "dtrainctl nodes shows those there are" : "did you mean " + near + "?";
}

}  // namespace dtrain::node
