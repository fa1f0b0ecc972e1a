// What a standby of a task's program is (docs/warm-standby.md): which commands have one, and with what arguments it is started.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/job/job_spec.h"

namespace dtrain::job {

// The index of the first argument after the options of the Python interpreter that the command begins with: of a script, or of `-m`.
// 0: the command is another program, has its code in an argument or reads it from stdin, or its options ask for more than running it.
std::uint32_t python_target(const std::vector<std::string>& argv);

inline constexpr const char* kWarmAuto = "auto";  // the modules that the program's source imports
inline constexpr const char* kWarmNone = "none";  // there is no standby

// What the standbys of a role's tasks import: {kWarmAuto}, or modules; empty: they have none.
std::vector<std::string> warm_of(const JobSpec& spec, const std::string& role);
// Whether such a name can be one of a module: "torch", "torch.distributed".
bool is_module_name(std::string_view name);

// The command of that program's standby. `warm`: {"auto"}, or the modules to import. `socket`: the descriptor that it is spoken to through.
std::vector<std::string> warm_argv(const std::vector<std::string>& argv, const std::vector<std::string>& warm, const std::string& program,
                                   int socket);

}  // namespace dtrain::job
