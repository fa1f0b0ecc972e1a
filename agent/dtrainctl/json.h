// The documents that -o json and -o yaml print, for whoever only hands them on: the library's header takes a second of each compilation.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace dtrain::ctl {

using Json = nlohmann::ordered_json;

}  // namespace dtrain::ctl
