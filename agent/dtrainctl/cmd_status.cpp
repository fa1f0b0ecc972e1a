#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/tables.h"
#include "common/json/answers.h"

namespace dtrain::ctl {

int cmd_status(Session& session, const NamedOptions& options) {
  if (options.watch) return watch_screen(session, [&](Session& s) { return cmd_status(s, {options.name, false}); });
  if (!options.name.empty()) {
    auto job = session.ask_surely<wire::JobDescription>(wire::MessageType::query_status, wire::JobName{options.name},
                                                        wire::MessageType::description);
    if (!job) return session.report(job.error());
    session.show(json::of(*job), [&] { return job_summary(*job, session.layout()); });
    return kDone;
  }
  auto status = session.ask_surely<wire::StatusView>(wire::MessageType::query_status, wire::JobName{}, wire::MessageType::status);
  if (!status) return session.report(status.error());
  session.note_stale(status->stale);
  session.show(json::of(*status), [&] { return status_text(*status); });
  return kDone;
}

}  // namespace dtrain::ctl
