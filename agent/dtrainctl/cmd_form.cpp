// form --without: an operator says that these founders will not come. May safely be repeated.
#include "agent/dtrainctl/commands.h"

namespace dtrain::ctl {

int cmd_form(Session& session, const std::vector<std::string>& without) {
  auto reply = session.change<wire::Empty>(wire::MessageType::form, wire::FormRequest{without}, wire::MessageType::ok);
  if (!reply) return session.report(reply.error());
  session.note("the founders that are there form the cluster; dtrainctl status says how far they are");
  return kDone;
}

}  // namespace dtrain::ctl
