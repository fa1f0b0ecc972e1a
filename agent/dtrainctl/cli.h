// The command line of dtrainctl: arguments in, exit code out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/dtrainctl/io.h"
#include "common/base/result.h"

namespace dtrain::ctl {

// args: without the program's name.
int run_program(const std::vector<std::string>& args, Io& io);

// Parses --since: "5m" before `now_ms`, or an RFC 3339 time. Returns milliseconds since the epoch.
Result<std::int64_t> parse_since(std::string_view text, std::int64_t now_ms);

}  // namespace dtrain::ctl
