// The sections of a job file, each read into its part of the spec. validate() checks rules over more than one field.
#pragma once

#include "common/job/job_spec.h"
#include "common/job/map_reader.h"

namespace dtrain::job {

void read_role(const YamlNode& node, const std::string& path, const std::string& name, Framework framework, FileErrors& report,
               RoleSpec& out, bool& has_start_after);
void read_policy(const YamlNode& node, const std::string& path, FileErrors& report, Policy& out);
void read_checkpoint(const YamlNode& node, const std::string& path, FileErrors& report, CheckpointSpec& out);

// True for the roles whose tasks must never run twice at once: ps, chief, master and evaluator of a tensorflow job.
// None in a generic job.
bool is_exclusive_role(Framework framework, std::string_view role);

}  // namespace dtrain::job
