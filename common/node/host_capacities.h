// The hosts that may be given tasks, as the coordinator knows them: what each says it has, made into what placement asks for.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/cluster/host_capacity.h"
#include "common/node/context.h"

namespace dtrain::node {

cluster::HostCapacity host_capacity(const NodeId& id, const std::string& name, const HostFacts& facts);

// Of a coordinator: this host, then by id who has a copy of the log, then by id who would get one with its first task: members that
// are alive, have said what they have, and are not counted as lost. Drained ones are not schedulable.
std::vector<cluster::HostCapacity> host_capacities(const Context& c);

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
