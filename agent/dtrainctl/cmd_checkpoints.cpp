#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/tables.h"
#include "common/json/answers.h"

namespace dtrain::ctl {

int cmd_checkpoints(Session& session, const CheckpointsOptions& options) {
  // Reading every byte of a large checkpoint takes its time: only --timeout limits it.
  const Deadline deadline = options.verify ? session.answer_deadline(std::nullopt) : session.answer_deadline();
  auto reply =
      session.ask_by<wire::CheckpointsReply>(wire::MessageType::query_checkpoints, wire::CheckpointsRequest{options.job, options.verify},
                                             wire::MessageType::checkpoints, deadline);
  if (!reply) return session.report(reply.error());
  session.show(json::of(reply->checkpoints), [&] { return checkpoints_table(reply->checkpoints, session.layout()); });
  if (!reply->unrecognised.empty()) session.note(reply->unrecognised);
  return kDone;
}

}  // namespace dtrain::ctl
