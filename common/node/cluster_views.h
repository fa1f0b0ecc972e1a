// What people are shown of the cluster's nodes, from this host's facts and from what the others say of themselves. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/node/context.h"
#include "common/wire/view.h"

namespace dtrain::node {

wire::StatusView status_view(const Context& c);
// The status in one line, for the service manager: coordinator, members, jobs, tasks of this host.
std::string status_line(const Context& c);
// Returns this node first, the others by name. A member that left is omitted if another has its name. `name`: only
// that node, by its name or id; "" for all.
std::vector<wire::NodeView> node_views(const Context& c, const std::string& name);
// What to do next, for a user who named a node that does not exist.
std::string instead_of_node(const Context& c, const std::string& wanted);
// All that this host has.
HostFacts host_facts_here(const Context& c);
// What no task of this host uses.
FreeFacts free_here(const Context& c);

// True if no member in service is known to lead: the ledger that is read here may be old, and nothing can be written.
bool without_leader(const Context& c);
// The voters' names, by the configuration in force here.
std::vector<std::string> voter_names(const Context& c);

struct LedgerHolder {
  NodeId id;
  std::string name, address;
  std::uint64_t epoch = 0;
  bool alive = false;
  bool suspected = false;  // it may be long gone: a node that lost most others at once never declares them dead
};
// The holder of the highest epoch that this node knows of, alive or not.
std::optional<LedgerHolder> ledger_holder(const Context& c);
// A suspect counts as up for so long after a leader was last heard, or led here: an election may be under way. A node
// that lost most others at once, or is cut off from them, suspects them for ever (docs/membership.md); so a leader's
// longer silence counts.
inline constexpr Duration kSilence = 10s;
bool is_up(const Context& c, wire::MemberState state);
// True if another node that answers says that it coordinates, in this term or a later one.
bool somebody_coordinates(const Context& c);

}  // namespace dtrain::node
