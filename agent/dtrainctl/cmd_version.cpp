#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/words.h"
#include "common/json/answers.h"

namespace dtrain::ctl {

int cmd_version(Session& session) {
  auto agent = session.ask<wire::VersionReply>(wire::MessageType::query_version, wire::Empty{}, wire::MessageType::version);
  // The client's own version is printed even if no agent runs.
  const Json json{{"client", DTRAIN_VERSION}, {"agent", agent ? json::of(*agent) : Json(nullptr)}};
  session.show(json, [&] {
    return "client " DTRAIN_VERSION "\n" +
           (agent ? "agent  " + printable(agent->version) + " (node " + printable(agent->node) + ")\n" : std::string());
  });
  if (!agent) session.note(agent.error().items.front().message);
  return kDone;
}

}  // namespace dtrain::ctl
