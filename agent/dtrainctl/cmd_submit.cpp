#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/upload.h"

namespace dtrain::ctl {

int cmd_submit(Session& session, const SubmitOptions& options) {
  if (options.dry_run) return cmd_plan(session, options.file);
  auto job = load_job(session, options.file);
  if (!job) return session.report(job.error());
  auto reply = submit_job(session, std::move(*job), options.replace);
  if (!reply) return session.report(reply.error());
  if (reply->unchanged) session.note("job " + reply->name + ": unchanged");
  session.show(json_of(*reply), [&] { return reply->name + "\n"; });
  return kDone;
}

}  // namespace dtrain::ctl
