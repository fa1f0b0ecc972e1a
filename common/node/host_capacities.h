// The hosts that may be given tasks, as the coordinator knows them: what each says it has, made into what placement asks for.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/cluster/host_capacity.h"
#include "common/gossip/membership.h"
#include "common/job/job_spec.h"
#include "common/node/context.h"
#include "common/raft/raft.h"

namespace dtrain::node {

cluster::HostCapacity host_capacity(const NodeId& id, const std::string& name, const HostFacts& facts);

// Of a coordinator: this host, then by id who has a copy of the log, then by id who would get one with its first task: members that
// are alive, have said what they have, and are not counted as lost. Drained and unfit ones are not schedulable; who would find no room
// in the log is marked (no_copy).
std::vector<cluster::HostCapacity> host_capacities(const Context& c);

// The same of one member, from what it told last and remembered: there may be thousands, looked at for each decision. nullptr: it told
// nothing yet, or what this version cannot read. Valid until the next call.
const cluster::HostCapacity* known_capacity(const Context& c, const gossip::MemberView& member);

// What its submitter is told of a job that the hosts cannot take however empty they are; nothing: they can, or not all is known of them.
// From what this node heard, and looks at no more hosts than it must: there may be thousands, and a stream of jobs.
std::vector<std::string> place_warnings(const Context& c, job::JobSpec spec);

// Of hosts with tasks: that need a copy of the log beside the voters'. The log has room for wire::kMostLearners.
std::size_t copies_needed(const raft::Configuration& configuration, const std::set<NodeId>& busy);
// Why these tasks cannot be placed on so many hosts beside those that have some; "": they can.
std::string too_wide(const raft::Configuration& configuration, std::set<NodeId> busy,
                     const std::vector<cluster::TaskPlacement>& placements);

// Where tasks have not ended.
std::set<NodeId> busy_hosts(const cluster::Ledger& ledger);

// Whatever is known of a host, for people. Its id, where it has no name.
std::string host_name(const Context& c, const NodeId& id);
std::string host_state(const Context& c, const NodeId& id);  // "alive", "down", ...; "not known"
bool is_gone(const Context& c, const NodeId& id);            // for good: what it had is not coming back
HostFacts facts_of_host(const Context& c, const NodeId& id);

// Why a job waits that has tasks on a host that is lost; "": none of its tasks are on such a host.
std::string waits_for_host(const Context& c, const cluster::JobRecord& job);

}  // namespace dtrain::node
