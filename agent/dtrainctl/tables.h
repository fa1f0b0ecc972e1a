// How each answer looks to people.
#pragma once

#include <string>
#include <vector>

#include "agent/dtrainctl/render.h"
#include "common/wire/doctor.h"
#include "common/wire/view.h"

namespace dtrain::ctl {

std::string jobs_table(const std::vector<wire::JobView>& jobs, const Layout& layout);
std::string tasks_table(const std::vector<wire::TaskView>& tasks, const Layout& layout);
std::string left_text(const wire::DrainedJobView& job);  // for a job on a drained host: "digits (2 tasks): stays: ..."
std::string nodes_table(const std::vector<wire::NodeView>& nodes, const Layout& layout);
// The node's packages, NUMA nodes, cores and GPUs.
std::string topology_text(const wire::NodeView& node);
std::string node_text(const wire::NodeView& node, const Layout& layout);
std::string checkpoints_table(const std::vector<wire::CheckpointView>& checkpoints, const Layout& layout);
std::string status_text(const wire::StatusView& status);
// What recover-quorum would mean, before it is carried out.
std::string recovery_warning(const wire::RecoveryView& view);
std::string task_specs_text(const std::vector<wire::TaskSpecView>& tasks);
// The worst findings first, each with its cure, and the number of each level.
std::string findings_text(const std::vector<wire::Finding>& findings, const Layout& layout);
std::string event_line(const wire::EventView& event);
std::string job_summary(const wire::JobDescription& job, const Layout& layout);  // state and tasks
std::string job_text(const wire::JobDescription& job, const Layout& layout);     // all of it

// "2/4": tasks that are ready (or have succeeded) of those wanted, over all roles.
std::string ready_text(const wire::JobView& job);
// Its last STATUS=, and before it why it does not go on although it runs.
std::string status_of(const wire::TaskView& task);

}  // namespace dtrain::ctl
