#include "common/node/context.h"

namespace dtrain::node {

std::uint64_t Context::propose_encoded(cluster::CommandType type, std::string body, std::uint32_t needs,
                                       std::optional<cluster::RequestStamp> request) {
  const cluster::Command command{replicated->epoch(), now.boot, now.wall, type, std::move(body), request, needs};
  return replicated->propose(now.boot, wire::encode(command));
}

}  // namespace dtrain::node
