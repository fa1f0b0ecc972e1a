// What people are shown of the cluster's nodes, built from this host's facts and from what the others say of
// themselves. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/node/context.h"
#include "common/wire/view.h"

namespace dtrain::node {

wire::StatusView status_view(const Context& c);
// The same in one line, for the service manager: coordinator, members, jobs, tasks of this host.
std::string status_line(const Context& c);
// This node first, then by name. One that left is not shown once another has its name. `name`: only that
// node, by its name or id.
std::vector<wire::NodeView> node_views(const Context& c, const std::string& name);
// This host, whole.
HostFacts host_facts_here(const Context& c);
// What nothing of this host's tasks takes.
FreeFacts free_here(const Context& c);

// Nobody in service is known to lead: what is read here may be old, and nothing can be written.
bool without_leader(const Context& c);
// Of the configuration in force here.
std::vector<std::string> voter_names(const Context& c);

struct LedgerHolder {
  NodeId id;
  std::string name, address;
  std::uint64_t epoch = 0;
  bool alive = false;
  bool suspected = false;  // it may be long gone: who lost most others at once never calls them dead
};
// Who coordinates, as far as this node knows: the holder of the highest epoch, whether it lives or not.
std::optional<LedgerHolder> ledger_holder(const Context& c);
// A suspect counts as up for so long after a leader was heard, or led here: an election may be all that is missing. Who lost most others
// at once, or is cut off from them, suspects them for ever (docs/membership.md): then it is every leader's silence that tells.
inline constexpr Duration kSilence = 10s;
bool is_up(const Context& c, wire::MemberState state);
// Another node says that it does, of this term or a later one, and answers.
bool somebody_coordinates(const Context& c);

}  // namespace dtrain::node
