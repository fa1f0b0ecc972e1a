#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/tables.h"
#include "common/json/answers.h"

namespace dtrain::ctl {

int cmd_describe_job(Session& session, const NamedOptions& options) {
  auto job = session.ask_surely<wire::JobDescription>(wire::MessageType::describe_job, wire::JobName{options.name},
                                                      wire::MessageType::description);
  if (!job) return session.report(job.error());
  session.show(json::of(*job), [&] { return job_text(*job, session.layout()); });
  return kDone;
}

}  // namespace dtrain::ctl
