#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/upload.h"

namespace dtrain::ctl {

int cmd_convert(Session& session, const FileOptions& options) {
  const auto file = read_jobs(session, options);
  if (!file) return session.report(file.error());
  // A job file is text in any format that -o may name.
  session.io.out << job::to_job_file(*file);
  session.io.out.flush();
  return kDone;
}

}  // namespace dtrain::ctl
