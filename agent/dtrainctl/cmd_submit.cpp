#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/upload.h"
#include "common/json/answers.h"

namespace dtrain::ctl {

int cmd_submit(Session& session, const SubmitOptions& options) {
  if (options.dry_run) return cmd_plan(session, options.file);
  auto job = load_job(session, options.file);
  if (!job) return session.report(job.error());
  auto reply = submit_job(session, std::move(*job), options.replace);
  if (!reply) return session.report(reply.error());
  if (reply->unchanged) {
    const std::string ended = ended_state(session, *reply).value_or("");
    session.note("job " + reply->name + ": " + unchanged_text(reply->name, ended, ""));
  }
  session.show(json::of(*reply), [&] { return reply->name + "\n"; });
  return kDone;
}

}  // namespace dtrain::ctl
