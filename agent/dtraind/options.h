// The command line of dtraind. Every flag with a value corresponds to a key of the configuration file.
#pragma once

#include <string>

#include "agent/dtraind/config.h"

namespace dtrain::daemon {

struct CommandLine {
  std::string config_file;  // "": the default file, where it exists
  Sets sets;                // flags and --set, in order; later ones win
  bool dev = false;
  bool check_config = false;
  bool version = false;
  bool help = false;
};

// ErrorCode::invalid: the message says what is wrong with which argument.
Result<CommandLine> parse_command_line(int argc, char** argv);
std::string usage_text();

}  // namespace dtrain::daemon
