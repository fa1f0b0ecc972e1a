// The hosts that may be given tasks, as the coordinator knows them: makes placement's HostCapacity from what each
// host says it has.
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

// For a coordinator. Returns this host, then the other hosts with a copy of the log by id, then by id the members
// that would get a copy with their first task: those that are alive, have said what they have, and are not counted as
// lost. Drained and unfit hosts are not schedulable; a host for whose copy the log has no room is marked (no_copy).
std::vector<cluster::HostCapacity> host_capacities(const Context& c);

// The capacity of one member from its last fact. It is cached, because there may be thousands of members and every decision
// looks at them. nullptr: the member said nothing yet, or what this version cannot read. Valid until the next call.
const cluster::HostCapacity* known_capacity(const Context& c, const gossip::MemberView& member);

// An error if the job names an image, and no host of the cluster runs images.
Status may_have_images(const Context& c, const job::JobSpec& spec, const std::string& could_not);

// Warnings for the submitter of a job that the hosts could not run even if they were empty; empty: they could, or
// this node does not know all hosts. Looks at no more hosts than it must, since there may be thousands of hosts and a
// stream of jobs.
std::vector<std::string> place_warnings(const Context& c, job::JobSpec spec);

// How many of the busy hosts need a copy of the log as learners. The log has room for wire::kMostLearners.
std::size_t copies_needed(const raft::Configuration& configuration, const std::set<NodeId>& busy);
// Why these tasks would spread over more hosts than can have a copy, given the hosts that have tasks already; "":
// they do not.
std::string too_wide(const raft::Configuration& configuration, std::set<NodeId> busy,
                     const std::vector<cluster::TaskPlacement>& placements);

// The hosts with tasks that have not ended.
std::set<NodeId> busy_hosts(const cluster::Ledger& ledger);

// Facts about a host, for people. host_name() returns the id of a host without a known name.
std::string host_name(const Context& c, const NodeId& id);
std::optional<wire::MemberState> host_state(const Context& c, const NodeId& id);  // nullopt: not known
std::string state_text(std::optional<wire::MemberState> state);                   // "alive", "down", ...; "not known"
bool is_gone(const Context& c, const NodeId& id);                                 // gone for good: the tasks that it had do not come back
HostFacts facts_of_host(const Context& c, const NodeId& id);

// Why a job waits for a lost host that has tasks of it; "": no task of it is on such a host.
std::string waits_for_host(const Context& c, const cluster::JobRecord& job);

}  // namespace dtrain::node
