// Prepares a job file's tree before its fields are read: --set, --param, and the place of every field.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/job/file_errors.h"
#include "common/job/yaml_tree.h"

namespace dtrain::job {

void apply_sets(YamlNode& root, const std::vector<std::pair<std::string, std::string>>& sets, FileErrors& report);

// Replaces ${param:K} in every scalar (not in keys); `$${param:` stands for the text `${param:`. The value of a parameter
// is not searched again. Notes the place of every field, refuses duplicate keys, and adds each K used to `used`.
// `keep_unknown`: a parameter without a value stays as it is written, since other files use ${...} for things of their own.
void resolve(YamlNode& root, const std::map<std::string, std::string>& params, std::set<std::string>& used, FileErrors& report,
             bool keep_unknown = false);

// The inverse for one text: resolve() turns it back unchanged.
std::string escape_params(std::string_view text);

}  // namespace dtrain::job
