// One JSON string. The few objects written here have a fixed shape; only text needs care.
#pragma once

#include <string>
#include <string_view>

namespace dtrain::job {

std::string json_text(std::string_view text);  // "text", escaped; `text` must be UTF-8

}  // namespace dtrain::job
