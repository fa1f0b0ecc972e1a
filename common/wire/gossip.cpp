#include "common/wire/gossip.h"

namespace dtrain::wire {

std::string Endpoint::text() const {
  const bool v6 = ip.find(':') != std::string::npos;
  return (v6 ? "[" + ip + "]" : ip) + ":" + std::to_string(port);
}

const char* to_string(MemberState state) {
  switch (state) {
    case MemberState::alive: return "alive";
    case MemberState::suspect: return "suspect";
    case MemberState::down: return "down";
    case MemberState::dead: return "dead";
    case MemberState::left: return "left";
  }
  return "unknown";
}

Lane lane_of(const GossipBody& body) {
  const auto bulk = [](const auto& x) {
    using T = std::decay_t<decltype(x)>;
    return std::is_same_v<T, Join> || std::is_same_v<T, JoinReply> || std::is_same_v<T, SyncRoot> || std::is_same_v<T, SyncSummaries> ||
           std::is_same_v<T, SyncRows>;
  };
  return std::visit(bulk, body) ? Lane::bulk : Lane::gossip;
}

}  // namespace dtrain::wire
