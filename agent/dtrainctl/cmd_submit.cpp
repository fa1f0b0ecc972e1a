#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/upload.h"
#include "common/json/answers.h"

namespace dtrain::ctl {

int cmd_submit(Session& session, const SubmitOptions& options) {
  if (options.dry_run) return cmd_plan(session, options.file);
  auto jobs = load_jobs(session, options.file);
  if (!jobs) return session.report(jobs.error());
  const bool several = jobs->size() > 1;
  // What the agent would refuse of one of them keeps all of them from being handed in.
  for (std::size_t i = 0; several && i < jobs->size(); ++i)
    if (const auto accepted = plan_job(session, (*jobs)[i]); !accepted) return session.report(accepted.error());
  Json answers = Json::array();
  std::string names;
  for (LoadedJob& job : *jobs) {
    auto reply = submit_job(session, std::move(job), options.replace);
    if (!reply) {
      if (!names.empty()) session.note("handed in before this one: " + names.substr(0, names.size() - 1));
      return session.report(reply.error());
    }
    if (reply->unchanged) {
      const std::string ended = ended_state(session, *reply).value_or("");
      session.note("job " + reply->name + ": " + unchanged_text(reply->name, ended, ""));
    }
    answers.push_back(json::of(*reply));
    names += reply->name + "\n";
  }
  session.show(several ? answers : answers.front(), [&] { return names; });
  return kDone;
}

}  // namespace dtrain::ctl
