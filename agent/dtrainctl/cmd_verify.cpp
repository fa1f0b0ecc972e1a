#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/tables.h"
#include "agent/store/checkpoint_reader.h"
#include "common/json/answers.h"

namespace dtrain::ctl {

int cmd_verify(Session& session, const std::string& path) {
  auto reports = store::verify_path(path);
  if (!reports) return session.report(Failure(reports.error()));
  ExitCode result = kDone;
  std::vector<wire::CheckpointView> views;
  for (const store::PathReport& report : *reports) {
    wire::CheckpointView view;
    view.path = report.info.path;
    view.step = report.info.step;
    view.bytes = report.info.bytes;
    view.digest = report.info.digest;
    if (report.status) {
      view.state = "verified";
    } else if (report.is_unfinished()) {
      view.state = "incomplete";
      view.defect = report.info.defect;
      if (result == kDone) result = kRefused;
    } else {
      view.state = "damaged";
      view.defect = report.status.error().text();
      result = kJobFailed;
    }
    views.push_back(std::move(view));
  }
  session.show(json::of(views), [&] { return checkpoints_table(views, session.layout()); });
  return result;
}

}  // namespace dtrain::ctl
