// Runs a system program to its end and keeps what it says. Blocking: for short-lived children of the agent,
// never for its loop thread. And the steps that all who run programs of others have in common.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "agent/proc/become_user.h"
#include "common/base/result.h"

namespace dtrain::proc {

struct HelperProgram {
  std::vector<std::string> argv;   // argv[0] is looked up in the system directories
  std::optional<account::HostUser> run_as;  // unset: as the caller
  int standard_input = -1;         // -1: /dev/null
};

inline constexpr int kNotExecuted = 127;  // exit code of a child that could not become its program

struct HelperResult {
  int status = 0;      // exit code; 128 + signal; kNotExecuted
  std::string errors;  // first bytes of its stderr, in English
};
inline constexpr std::size_t kHelperErrorBytes = 4096;  // more is read and dropped

Result<HelperResult> run_helper(const HelperProgram& program);

// Puts signals, mask, parent death and urgency of a just forked child in order: default handlers, nothing blocked,
// killed when its parent dies, no more urgent than usual. To be called again after become(), which cancels the death.
void prepare_child();
// Likewise, but as urgent as its parent: it runs nobody's program, and the agent waits for its answer.
void prepare_own_child();

// The last step of a forked child, safe there: becomes the program, looked up in the caller's PATH, with no descriptor but the first
// three. Where that fails it says why on stderr and ends with kNotExecuted.
[[noreturn]] void execute(char* const* argv, char* const* env);

// Of a child that leads a process group of its own, or is about to: kills all of it.
void kill_group(pid_t leader);

// Likewise, and waits for the end of the child.
void end_group(pid_t leader);

// Of such a child: once it has ended, what it left in its group is killed, and its status for waitpid() returned. nullopt: it has not.
std::optional<int> reap_group(pid_t leader);

}  // namespace dtrain::proc
