// drain, undrain: a user's command about a host, which becomes an entry of the log.
#include <algorithm>

#include "common/job/manifest.h"
#include "common/node/cluster_members.h"
#include "common/node/reply.h"
#include "common/node/requests.h"

namespace dtrain::node {
namespace {

struct Host {
  NodeId id;
  std::string name;
};

// Finds a host by name or id: a member that has not left, or one that was drained, wherever it is now.
std::optional<Host> find_host(const Context& c, const std::string& wanted) {
  if (wanted == c.facts.name || wanted == c.facts.id) return Host{c.facts.id, c.facts.name};
  std::optional<Host> found;
  c.members->table().each([&](const gossip::MemberView& m) {
    const std::string id = m.identity->id.text();
    if (m.state != wire::MemberState::left && (wanted == id || (wanted == m.identity->name && !found))) found = Host{id, m.identity->name};
  });
  for (const auto& [id, drain] : c.ledger.state().drained)
    if (!found && (wanted == id || wanted == drain.name)) found = Host{id, drain.name};
  return found;
}

}  // namespace

void Requests::drain(const Request& e, const wire::DrainRequest& q, const Caller& caller) {
  const std::string could_not = std::string("could not ") + (q.on ? "drain" : "undrain") + " host " + q.node;
  const auto refused = [&](ErrorCode code, const std::string& why, const std::string& next) {
    reply_error(c_, e.connection, e.request, {code, could_not + ": " + why, next});
  };
  if (refuse_non_operator(e, caller, could_not)) return;
  const auto host = find_host(c_, q.node);
  if (!host) {
    std::vector<std::string> names;
    c_.members->table().each([&](const gossip::MemberView& m) { names.push_back(m.identity->name); });
    const std::string near = job::nearest(q.node, names);
    return refused(ErrorCode::not_found, "this cluster has none of that name",
                   near.empty() ? "dtrainctl nodes shows those there are" : "did you mean " + near + "?");
  }
  if (q.reason.size() > wire::kDrainReasonBytes)
    return refused(ErrorCode::limit, "the reason is longer than " + std::to_string(wire::kDrainReasonBytes) + " bytes", "say it shorter");
  if (q.deadline_ms < 0) return refused(ErrorCode::invalid, "its deadline lies in the past", "give a time span such as 30m");
  if (!room_for_proposal(e)) return;
  const cluster::DrainHost command{host->id, host->name, q.reason, caller.user, q.on, std::chrono::milliseconds(q.deadline_ms),
                                   asker(caller)};
  pend(proposals_.add(cluster::CommandType::drain_host, command), e, wire::MessageType::drain, caller);
}

}  // namespace dtrain::node
