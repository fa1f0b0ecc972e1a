#include "common/node/context.h"

namespace dtrain::node {

std::uint64_t Context::propose_encoded(cluster::CommandType type, std::string body, std::optional<cluster::RequestStamp> request) {
  const std::uint32_t needs = cluster::version_needed(type, body).value_or(cluster::kFirstVersion);
  const cluster::Command command{replicated->epoch(), now.boot, now.wall, type, std::move(body), request, needs};
  return replicated->propose(now.boot, wire::encode(command));
}

}  // namespace dtrain::node
