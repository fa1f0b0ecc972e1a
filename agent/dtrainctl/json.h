// Forward declarations of the documents that -o json and -o yaml print, for code that only passes them on: the
// library's header costs a second of each compilation.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace dtrain::ctl {

using Json = nlohmann::ordered_json;

}  // namespace dtrain::ctl
