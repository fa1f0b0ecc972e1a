// Forward declarations of JSON documents, for code that only passes them on: the library's header costs a second of each compilation.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace dtrain::json {

using Json = nlohmann::ordered_json;

}  // namespace dtrain::json
