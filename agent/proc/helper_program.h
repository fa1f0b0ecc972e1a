// Runs a system program to its end and keeps what it says. Blocking: for short-lived children of the agent,
// never for its loop thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/proc/become_user.h"
#include "common/base/result.h"

namespace dtrain::proc {

struct HelperProgram {
  std::vector<std::string> argv;   // argv[0] is looked up in the system directories
  std::optional<HostUser> run_as;  // unset: as the caller
  int standard_input = -1;         // -1: /dev/null
};

struct HelperResult {
  int status = 0;      // exit code; 128 + signal; 127: could not be executed
  std::string errors;  // first bytes of its stderr, in English
};
inline constexpr std::size_t kHelperErrorBytes = 4096;  // more is read and dropped

Result<HelperResult> run_helper(const HelperProgram& program);

// Puts signals, mask, parent death and urgency of a just forked child in order: default handlers, nothing blocked,
// killed when its parent dies, no more urgent than usual. To be called again after become(), which cancels the death.
void prepare_child();

}  // namespace dtrain::proc
