#include "common/job/observation.h"

namespace dtrain::job {

std::string_view to_string(TaskState s) {
  switch (s) {
    case TaskState::waiting: return "waiting";
    case TaskState::fetching: return "fetching";
    case TaskState::staged: return "staged";
    case TaskState::starting: return "starting";
    case TaskState::running: return "running";
    case TaskState::frozen: return "frozen";
    case TaskState::backoff: return "backoff";
    case TaskState::stopping: return "stopping";
    case TaskState::succeeded: return "succeeded";
    case TaskState::failed: return "failed";
    case TaskState::lost: return "lost";
  }
  return "";
}

}  // namespace dtrain::job
