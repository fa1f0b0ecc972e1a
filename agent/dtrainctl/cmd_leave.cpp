// leave, forget-node: take a node out of the cluster for good. May safely be sent twice.
#include "agent/dtrainctl/commands.h"

namespace dtrain::ctl {

int cmd_leave(Session& session, const NamedOptions& options) {
  auto reply = session.change<wire::Empty>(wire::MessageType::leave, wire::LeaveRequest{options.name}, wire::MessageType::ok);
  if (!reply) return session.report(reply.error());
  session.note(options.name.empty() ? "this node left its cluster for good; its agent can be stopped"
                                    : "node " + options.name + ": left; its name is free");
  return kDone;
}

}  // namespace dtrain::ctl
