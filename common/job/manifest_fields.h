// The sections of a job file, each read into its part of the spec. Rules over more than one field are
// validate()'s.
#pragma once

#include "common/job/job_spec.h"
#include "common/job/map_reader.h"

namespace dtrain::job {

void read_role(const YamlNode& node, const std::string& path, const std::string& name, Framework framework,
               Report& report, RoleSpec& out, bool& has_start_after);
void read_policy(const YamlNode& node, const std::string& path, Report& report, Policy& out);
void read_checkpoint(const YamlNode& node, const std::string& path, Report& report, CheckpointSpec& out);

// True for the roles of which there must never be two of the same: every task of ps, chief, master and
// evaluator of a tensorflow job. Of a generic job none.
bool is_exclusive_role(Framework framework, std::string_view role);

}  // namespace dtrain::job
