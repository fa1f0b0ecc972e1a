// In programs of tests a rule can be broken; see common/base/broken_rule.h. tests/tidy/test_release_programs.py looks for the marker.
#include "common/base/broken_rule.h"

namespace dtrain {

extern const char kRulesCanBreak[];
const char kRulesCanBreak[] = "dtrain: rules can be broken here";

bool breaks(std::string_view broken, std::string_view rule) { return kRulesCanBreak[0] != 0 && !broken.empty() && broken == rule; }

}  // namespace dtrain
