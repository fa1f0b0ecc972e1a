// What happens to a job file's tree before it is understood: --set, --param, and where every field stands.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/job/report.h"
#include "common/job/yaml_tree.h"

namespace dtrain::job {

void apply_sets(YamlNode& root, const std::vector<std::pair<std::string, std::string>>& sets, Report& report);

// Replaces ${param:K} in every scalar (not in keys); `$${param:` is the text `${param:`. What a parameter
// brings in is not looked at again. Notes the place of every field, refuses keys that stand twice, and adds
// each K used to `used`.
void resolve(YamlNode& root, const std::map<std::string, std::string>& params, std::set<std::string>& used,
             Report& report);

// The inverse for one text: resolve() gives it back unchanged.
std::string escape_params(std::string_view text);

}  // namespace dtrain::job
