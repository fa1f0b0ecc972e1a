// The command line of dtrainctl: arguments in, exit code out.
#pragma once

#include <string>
#include <vector>

#include "agent/dtrainctl/io.h"

namespace dtrain::ctl {

// args: without the program's name.
int run_program(const std::vector<std::string>& args, Io& io);

}  // namespace dtrain::ctl
